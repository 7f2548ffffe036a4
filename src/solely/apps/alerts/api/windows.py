"""Windows: the reservations of alerts, held while a notification is sent and quiet after that, as operators list and
end them. Reading needs READ; ending a window needs ADMIN and a reason, which goes into the audit log."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import unquote

from .... import ReservationInfo
from ....kit import (
    DAY,
    MAX_TTL,
    Affected,
    Answer,
    Body,
    Call,
    PageSize,
    Prefix,
    Route,
    Rows,
    act_routes,
    list_route,
    seconds,
    span,
    timestamp,
)
from .. import acts
from ..decision import QUIET
from ..history import named
from ..model import FIRING, RESOLVED, Status, Text, own, part_of
from ..runtime import AlertsRuntime, Handlers
from .lists import Anything

_OURS = own("")  # the prefix of all our keys
SENDING = own("firing/")  # the prefix of the keys of firing alerts
_KEY = re.compile(_OURS + r"(?:resolved/(?P<resolved>[^/]+)|firing/(?P<firing>[^/]+)/(?P<severity>[^/]*))")
_DIGEST = re.compile(r"~[0-9a-f]{64}")  # stands in a key for a fingerprint that is too long
_MOST = 1_000  # windows of one fingerprint: more severities than anybody has


class Window(Answer):
    """A reservation: for `left` more seconds, alerts of this fingerprint and severity are suppressed with `reason`. The
    severity of a resolved alert's window is empty. `ends` is the moment at which it ends, `full` its length by the
    settings, at least `left`. `last_sent` is null if nothing was sent, or if the entry is `unreadable`, which then
    says why.

    `suppressed` counts what the store refused in this window; workers refuse repeats of the same moment from their
    cache. `suppressed_day` counts both over the last 24 hours.
    """

    key: str
    fingerprint: str
    severity: str
    status: Status
    reason: str
    left: float
    ends: float
    full: float
    suppressed: int
    suppressed_day: int
    last_sent: float | None
    sent: int
    who: str
    fence: int
    unreadable: str = ""


class ClearWindows(Body):
    """Ends all windows of this fingerprint."""

    fingerprint: Text


class ExpireWindow(ClearWindows):
    """Ends the window of this fingerprint and severity; without a severity, that of the resolved notification."""

    severity: Anything = ""


async def listed(app: AlertsRuntime, after: str, limit: int, prefix: str = _OURS) -> Rows[Window]:
    """Windows of all fingerprints in key order; with the prefix SENDING, only those of firing alerts."""
    page = await app.once.reservations(prefix, after=after, limit=limit)
    return Rows(await _windows(app, page), page[-1].key if len(page) == limit else None)


async def of_fingerprint(app: AlertsRuntime, fingerprint: str) -> list[Window]:
    """Windows of this fingerprint: of all severities, and of the resolved notification."""
    prefix, resolved = keys_of(fingerprint)
    infos = await app.once.reservations(prefix, limit=_MOST)
    infos += [info for info in await app.once.reservations(resolved, limit=1) if info.key == resolved]
    return await _windows(app, infos)


def keys_of(fingerprint: str) -> tuple[str, str]:
    """The common prefix of the keys of all severities of this fingerprint, and the key of its resolved notification. A
    fingerprint that is too long for a key is listed as its digest: operators can name it by the digest, too."""
    part = fingerprint if _DIGEST.fullmatch(fingerprint) else part_of(fingerprint)
    return f"{SENDING}{part}/", own(f"resolved/{part}")


async def _windows(app: AlertsRuntime, infos: list[ReservationInfo]) -> list[Window]:
    """The windows of these reservations, with what they suppressed in the last 24 hours. Keys that are not an alert's
    are left out."""
    found = [_window(app, info, key) for info in infos if (key := _KEY.fullmatch(info.key)) is not None]
    if found:
        counts = await app.history.suppressed_of({each.fingerprint for each in found}, since=time.time() - DAY)
        for window in found:
            window.suppressed_day = counts.get((named(window.fingerprint), named(window.severity)), 0)
    return found


def _window(app: AlertsRuntime, info: ReservationInfo, key: re.Match[str]) -> Window:
    severity = _decoded(key["severity"] or "")
    return Window(
        key=info.key,
        fingerprint=_decoded(key["firing"] or key["resolved"]),
        severity=severity,
        status=RESOLVED if key["resolved"] else FIRING,
        reason=info.reason,
        left=info.left,
        ends=time.time() + info.left,
        full=info.left if key["resolved"] else max(info.left, _full(app, severity, info.reason)),
        suppressed=info.suppressed,
        suppressed_day=0,
        last_sent=timestamp(info.last_sent),
        sent=info.sent,
        who=info.holder,
        fence=info.fence,
        unreadable=info.unreadable,
    )


def _full(app: AlertsRuntime, severity: str, reason: str) -> float:
    """The full length of such a window by the settings."""
    policy = app.windows.policies[severity]
    return seconds("window", policy.quiet if reason == QUIET else policy.hold, least=0.0, most=MAX_TTL)


def _decoded(part: str) -> str:
    return part if _DIGEST.fullmatch(part) else unquote(part)


# -- what operators do


class WindowActs(Handlers):
    """Lists and ends windows."""

    async def listed(self, fingerprint: Anything = "", after: Prefix = "", limit: PageSize = 100) -> Rows[Window]:
        """Windows of this fingerprint; or of all, with keys after `after`."""
        return (
            Rows(await of_fingerprint(self._app, fingerprint)) if fingerprint else await listed(self._app, after, limit)
        )

    async def expire(self, call: Call[ExpireWindow, None]) -> bool:
        """Ends one window; False if there was none."""
        name, severity = call.body.fingerprint, call.body.severity
        prefix, resolved = keys_of(name)
        key = f"{prefix}{part_of(severity)}" if severity else resolved
        expired = await self._app.once.expire_reservation(key, reason=call.reason)
        self._app.receiver.forget(name)
        return expired

    async def to_expire(self, call: Call[Any, Any], wanted: ExpireWindow) -> Affected | None:
        """The window, if there is one."""
        name = wanted.fingerprint
        found = [each for each in await of_fingerprint(self._app, name) if each.severity == wanted.severity]
        states = ", ".join(map(_state, found))
        return _affected(f"the window of {name!r} {wanted.severity or 'resolved'} ({states})", found)

    async def clear(self, call: Call[ClearWindows, None]) -> int:
        """Ends all windows of a fingerprint; their number."""
        name, once = call.body.fingerprint, self._app.once
        prefix, resolved = keys_of(name)
        cleared = await once.clear_reservations(prefix, reason=call.reason)
        cleared += await once.expire_reservation(resolved, reason=call.reason)
        self._app.receiver.forget(name)
        return cleared

    async def to_clear(self, call: Call[Any, Any], wanted: ClearWindows) -> Affected | None:
        """The windows, if there are any."""
        found = await of_fingerprint(self._app, wanted.fingerprint)
        count = f"{len(found)} window{'' if len(found) == 1 else 's'}"
        states = ", ".join(f"{each.severity or each.status} {_state(each)}" for each in found)
        return _affected(f"{count} of {wanted.fingerprint!r} ({states})", found)


def _affected(what: str, found: list[Window]) -> Affected | None:
    if not found:
        return None
    suppressed = f"{sum(each.suppressed_day for each in found)} alerts in 24 hours"
    return Affected(what, {"Fingerprint": found[0].fingerprint, "Suppressed": suppressed})


def _state(window: Window) -> str:
    return f"{'quiet' if window.reason == QUIET else 'being sent'} for {span(window.left)}"


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of windows."""
    made = WindowActs(app)
    return [
        list_route(acts.WINDOWS, made.listed),
        *act_routes(acts.EXPIRE, made.expire, made.to_expire),
        *act_routes(acts.CLEAR, made.clear, made.to_clear),
    ]
