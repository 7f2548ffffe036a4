"""Acknowledgements over HTTP and on the pages.

Unlike a silence, an acknowledgement needs an open alert and ends when that resolves: so the scope that sends alerts
(WRITE) suffices.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
import structlog

from ....kit import Affected, AnyDuration, Body, Call, Route, act_routes, at, duration_of, duration_text, ttl_seconds
from .. import acts
from ..model import MAX_FINGERPRINT, Text, bare_alert
from ..runtime import AlertsRuntime, Handlers
from ..suppression.acknowledgements import Acknowledgement
from .windows import of_fingerprint

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
    lasts: AnyDuration | None = msgspec.field(default=None, name="for")
    comment: Comment = ""

    @property
    def reason(self) -> str:
        """For the audit log."""
        return self.comment


class Unacknowledge(Body):
    """Removes the acknowledgement of this fingerprint."""

    fingerprint: Text


async def acknowledge(app: AlertsRuntime, wanted: Acknowledge, *, by: str) -> Acknowledgement | None:
    """The acknowledgement, which applies in all workers at once; None if the alert is not open. InvalidInput if the
    duration is invalid."""
    lasts = app.settings.ack_for if wanted.lasts is None else ttl_seconds(duration_of(wanted.lasts), "for")
    fingerprint, severity = wanted.fingerprint, wanted.severity
    if not await is_open(app, fingerprint):
        return None
    made = await app.acknowledgements.add(fingerprint, severity=severity, lasts=lasts, by=by, comment=wanted.comment)
    app.receiver.forget(fingerprint)
    log.info("alert_acknowledged", fingerprint=fingerprint, severity=severity, by=by)
    return made


async def is_open(app: AlertsRuntime, fingerprint: str) -> bool:
    """True if the alert is open, alone or in the group that the history has for it."""
    if await app.open_alerts.is_open(bare_alert(fingerprint)):
        return True
    last = await app.history.last_alert(fingerprint, "acknowledged_without_history")
    return last is not None and bool(last.group) and await app.open_alerts.is_open(last)


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
        severities = {window.severity for window in await of_fingerprint(app, name)} - {""}
        made = await self.to_undo(call, Unacknowledge(fingerprint=name))
        address = f"{acts.UNACKNOWLEDGE.page}?{urlencode({'fingerprint': name})}"
        return Affected(
            f"{name!r}",
            {"Fingerprint": name} if made is None else made.facts,
            {"for": duration_text(app.settings.ack_for)},
            {"severity": sorted(severities)},
            {} if made is None else {"Remove the acknowledgement…": address},
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
        name = wanted.fingerprint
        made = await self._app.acknowledgements.of_fingerprint(name)
        if made is None:
            return None
        described = f"by {made.made_by}, until {at(made.ends)}" + (f": {made.comment}" if made.comment else "")
        return Affected(f"the acknowledgement of {name!r}", {"Fingerprint": name, "Acknowledged": described})


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of acknowledgements."""
    made = Acknowledging(app)
    return [
        *act_routes(acts.ACKNOWLEDGE, made.acknowledge, made.to_acknowledge),
        *act_routes(acts.UNACKNOWLEDGE, made.undo, made.to_undo),
    ]
