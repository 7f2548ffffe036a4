"""Acknowledgements over HTTP and on the pages.

Unlike a silence, an acknowledgement needs an open alert and ends when that resolves: so the scope that sends alerts
(WRITE) suffices.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import structlog

from .... import DataError
from ....kit import Affected, Body, Call, PageSize, Route, Ttl, act_routes, at, duration, list_route, ttl_seconds
from .. import acts
from ..model import MAX_FINGERPRINT, Text, bare_alert
from ..runtime import AlertsRuntime, Handlers
from ..suppression.acknowledgements import Acknowledgement
from .silences import Duration
from .windows import back_to_why, of_fingerprint, page_of

log = structlog.get_logger("solely.alerts")

MAX_COMMENT = 500  # characters: a sentence or two, as long as a reason
Comment = Annotated[str, msgspec.Meta(max_length=MAX_COMMENT, description="for people who look")]
Severity = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="all severities if empty")]
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


class Acknowledge(Body):
    """Suppresses alerts of this fingerprint, or of the group `group:<name>`, `for` this long (default: the setting
    `ack_for`) or until the alert resolves. With a severity, alerts of other severities are still sent. The caller is
    recorded as the one who acknowledged."""

    fingerprint: Text
    severity: Severity = ""
    lasts: Ttl | Duration | None = msgspec.field(default=None, name="for")
    comment: Comment = ""

    def seconds(self) -> float | None:
        """How long it lasts; None for the default. InvalidInput if the duration is invalid."""
        if self.lasts is None:
            return None
        return ttl_seconds(duration(self.lasts) if isinstance(self.lasts, str) else self.lasts, "for")


class Unacknowledge(Body):
    """Removes the acknowledgement of this fingerprint."""

    fingerprint: Text


class AcknowledgedQuery(Body):
    """The size of the page."""

    limit: PageSize = 100


async def acknowledge(app: AlertsRuntime, wanted: Acknowledge, *, by: str) -> Acknowledgement | None:
    """The acknowledgement, which applies in all workers at once; None if the alert is not open."""
    lasts, fingerprint, severity = wanted.seconds(), wanted.fingerprint, wanted.severity
    if not await is_open(app, fingerprint):
        return None
    made = await app.acknowledgements.add(
        fingerprint,
        severity=severity,
        lasts=app.settings.ack_for if lasts is None else lasts,
        by=by,
        comment=wanted.comment,
    )
    app.receiver.forget(fingerprint)
    log.info("alert_acknowledged", fingerprint=fingerprint, severity=severity, by=by)
    return made


async def is_open(app: AlertsRuntime, fingerprint: str) -> bool:
    """True if the alert is open, alone or in the group that the history has for it."""
    if await app.open_alerts.is_open(bare_alert(fingerprint)):
        return True
    try:
        await app.history.flush()
        last = (await app.history.samples(fingerprint))[:1]
    except DataError as error:
        log.warning("acknowledged_without_history", fingerprint=fingerprint, error=str(error))
        return False
    return bool(last and last[0].group) and await app.open_alerts.is_open(last[0])


class Acknowledging(Handlers):
    """Acknowledges alerts."""

    async def acknowledge(self, call: Call[Acknowledge, None]) -> Acknowledgement | None:
        """Acknowledges an alert."""
        return await acknowledge(self._app, call.body, by=call.principal.name)

    async def to_acknowledge(self, call: Call[Any, Any], wanted: Acknowledge) -> Affected | None:
        """The alert, if it is open, and who has acknowledged it."""
        name, app = wanted.fingerprint, self._app
        if not await is_open(app, name):
            return None
        made = await app.acknowledgements.of_fingerprint(name)
        found = await of_fingerprint(app, name)
        return Affected(
            f"{name!r}",
            {"Fingerprint": name} | ({} if made is None else {"Acknowledged": _described(made)}),
            {"for": _as_text(app.settings.ack_for)},
            {"severity": sorted({window.severity for window in found if window.severity})},
            {} if made is None else {"Remove the acknowledgement…": page_of(acts.UNACKNOWLEDGE.page, name)},
        )

    async def undo(self, call: Call[Unacknowledge, None]) -> bool | None:
        """Removes an acknowledgement."""
        name = call.body.fingerprint
        removed = await self._app.acknowledgements.remove(name)
        self._app.receiver.forget(name)
        if removed:
            log.info("alert_unacknowledged", fingerprint=name, by=call.principal.name)
        return removed or None

    async def to_undo(self, call: Call[Any, Any], wanted: Unacknowledge) -> Affected | None:
        """The acknowledgement, if there is one."""
        made = await self._app.acknowledgements.of_fingerprint(wanted.fingerprint)
        facts = {"Fingerprint": wanted.fingerprint}
        what = f"the acknowledgement of {wanted.fingerprint!r}"
        return None if made is None else Affected(what, facts | {"Acknowledged": _described(made)})


def _described(made: Acknowledgement) -> str:
    return f"by {made.made_by}, until {at(made.ends)}" + (f": {made.comment}" if made.comment else "")


def _as_text(seconds: float) -> str:
    """The duration as text, such as 2h."""
    size, unit = next((each for each in _UNITS if seconds % each[0] == 0), (1, "s"))
    return f"{seconds / size:g}{unit}"


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of acknowledgements."""
    made = Acknowledging(app)

    async def listed(query: AcknowledgedQuery) -> list[Acknowledgement]:
        return await app.acknowledgements.list(query.limit)

    checks = {"for": lambda text: ttl_seconds(duration(text), "for")}
    return [
        *act_routes(acts.ACKNOWLEDGE, made.acknowledge, made.to_acknowledge, back=back_to_why, checks=checks),
        *act_routes(acts.UNACKNOWLEDGE, made.undo, made.to_undo, back=back_to_why),
        list_route(acts.ACKNOWLEDGED, listed),
    ]
