"""Windows: what is being sent or quiet right now, by fingerprint and severity, as admins see and end it."""

from __future__ import annotations

import re
import time
from typing import NamedTuple
from urllib.parse import unquote

from ....client import AsyncClient
from ....reservations.handle import ReservationInfo
from ....service.api.times import moment
from ....service.routes import Answer
from ..model import FIRING, RESOLVED, Status, fingerprint_prefix, own, reservation_key, resolved_key
from ..records.history_queries import Lookback, named

_OURS = own("")  # what all our keys begin with
SENDING = own("firing/")  # what those of firing alerts begin with
_KEY = re.compile(_OURS + r"(?:resolved/(?P<resolved>[^/]+)|firing/(?P<firing>[^/]+)/(?P<severity>[^/]*))")
_DIGEST = re.compile(r"~[0-9a-f]{64}")  # what stands in a key for a fingerprint that is too long for it
_FOR_PROGRAMS = re.compile(r" (msg_[0-9a-f]{32}|00-[0-9a-f-]{52})")  # the id and the trace beside the alert's name
_DAY = 86_400.0  # seconds
_MOST = 1_000  # windows of one fingerprint: more severities than anybody has


class Window(Answer):
    """A reservation: `reason` is what an alert of this fingerprint and severity is told for `left` seconds more; of a
    resolved one, the severity is empty. `last_sent` is null if it was never sent, or `unreadable` says why it is not
    known.

    `suppressed` counts what the store refused in this window. Workers answer repeats of the same moment themselves:
    these too are in `suppressed_day`, all of the last 24 hours.
    """

    key: str
    fingerprint: str
    severity: str
    status: Status
    reason: str
    left: float
    suppressed: int
    suppressed_day: int
    last_sent: float | None
    sent: int
    who: str
    fence: int
    unreadable: str = ""


class Windows(NamedTuple):
    """A page of them, in key order, and after which key to go on, None if there are no more."""

    found: list[Window]
    next: str | None


async def listed(once: AsyncClient, history: Lookback, after: str, limit: int, prefix: str = _OURS) -> Windows:
    """Those of all fingerprints; with the prefix SENDING, without the messages that it is over."""
    page = await once.reservations(prefix, after=after, limit=limit)
    return Windows(await _counted(history, page), page[-1].key if len(page) == limit else None)


async def of_fingerprint(once: AsyncClient, history: Lookback, fingerprint: str) -> list[Window]:
    """Those of this fingerprint: of all severities, and the one of the message that it is over."""
    resolved = key_of_resolved(fingerprint)
    infos = await once.reservations(prefix_of(fingerprint), limit=_MOST)
    infos += [info for info in await once.reservations(resolved, limit=1) if info.key == resolved]
    return await _counted(history, infos)


async def _counted(history: Lookback, infos: list[ReservationInfo]) -> list[Window]:
    found = [window for info in infos if (window := _window(info)) is not None]
    if found:
        counts = await history.suppressed_of({each.fingerprint for each in found}, since=time.time() - _DAY)
        for window in found:
            window.suppressed_day = counts.get((named(window.fingerprint), named(window.severity)), 0)
    return found


async def expire(once: AsyncClient, fingerprint: str, severity: str, reason: str) -> bool:
    """Ends the one of this fingerprint and severity; False if there was none."""
    return await once.expire_reservation(key_of(fingerprint, severity), reason=reason)


async def clear(once: AsyncClient, fingerprint: str, reason: str) -> int:
    """Ends all of this fingerprint; how many there were."""
    cleared = await once.clear_reservations(prefix_of(fingerprint), reason=reason)
    return cleared + await once.expire_reservation(key_of_resolved(fingerprint), reason=reason)


def _window(info: ReservationInfo) -> Window | None:
    """The reservation as a window; None if it is another's."""
    key = _KEY.fullmatch(info.key)
    if key is None:
        return None
    return Window(
        key=info.key,
        fingerprint=_decoded(key["firing"] or key["resolved"]),
        severity=_decoded(key["severity"] or ""),
        status=RESOLVED if key["resolved"] else FIRING,
        reason=info.reason,
        left=info.left,
        suppressed=info.suppressed,
        suppressed_day=0,
        last_sent=moment(info.last_sent),
        sent=info.sent,
        who=_FOR_PROGRAMS.sub("", info.holder),
        fence=info.fence,
        unreadable=info.unreadable,
    )


def _decoded(part: str) -> str:
    return part if _DIGEST.fullmatch(part) else unquote(part)


# A fingerprint that is too long for a key is listed as its digest: by that, too, an admin can name it.


def prefix_of(fingerprint: str) -> str:
    """What the keys of all severities of this fingerprint begin with."""
    return f"{SENDING}{fingerprint}/" if _DIGEST.fullmatch(fingerprint) else fingerprint_prefix(fingerprint)


def key_of(fingerprint: str, severity: str) -> str:
    """The key of the reservation of this fingerprint and severity; of the message that it is over if that is empty."""
    if not severity:
        return key_of_resolved(fingerprint)
    return prefix_of(fingerprint) + reservation_key("", severity).removeprefix(fingerprint_prefix(""))


def key_of_resolved(fingerprint: str) -> str:
    """The key of the reservation of the message that it is over."""
    return own(f"resolved/{fingerprint}") if _DIGEST.fullmatch(fingerprint) else resolved_key(fingerprint)
