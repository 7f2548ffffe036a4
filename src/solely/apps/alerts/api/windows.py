"""Windows: the reservations of alerts, held while a notification is sent and quiet after that, as operators list and
end them."""

from __future__ import annotations

import re
import time
from typing import NamedTuple
from urllib.parse import unquote

from .... import AsyncClient, ReservationInfo
from ....kit import Answer, timestamp
from ..model import FIRING, RESOLVED, Status, fingerprint_prefix, own, reservation_key, resolved_key
from ..records.history_queries import HistoryQueries, named

_OURS = own("")  # the prefix of all our keys
SENDING = own("firing/")  # the prefix of the keys of firing alerts
_KEY = re.compile(_OURS + r"(?:resolved/(?P<resolved>[^/]+)|firing/(?P<firing>[^/]+)/(?P<severity>[^/]*))")
_DIGEST = re.compile(r"~[0-9a-f]{64}")  # stands in a key for a fingerprint that is too long
_DAY = 86_400.0  # seconds
_MOST = 1_000  # windows of one fingerprint: more severities than anybody has


class Window(Answer):
    """A reservation: for `left` more seconds, alerts of this fingerprint and severity are suppressed with `reason`. The
    severity of a resolved alert's window is empty. `last_sent` is null if nothing was sent, or if the entry is
    `unreadable`, which then says why.

    `suppressed` counts what the store refused in this window; workers refuse repeats of the same moment from their
    cache. `suppressed_day` counts both over the last 24 hours.
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


class WindowPage(NamedTuple):
    """A page of windows in key order, and the key after which the next page starts; None if this is the last one."""

    found: list[Window]
    next: str | None


async def listed(once: AsyncClient, history: HistoryQueries, after: str, limit: int, prefix: str = _OURS) -> WindowPage:
    """Windows of all fingerprints; with the prefix SENDING, only those of firing alerts."""
    page = await once.reservations(prefix, after=after, limit=limit)
    return WindowPage(await _counted(history, page), page[-1].key if len(page) == limit else None)


async def of_fingerprint(once: AsyncClient, history: HistoryQueries, fingerprint: str) -> list[Window]:
    """Windows of this fingerprint: of all severities, and of the resolved notification."""
    resolved = key_of_resolved(fingerprint)
    infos = await once.reservations(prefix_of(fingerprint), limit=_MOST)
    infos += [info for info in await once.reservations(resolved, limit=1) if info.key == resolved]
    return await _counted(history, infos)


async def _counted(history: HistoryQueries, infos: list[ReservationInfo]) -> list[Window]:
    found = [window for info in infos if (window := _window(info)) is not None]
    if found:
        counts = await history.suppressed_of({each.fingerprint for each in found}, since=time.time() - _DAY)
        for window in found:
            window.suppressed_day = counts.get((named(window.fingerprint), named(window.severity)), 0)
    return found


async def expire(once: AsyncClient, fingerprint: str, severity: str, reason: str) -> bool:
    """Ends the window of this fingerprint and severity; False if there was none."""
    return await once.expire_reservation(key_of(fingerprint, severity), reason=reason)


async def clear(once: AsyncClient, fingerprint: str, reason: str) -> int:
    """Ends all windows of this fingerprint; returns their number."""
    cleared = await once.clear_reservations(prefix_of(fingerprint), reason=reason)
    return cleared + await once.expire_reservation(key_of_resolved(fingerprint), reason=reason)


def _window(info: ReservationInfo) -> Window | None:
    """The window of this reservation; None if its key is not an alert's."""
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
        last_sent=timestamp(info.last_sent),
        sent=info.sent,
        who=info.holder,
        fence=info.fence,
        unreadable=info.unreadable,
    )


def _decoded(part: str) -> str:
    return part if _DIGEST.fullmatch(part) else unquote(part)


# A fingerprint that is too long for a key is listed as its digest: operators can name it by the digest, too.


def prefix_of(fingerprint: str) -> str:
    """The common prefix of the keys of all severities of this fingerprint."""
    return f"{SENDING}{fingerprint}/" if _DIGEST.fullmatch(fingerprint) else fingerprint_prefix(fingerprint)


def key_of(fingerprint: str, severity: str) -> str:
    """The key of the window of this fingerprint and severity; of the resolved notification if that is empty."""
    if not severity:
        return key_of_resolved(fingerprint)
    return prefix_of(fingerprint) + reservation_key("", severity).removeprefix(fingerprint_prefix(""))


def key_of_resolved(fingerprint: str) -> str:
    """The key of the window of the resolved notification."""
    return own(f"resolved/{fingerprint}") if _DIGEST.fullmatch(fingerprint) else resolved_key(fingerprint)
