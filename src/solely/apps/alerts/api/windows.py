"""Windows: the reservations of alerts, held while a notification is sent and quiet after that, as operators list and
end them. Reading needs READ; ending a window needs ADMIN and a reason, which goes into the audit log."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import unquote, urlencode

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
    Reason,
    Route,
    Rows,
    act_routes,
    list_route,
    seconds,
    span,
    timestamp,
)
from .. import acts
from ..model import FIRING, RESOLVED, Status, Text, fingerprint_prefix, own, reservation_key, resolved_key
from ..records.history import named
from ..runtime import AlertsRuntime, Handlers
from ..settings import table
from ..worker import QUIET
from .history import Anything

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


class WindowsQuery(Body):
    """Windows of this fingerprint; or of all, with keys after `after`."""

    fingerprint: Anything = ""
    after: Prefix = ""
    limit: PageSize = 100


class ClearWindows(Body):
    """Ends all windows of this fingerprint."""

    fingerprint: Text
    reason: Reason


class ExpireWindow(ClearWindows):
    """Ends the window of this fingerprint and severity; without a severity, that of the resolved notification."""

    severity: Anything = ""


async def listed(app: AlertsRuntime, after: str, limit: int, prefix: str = _OURS) -> Rows[Window]:
    """Windows of all fingerprints in key order; with the prefix SENDING, only those of firing alerts."""
    page = await app.once.reservations(prefix, after=after, limit=limit)
    return Rows(await _counted(app, page), page[-1].key if len(page) == limit else None)


async def of_fingerprint(app: AlertsRuntime, fingerprint: str) -> list[Window]:
    """Windows of this fingerprint: of all severities, and of the resolved notification."""
    resolved = key_of_resolved(fingerprint)
    infos = await app.once.reservations(prefix_of(fingerprint), limit=_MOST)
    infos += [info for info in await app.once.reservations(resolved, limit=1) if info.key == resolved]
    return await _counted(app, infos)


async def _counted(app: AlertsRuntime, infos: list[ReservationInfo]) -> list[Window]:
    """The windows of these reservations, with what they suppressed in the last 24 hours."""
    found = [window for info in infos if (window := _window(info)) is not None]
    if found:
        counts = await app.history.suppressed_of({each.fingerprint for each in found}, since=time.time() - DAY)
        for window in found:
            window.suppressed_day = counts.get((named(window.fingerprint), named(window.severity)), 0)
            window.full = max(window.left, _full(app, window))
    return found


def _full(app: AlertsRuntime, window: Window) -> float:
    """The full length of such a window by the settings; 0 for a resolved notification."""
    if window.status == RESOLVED:
        return 0.0
    policy = table(app.settings)[window.severity]
    return seconds("window", policy.quiet if window.reason == QUIET else policy.hold, least=0.0, most=MAX_TTL)


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
        ends=time.time() + info.left,
        full=info.left,
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


# -- what operators do


class WindowActs(Handlers):
    """Ends windows."""

    async def expire(self, call: Call[ExpireWindow, None]) -> bool:
        """Ends one window; False if there was none."""
        wanted, app = call.body, self._app
        key = key_of(wanted.fingerprint, wanted.severity)
        expired = await app.once.expire_reservation(key, reason=wanted.reason)
        app.receiver.forget(wanted.fingerprint)
        return expired

    async def to_expire(self, call: Call[Any, Any], wanted: ExpireWindow) -> Affected | None:
        """The window, if there is one."""
        name = wanted.fingerprint
        found = [each for each in await of_fingerprint(self._app, name) if each.severity == wanted.severity]
        return _affected(f"the window of {name!r} {wanted.severity or 'resolved'} ({_states(found)})", found)

    async def clear(self, call: Call[ClearWindows, None]) -> int:
        """Ends all windows of a fingerprint; their number."""
        name, once = call.body.fingerprint, self._app.once
        cleared = await once.clear_reservations(prefix_of(name), reason=call.body.reason)
        cleared += await once.expire_reservation(key_of_resolved(name), reason=call.body.reason)
        self._app.receiver.forget(name)
        return cleared

    async def to_clear(self, call: Call[Any, Any], wanted: ClearWindows) -> Affected | None:
        """The windows, if there are any."""
        found = await of_fingerprint(self._app, wanted.fingerprint)
        count = f"{len(found)} window{'' if len(found) == 1 else 's'}"
        return _affected(f"{count} of {wanted.fingerprint!r} ({_states(found, by_severity=True)})", found)


def _affected(what: str, found: list[Window]) -> Affected | None:
    if not found:
        return None
    suppressed = f"{sum(each.suppressed_day for each in found)} alerts in 24 hours"
    return Affected(what, {"Fingerprint": found[0].fingerprint, "Suppressed": suppressed})


def _states(found: list[Window], by_severity: bool = False) -> str:
    return ", ".join(
        (f"{each.severity or each.status} " if by_severity else "")
        + f"{'quiet' if each.reason == QUIET else 'being sent'} for {span(each.left)}"
        for each in found
    )


def page_of(path: str, fingerprint: str) -> str:
    """The address of a page about this fingerprint."""
    return f"{path}?{urlencode({'fingerprint': fingerprint})}"


def back_to_why(body: Any) -> str:
    """The page that explains the alert."""
    return page_of("/alerts/why", body.fingerprint)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of windows."""
    made = WindowActs(app)

    async def windows(query: WindowsQuery) -> Rows[Window]:
        if query.fingerprint:
            return Rows(await of_fingerprint(app, query.fingerprint))
        return await listed(app, query.after, query.limit)

    return [
        list_route(acts.WINDOWS, windows),
        *act_routes(acts.EXPIRE, made.expire, made.to_expire, back=back_to_why),
        *act_routes(acts.CLEAR, made.clear, made.to_clear, back=back_to_why),
    ]
