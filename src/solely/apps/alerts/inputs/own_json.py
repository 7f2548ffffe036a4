"""Our own JSON, POST /api/alerts: an alert comes in, and its sender is told what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import structlog

from ....service.problems import LIMITED, TOO_MANY
from ....service.routes import WRITE, Body, Call, Route
from ..model import FIRING, MAX_GROUP, Alert, Outcome, Status, Text, fingerprint_of
from ..settings import AlertsSettings

if TYPE_CHECKING:
    from ..app import App

log = structlog.get_logger("solely.alerts")

_MOST_LABELS = 64  # as many as people can read; Prometheus has a dozen
_LONGEST = 8_192  # characters of a label's or annotation's value: a paragraph, or a query

LabelName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
LabelValue = Annotated[str, msgspec.Meta(max_length=_LONGEST)]
GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_GROUP)]
LabelSet = Annotated[dict[LabelName, LabelValue], msgspec.Meta(max_length=_MOST_LABELS)]


class Intake(Body):
    """An alert as it comes in. With a `fingerprint` it is the same as all that have it; without one, as all whose
    fields of the settings (fingerprint_fields) are equal. It is told together with those of its `group`; without one,
    with those whose fields of the settings (group_by) are equal."""

    name: Text
    severity: Text
    source: Text
    fingerprint: Text | None = None
    labels: LabelSet = msgspec.field(default_factory=dict)
    annotations: LabelSet = msgspec.field(default_factory=dict)
    status: Status = FIRING
    group: GroupName | None = None


def alert_of(intake: Intake, settings: AlertsSettings) -> Alert:
    """The alert; a field that its fingerprint is made of and that is missing counts as empty, and the log says so."""
    fingerprint = intake.fingerprint
    if fingerprint is None:
        fingerprint = fingerprint_of(_fields(intake, settings.fingerprint_fields))
    return Alert(
        name=intake.name,
        severity=intake.severity,
        source=intake.source,
        fingerprint=fingerprint,
        labels=intake.labels,
        annotations=intake.annotations,
        status=intake.status,
        group=intake.group or "",
    )


def _fields(intake: Intake, wanted: tuple[str, ...]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    plain = {"name": intake.name, "source": intake.source, "severity": intake.severity}
    for field in wanted:
        kind, _, name = field.partition(".")
        if field == "labels":
            found += [(f"labels.{label}", value) for label, value in intake.labels.items()]
            continue
        value = (intake.labels if kind == "labels" else intake.annotations).get(name) if name else plain[field]
        if value is None:
            log.warning("fingerprint_field_missing", field=field, name=intake.name, source=intake.source)
        found.append((field, value or ""))
    return found


class _OwnJson:
    """The handler."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def receive(self, call: Call[Intake, None]) -> Outcome:
        """Decides on one alert."""
        receiver = self._app.receiver
        receiver.check_capacity(call.principal.name)
        return await receiver.receive(alert_of(call.body, self._app.settings))


def routes(app: App) -> list[Route]:
    """The endpoint."""
    return [
        Route(
            "POST",
            "/api/alerts",
            WRITE,
            _OwnJson(app).receive,
            "Send an alert: it is told once per window, suppressed, or durably queued",
            refusals=(LIMITED, TOO_MANY),
            grants=True,
            again="Safe: suppressed as long as the first one's window lasts.",
        )
    ]
