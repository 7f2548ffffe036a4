"""PagerDuty's Events API v2: the events of its clients, and the responses that they expect."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import structlog

from .... import InvalidInput
from ....kit import (
    KIB,
    LIMITED,
    LOCAL,
    NOTHING,
    TOO_MANY,
    Answer,
    BodyToken,
    Call,
    JsonResponse,
    Route,
    Scope,
    inlined_schema,
)
from ..acts import ACKNOWLEDGE
from ..api.acknowledgements import Acknowledge, acknowledge
from ..model import FIRING, MAX_FINGERPRINT, RESOLVED, Alert, Labels, fingerprint_of
from ..runtime import AlertsRuntime, Handlers
from .labels import DEFAULT_SEVERITY, LONGEST_TEXT, cut_labels, cut_text, present

log = structlog.get_logger("solely.alerts")

ROUTING_KEY = BodyToken("routing_key", Scope.WRITE)
MAX_BODY = 512 * KIB  # bytes: PagerDuty's own bound
NOT_ACKNOWLEDGED = "Event accepted, and nothing changed: no notification of this alert was sent, or it is resolved"

Words = str | None  # clients send null for a missing field


class Payload(msgspec.Struct, kw_only=True):
    """The problem, and its source."""

    summary: Annotated[str, msgspec.Meta(min_length=1)]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    severity: Literal["critical", "error", "warning", "info"]
    timestamp: Words = None
    component: Words = None
    group: Words = None
    class_: Words = msgspec.field(default=None, name="class")
    custom_details: Any = None


class Link(msgspec.Struct, kw_only=True):
    """A link to show with the alert."""

    href: str
    text: Words = None


class Image(msgspec.Struct, kw_only=True):
    """An image to show with the alert."""

    src: str
    href: Words = None
    alt: Words = None


class PagerDutyEvent(msgspec.Struct, kw_only=True):
    """An event. Other fields are ignored."""

    routing_key: str
    event_action: Literal["trigger", "acknowledge", "resolve"]
    dedup_key: Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT)] | None = None
    payload: Payload | None = None
    client: Words = None
    client_url: Words = None
    links: list[Link] | None = None
    images: list[Image] | None = None


class Accepted(Answer, kw_only=True):
    """The event was accepted; `dedup_key` names the alert in later events."""

    status: Literal["success"] = "success"
    message: str = "Event processed"
    dedup_key: str


class InvalidEvent(Answer, kw_only=True):
    """The event was refused; `errors` says what to change."""

    status: Literal["invalid event"] = "invalid event"
    message: str = "Event object is invalid"
    errors: list[str]


def read(body: dict[str, Any]) -> PagerDutyEvent:
    """Decodes an event; msgspec.ValidationError if it is invalid. Only a trigger needs a valid payload, links and
    images."""
    try:
        return msgspec.convert(body, PagerDutyEvent)
    except msgspec.ValidationError:
        if body.get("event_action") == "trigger":
            raise
        return msgspec.convert(body | {"payload": None, "links": None, "images": None}, PagerDutyEvent)


def parse(event: PagerDutyEvent) -> Alert:
    """The alert that the event triggers or resolves; InvalidInput if a required field is missing."""
    payload, key = event.payload, event.dedup_key
    if event.event_action == "trigger" and payload is None:
        raise InvalidInput("payload is missing: a trigger needs its summary, source and severity")
    if event.event_action != "trigger" and not key:
        raise InvalidInput(f"dedup_key is missing: without one it is unknown what to {event.event_action}")
    status = RESOLVED if event.event_action == "resolve" else FIRING
    if payload is None:
        source = cut_text(event.client or "pagerduty")
        return Alert(name=str(key), severity=DEFAULT_SEVERITY, source=source, fingerprint=str(key), status=status)
    labels = present({"component": payload.component, "group": payload.group, "class": payload.class_})
    repeated = [("summary", payload.summary), ("source", payload.source), *labels.items()]  # by every repeat
    return Alert(
        name=cut_text(payload.summary),
        severity=payload.severity,
        source=cut_text(payload.source),
        fingerprint=key or fingerprint_of(repeated),
        labels=cut_labels(labels),
        annotations=cut_labels(_annotations(payload, event)),
        status=status,
    )


def _annotations(payload: Payload, event: PagerDutyEvent) -> Labels:
    """All other fields. Details come last, since there may be more of them than are kept."""
    summary = payload.summary if len(payload.summary) > LONGEST_TEXT else None
    known = {"summary": summary, "timestamp": payload.timestamp, "client": event.client, "client_url": event.client_url}
    for number, link in enumerate(event.links or (), 1):
        known[f"link_{number}"] = f"{link.text}: {link.href}" if link.text else link.href
    for number, image in enumerate(event.images or (), 1):
        known[f"image_{number}"] = f"{image.alt}: {image.src}" if image.alt else image.src
    details = payload.custom_details
    named = details if isinstance(details, dict) else {} if details is None else {"custom_details": details}
    return present(known) | {name: _text(value) for name, value in named.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# -- the endpoint


class PagerDuty(Handlers):
    """The handler."""

    async def enqueue(self, call: Call[EventBody, None]) -> Accepted | JsonResponse:
        """Accepts the event, or refuses it with PagerDuty's error document."""
        principal = ROUTING_KEY.sender(call) or LOCAL
        self._app.receiver.check_capacity(principal.name)
        try:
            event = read(call.body)
            alert = parse(event)
            if event.event_action == "acknowledge":
                return await self._acknowledge(alert.fingerprint, principal.name, event.client or "")
            if event.payload is None:
                alert = await self._as_it_fired(alert)
            await self._app.receiver.receive(alert)
        except (msgspec.ValidationError, InvalidInput) as error:
            return JsonResponse(400, InvalidEvent(errors=[str(error)]))
        return Accepted(dedup_key=alert.fingerprint)

    async def _acknowledge(self, fingerprint: str, by: str, client: str) -> Accepted:
        """Acknowledges all severities, since an event names none. The client's name is only a comment: the routing key
        identifies the caller."""
        wanted = Acknowledge(fingerprint=fingerprint, comment=cut_text(client))
        async with self._app.service.audit.acting(by, ACKNOWLEDGE.name, fingerprint, wanted.reason) as record:
            if await acknowledge(self._app, wanted, by=by) is not None:
                return Accepted(dedup_key=fingerprint)
            record.outcome = NOTHING
        log.info("alert_acknowledge_ignored", fingerprint=fingerprint, by=by)
        return Accepted(dedup_key=fingerprint, message=NOT_ACKNOWLEDGED)

    async def _as_it_fired(self, resolved: Alert) -> Alert:
        """The resolved alert with the name, severity and labels of its last firing, so that the publishers that sent
        the firing notification want this one too; unchanged if the history has none or is unreachable."""
        last = await self._app.history.last_alert(resolved.fingerprint, "resolved_without_history")
        return resolved if last is None else msgspec.structs.replace(last, status=resolved.status)


# The route accepts any object: the handler refuses invalid ones with PagerDuty's error document.
EventBody = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=inlined_schema(PagerDutyEvent))]


def routes(app: AlertsRuntime) -> list[Route]:
    """The endpoint of events."""
    return [
        Route(
            "POST",
            "/v2/enqueue",
            ROUTING_KEY.auth,
            PagerDuty(app).enqueue,
            "Receive an event as PagerDuty's Events API v2 does",
            status=202,
            others={400: InvalidEvent},
            refusals=(TOO_MANY, LIMITED),
            cap=MAX_BODY,
            grants=True,
            again="Safe: suppressed as long as the first one's window lasts.",
        )
    ]
