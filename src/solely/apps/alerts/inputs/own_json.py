"""Our own JSON, POST /api/alerts: one alert per request, answered with its outcome."""

from __future__ import annotations

from typing import Annotated

import msgspec
import structlog

from ....kit import LIMITED, TOO_MANY, WRITE, Body, Call, Route
from ..model import FIRING, MAX_GROUP, Alert, AlertOutcome, Status, Text, field_of, fingerprint_of
from ..runtime import AlertsRuntime
from ..settings import AlertsSettings
from .labels import LONGEST_TEXT, LONGEST_VALUE, MOST_LABELS

log = structlog.get_logger("solely.alerts")

LabelName = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)]
LabelValue = Annotated[str, msgspec.Meta(max_length=LONGEST_VALUE)]
GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_GROUP)]
LabelSet = Annotated[dict[LabelName, LabelValue], msgspec.Meta(max_length=MOST_LABELS)]


class Intake(Body):
    """An alert from a sender. Alerts with the same `fingerprint` are the same alert; without one it is a digest of the
    fields that the settings name (fingerprint_fields). Alerts with the same `group` share a notification; without one
    the settings (group_by) define it."""

    name: Text
    severity: Text
    source: Text
    fingerprint: Text | None = None
    labels: LabelSet = msgspec.field(default_factory=dict)
    annotations: LabelSet = msgspec.field(default_factory=dict)
    status: Status = FIRING
    group: GroupName | None = None


def alert_of(intake: Intake, settings: AlertsSettings) -> Alert:
    """The alert. A missing field of the fingerprint counts as empty, and is logged."""
    given = {name: value for name, value in msgspec.structs.asdict(intake).items() if value is not None}
    alert = Alert(**{"fingerprint": "", **given})
    if alert.fingerprint:
        return alert
    fields = [pair for field in settings.fingerprint_fields for pair in _pairs(alert, field)]
    return msgspec.structs.replace(alert, fingerprint=fingerprint_of(fields))


def _pairs(alert: Alert, field: str) -> list[tuple[str, str]]:
    """What this field adds to the fingerprint: `labels` adds all labels."""
    if field == "labels":
        return [(f"labels.{label}", value) for label, value in alert.labels.items()]
    value = field_of(alert, field)
    if value is None:
        log.warning("fingerprint_field_missing", field=field, name=alert.name, source=alert.source)
    return [(field, value or "")]


def routes(app: AlertsRuntime) -> list[Route]:
    """The endpoint."""

    async def receive(call: Call[Intake, None]) -> AlertOutcome:
        app.receiver.check_capacity(call.principal.name)
        return await app.receiver.receive(alert_of(call.body, app.settings))

    return [
        Route(
            "POST",
            "/api/alerts",
            WRITE,
            receive,
            "Send an alert: it is published once per window, suppressed, or durably queued",
            refusals=(LIMITED, TOO_MANY),
            grants=True,
            again="Safe: suppressed as long as the first one's window lasts.",
        )
    ]
