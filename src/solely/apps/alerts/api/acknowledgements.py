"""Acknowledging over HTTP: somebody is at it, and need not be told again.

Unlike a silence, it is only for what people were told of, and ends by itself when that is over: so who may send alerts
(WRITE) may acknowledge them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import structlog

from ....errors import DataError
from ....service.problems import UNKNOWN, Problem
from ....service.routes import READ, WRITE, Answer, Body, Call, PageSize, Route, Ttl
from ..model import MAX_FINGERPRINT, Alert, Text
from ..suppression.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from ..app import App

log = structlog.get_logger("solely.alerts")

MAX_COMMENT = 500  # characters: a sentence or two, as long as a reason
Comment = Annotated[str, msgspec.Meta(max_length=MAX_COMMENT, description="what for, for people who look")]
Severity = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="of all severities if it is empty")]


class Acknowledge(Body):
    """Alerts of this fingerprint, or of the group `group:<name>`, are not told again for so many seconds (`ack_for` of
    the settings if it is left out), or until it is over. With a severity, those of others are. Who acknowledges is who
    asks: a comment can say more."""

    fingerprint: Text
    severity: Severity = ""
    lasts: Ttl | None = msgspec.field(default=None, name="for")
    comment: Comment = ""


class Unacknowledge(Body):
    """Alerts of this fingerprint are told again."""

    fingerprint: Text


class Unacknowledged(Answer):
    """It is no longer acknowledged."""

    unacknowledged: bool


class AcknowledgedQuery(Body):
    """How many at most."""

    limit: PageSize = 100


class ListedAcknowledgements(Answer):
    """The newest first."""

    acknowledged: list[Acknowledgement]


async def acknowledge(
    app: App, fingerprint: str, *, by: str, severity: str = "", lasts: float | None = None, comment: str = ""
) -> Acknowledgement | None:
    """The acknowledgement, which holds for all workers from now on; None if people were not told of it, or that it is
    over: then there is nothing to acknowledge."""
    if not await _is_open(app, fingerprint):
        return None
    made = await app.parts.acknowledgements.add(
        fingerprint, severity=severity, lasts=app.settings.ack_for if lasts is None else lasts, by=by, comment=comment
    )
    app.receiver.forget(fingerprint)
    log.info("alert_acknowledged", fingerprint=fingerprint, severity=severity, by=by)
    return made


async def unacknowledge(app: App, fingerprint: str, *, by: str) -> bool:
    """Takes it back; False if there was none."""
    removed = await app.parts.acknowledgements.remove(fingerprint)
    app.receiver.forget(fingerprint)
    if removed:
        log.info("alert_unacknowledged", fingerprint=fingerprint, by=by)
    return removed


async def _is_open(app: App, fingerprint: str) -> bool:
    """True if people were told of it, alone or in its group, as far as the history knows that."""
    alone = Alert(name="", severity="", source="", fingerprint=fingerprint)
    if await app.parts.openings.is_open(alone):
        return True
    try:
        await app.history.flush()
        last = (await app.history.samples(fingerprint))[:1]
    except DataError as error:
        log.warning("acknowledged_without_history", fingerprint=fingerprint, error=str(error))
        return False
    return bool(last and last[0].group) and await app.parts.openings.is_open(last[0])


class Acknowledging:
    """The handlers, of one worker's application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def acknowledge(self, call: Call[Acknowledge, None]) -> Acknowledgement:
        """Nobody is told again."""
        asked = call.body
        made = await acknowledge(
            self._app,
            asked.fingerprint,
            by=call.principal.name,
            severity=asked.severity,
            lasts=asked.lasts,
            comment=asked.comment,
        )
        if made is None:
            raise Problem(UNKNOWN, f"{asked.fingerprint!r} is nothing that people were told of, or it is over.")
        return made

    async def undo(self, call: Call[Unacknowledge, None]) -> Unacknowledged:
        """People are told again."""
        if not await unacknowledge(self._app, call.body.fingerprint, by=call.principal.name):
            raise Problem(UNKNOWN, f"{call.body.fingerprint!r} is not acknowledged: it may be over.")
        return Unacknowledged(unacknowledged=True)

    async def listed(self, call: Call[None, AcknowledgedQuery]) -> ListedAcknowledgements:
        """What is acknowledged."""
        return ListedAcknowledgements(acknowledged=await self._app.parts.acknowledgements.list(call.query.limit))


def routes(app: App) -> list[Route]:
    """All of them."""
    acknowledging = Acknowledging(app)
    return [
        Route(
            "POST",
            "/api/alerts/acknowledge",
            WRITE,
            acknowledging.acknowledge,
            "Acknowledge an alert, so that people are not told again until it is over",
            body=Acknowledge,
            answer=Acknowledgement,
            refusals=(UNKNOWN,),
            again="Takes the place of the first one.",
        ),
        Route(
            "POST",
            "/api/alerts/unacknowledge",
            WRITE,
            acknowledging.undo,
            "Take an acknowledgement back",
            body=Unacknowledge,
            answer=Unacknowledged,
            refusals=(UNKNOWN,),
            again="Refused: there is none.",
        ),
        Route(
            "GET",
            "/api/alerts/acknowledged",
            READ,
            acknowledging.listed,
            "List what is acknowledged, the newest first",
            query=AcknowledgedQuery,
            answer=ListedAcknowledgements,
        ),
    ]
