"""Acknowledgements over HTTP.

Unlike a silence, an acknowledgement needs an open alert and ends when that resolves: so the scope that sends alerts
(WRITE) suffices.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import structlog

from ....errors import DataError
from ....rules import duration, ttl_seconds
from ....service.problems import UNKNOWN, Problem
from ....service.routes import READ, WRITE, Answer, Body, Call, PageSize, Route, Ttl
from ..model import MAX_FINGERPRINT, Text, bare_alert
from ..runtime import AlertsRuntime, Handlers
from ..suppression.acknowledgements import Acknowledgement
from .silences import Duration

log = structlog.get_logger("solely.alerts")

MAX_COMMENT = 500  # characters: a sentence or two, as long as a reason
Comment = Annotated[str, msgspec.Meta(max_length=MAX_COMMENT, description="for people who look")]
Severity = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="all severities if empty")]


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


class Unacknowledged(Answer):
    """The acknowledgement was removed."""

    unacknowledged: bool


class AcknowledgedQuery(Body):
    """The size of the page."""

    limit: PageSize = 100


class ListedAcknowledgements(Answer):
    """Acknowledgements in effect, the newest first."""

    acknowledged: list[Acknowledgement]


async def acknowledge(app: AlertsRuntime, wanted: Acknowledge, *, by: str) -> Acknowledgement | None:
    """The acknowledgement, which applies in all workers at once; None if the alert is not open."""
    lasts, fingerprint, severity = wanted.seconds(), wanted.fingerprint, wanted.severity
    if not await _is_open(app, fingerprint):
        return None
    made = await app.parts.acknowledgements.add(
        fingerprint,
        severity=severity,
        lasts=app.settings.ack_for if lasts is None else lasts,
        by=by,
        comment=wanted.comment,
    )
    app.receiver.forget(fingerprint)
    log.info("alert_acknowledged", fingerprint=fingerprint, severity=severity, by=by)
    return made


async def unacknowledge(app: AlertsRuntime, fingerprint: str, *, by: str) -> bool:
    """Removes the acknowledgement; False if there was none."""
    removed = await app.parts.acknowledgements.remove(fingerprint)
    app.receiver.forget(fingerprint)
    if removed:
        log.info("alert_unacknowledged", fingerprint=fingerprint, by=by)
    return removed


async def _is_open(app: AlertsRuntime, fingerprint: str) -> bool:
    """True if the alert is open, alone or in the group that the history has for it."""
    if await app.parts.open_alerts.is_open(bare_alert(fingerprint)):
        return True
    try:
        await app.history.flush()
        last = (await app.history.samples(fingerprint))[:1]
    except DataError as error:
        log.warning("acknowledged_without_history", fingerprint=fingerprint, error=str(error))
        return False
    return bool(last and last[0].group) and await app.parts.open_alerts.is_open(last[0])


class Acknowledging(Handlers):
    """The handlers."""

    async def acknowledge(self, call: Call[Acknowledge, None]) -> Acknowledgement:
        """Acknowledges an alert."""
        made = await acknowledge(self._app, call.body, by=call.principal.name)
        if made is None:
            name = call.body.fingerprint
            raise Problem(UNKNOWN, f"{name!r} is not open: no notification was sent, or it is resolved.")
        return made

    async def undo(self, call: Call[Unacknowledge, None]) -> Unacknowledged:
        """Removes an acknowledgement."""
        if not await unacknowledge(self._app, call.body.fingerprint, by=call.principal.name):
            raise Problem(UNKNOWN, f"{call.body.fingerprint!r} is not acknowledged: the alert may be resolved.")
        return Unacknowledged(unacknowledged=True)

    async def listed(self, call: Call[None, AcknowledgedQuery]) -> ListedAcknowledgements:
        """Lists acknowledgements."""
        return ListedAcknowledgements(acknowledged=await self._app.parts.acknowledgements.list(call.query.limit))


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes below /api/alerts/."""
    acknowledging = Acknowledging(app)
    return [
        Route(
            "POST",
            "/api/alerts/acknowledge",
            WRITE,
            acknowledging.acknowledge,
            "Acknowledge an alert, which then sends no further notifications until it resolves",
            refusals=(UNKNOWN,),
            again="Takes the place of the first one.",
        ),
        Route(
            "POST",
            "/api/alerts/unacknowledge",
            WRITE,
            acknowledging.undo,
            "Remove an acknowledgement",
            refusals=(UNKNOWN,),
            again="Refused: there is none.",
        ),
        Route("GET", "/api/alerts/acknowledged", READ, acknowledging.listed, "List acknowledgements, the newest first"),
    ]
