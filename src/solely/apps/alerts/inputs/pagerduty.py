"""PagerDuty's Events API v2: what its clients send, and the answers that they understand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import structlog

from ....errors import DataError, InvalidInput
from ....service.problems import LIMITED, TOO_MANY
from ....service.routes import KIB, Answer, Call, Reply, Route, Webhook
from ....service.security import LOCAL, Principal, Scope
from ..api.acknowledgements import acknowledge
from ..model import FIRING, MAX_FINGERPRINT, RESOLVED, Alert, Labels, fingerprint_of
from . import bounds

if TYPE_CHECKING:
    from ..app import App

log = structlog.get_logger("solely.alerts")

MAX_BODY = 512 * KIB  # bytes: the most that PagerDuty itself takes
UNSAID = "none"  # the severity of what is resolved without a payload
NOT_ACKNOWLEDGED = "Event accepted, and nothing changed: people were not told of this alert, or it is over"

Words = str | None  # clients send null for what they leave out


class Payload(msgspec.Struct, kw_only=True):
    """What happened, and where."""

    summary: Annotated[str, msgspec.Meta(min_length=1)]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    severity: Literal["critical", "error", "warning", "info"]
    timestamp: Words = None
    component: Words = None
    group: Words = None
    class_: Words = msgspec.field(default=None, name="class")
    custom_details: Any = None


class Link(msgspec.Struct, kw_only=True):
    """Something to look at."""

    href: str
    text: Words = None


class Image(msgspec.Struct, kw_only=True):
    """Something to see."""

    src: str
    href: Words = None
    alt: Words = None


class Event(msgspec.Struct, kw_only=True):
    """An event. Fields that are not known may be there."""

    routing_key: str
    event_action: Literal["trigger", "acknowledge", "resolve"]
    dedup_key: Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT)] | None = None
    payload: Payload | None = None
    client: Words = None
    client_url: Words = None
    links: list[Link] | None = None
    images: list[Image] | None = None


class Keyed(msgspec.Struct):
    """Only what is needed to know who sent it."""

    routing_key: str = ""


class Accepted(Answer, kw_only=True):
    """The event was taken; `dedup_key` names the alert in later events."""

    status: Literal["success"] = "success"
    message: str = "Event processed"
    dedup_key: str


class InvalidEvent(Answer, kw_only=True):
    """Nothing was done; `errors` says what to change."""

    status: Literal["invalid event"] = "invalid event"
    message: str = "Event object is invalid"
    errors: list[str]


def read(body: dict[str, Any]) -> Event:
    """The event; msgspec.ValidationError if it is none. Only a trigger needs what else is said to be right."""
    try:
        return msgspec.convert(body, Event)
    except msgspec.ValidationError:
        if body.get("event_action") == "trigger":
            raise
        return msgspec.convert(body | {"payload": None, "links": None, "images": None}, Event)


def parse(event: Event) -> Alert:
    """The alert that the event triggers or resolves; InvalidInput if it says too little."""
    payload, key = event.payload, event.dedup_key
    if event.event_action == "trigger" and payload is None:
        raise InvalidInput("payload is missing: a trigger needs its summary, source and severity")
    if event.event_action != "trigger" and not key:
        raise InvalidInput(f"dedup_key is missing: without one it is unknown what to {event.event_action}")
    status = RESOLVED if event.event_action == "resolve" else FIRING
    if payload is None:
        source = bounds.text(event.client or "pagerduty")
        return Alert(name=str(key), severity=UNSAID, source=source, fingerprint=str(key), status=status)
    labels = _given({"component": payload.component, "group": payload.group, "class": payload.class_})
    return Alert(
        name=bounds.text(payload.summary),
        severity=payload.severity,
        source=bounds.text(payload.source),
        fingerprint=key or _made(payload, labels),
        labels=bounds.labels(labels),
        annotations=bounds.labels(_annotations(payload, event)),
        status=status,
    )


def _made(payload: Payload, labels: Labels) -> str:
    """The fingerprint of an event without a dedup_key: the same for the same problem, whenever it is sent again."""
    return fingerprint_of([("summary", payload.summary), ("source", payload.source), *labels.items()])


def _annotations(payload: Payload, event: Event) -> Labels:
    """All else that was said. Details come last, since there may be more of them than are kept."""
    long = len(payload.summary) > bounds.LONGEST_TEXT
    annotations = _given(
        {
            "summary": payload.summary if long else None,
            "timestamp": payload.timestamp,
            "client": event.client,
            "client_url": event.client_url,
        }
    )
    for number, link in enumerate(event.links or (), 1):
        annotations[f"link_{number}"] = _beside(link.text, link.href)
    for number, image in enumerate(event.images or (), 1):
        annotations[f"image_{number}"] = _beside(image.alt, image.src)
    details = payload.custom_details
    named = details if isinstance(details, dict) else {} if details is None else {"custom_details": details}
    return annotations | {name: _text(value) for name, value in named.items()}


def _given(facts: dict[str, str | None]) -> Labels:
    return {name: fact for name, fact in facts.items() if fact}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _beside(text: str | None, address: str) -> str:
    return f"{text}: {address}" if text else address


# -- who sends


_keyed = msgspec.json.Decoder(Keyed).decode


def _whose(call: Call[Any, Any]) -> Principal | None:
    """Whose token the routing_key is; None if nobody's. Where there are no tokens, everybody on this machine may."""
    tokens = call.service.tokens
    if not tokens:
        return LOCAL
    try:
        return tokens.whose(_keyed(call.raw).routing_key.encode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _may_send(call: Call[Any, Any]) -> bool:
    principal = _whose(call)
    return principal is not None and principal.scope >= Scope.WRITE


# -- the endpoint


class PagerDuty:
    """The handler."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def enqueue(self, call: Call[dict[str, Any], None]) -> Accepted | Reply:
        """Takes the event; says what is wrong with it as PagerDuty does."""
        principal = _whose(call) or LOCAL
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
            return Reply(400, InvalidEvent(errors=[str(error)]))
        return Accepted(dedup_key=alert.fingerprint)

    async def _acknowledge(self, fingerprint: str, by: str, client: str) -> Accepted:
        """PagerDuty's clients name no severity: it is acknowledged for all of them. What they call themselves is no
        more than a comment: who they are, the routing key says."""
        if await acknowledge(self._app, fingerprint, by=by, comment=bounds.text(client)) is not None:
            return Accepted(dedup_key=fingerprint)
        log.info("alert_acknowledged_in_vain", fingerprint=fingerprint, by=by)
        return Accepted(dedup_key=fingerprint, message=NOT_ACKNOWLEDGED)

    async def _as_it_fired(self, over: Alert) -> Alert:
        """What is over, with the name, severity and labels under which it last came, so that the publishers that told
        of it want this too; with none of them if the history does not know, or does not answer."""
        history = self._app.history
        try:
            await history.flush()
            last = await history.samples(over.fingerprint)
        except DataError as error:
            log.warning("resolved_without_history", fingerprint=over.fingerprint, error=str(error))
            return over
        return msgspec.structs.replace(last[0], status=over.status) if last else over


def _inlined(schema: Any, named: dict[str, Any]) -> Any:
    """The schema without references, since it stands inside of another."""
    if isinstance(schema, list):
        return [_inlined(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(named[schema["$ref"].rpartition("/")[2]], named)
    return {name: _inlined(each, named) for name, each in schema.items()}


def _documented() -> dict[str, Any]:
    schema = msgspec.json.schema(Event)
    told: dict[str, Any] = _inlined({"$ref": schema["$ref"]}, schema["$defs"])
    return told


# Any object is let through to the handler, which says what is wrong with it in PagerDuty's own words.
EventBody = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=_documented())]


def routes(app: App) -> list[Route]:
    """The endpoint of the events."""
    return [
        Route(
            "POST",
            "/v2/enqueue",
            Webhook(_may_send, "a routing_key in the body that is a token with the scope write"),
            PagerDuty(app).enqueue,
            "Receive an event as PagerDuty's Events API v2 does",
            body=EventBody,
            answer=Accepted,
            status=202,
            others={400: InvalidEvent},
            refusals=(TOO_MANY, LIMITED),
            cap=MAX_BODY,
            grants=True,
            again="Safe: what was told is suppressed while its window lasts.",
        )
    ]
