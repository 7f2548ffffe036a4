"""What Alertmanager sends (its webhook, version 4) and what is sent to it (its API, version 2).

Both senders repeat after a 5xx at best, and never after a 4xx: Alertmanager drops what was answered 429. So whatever
may be decided by a repeat is answered 503; those that were decided are suppressed in the repeat, or adopted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import structlog

from ....errors import InvalidInput, SolelyError
from ....service.problems import AWAY, INVALID, TOO_MANY, Problem, problem_of
from ....service.routes import KIB, WRITE, Answer, Call, Route
from ..model import FIRING, MAX_FINGERPRINT, RESOLVED, Alert, Labels, Outcome, Status
from .labels import labelled_alert

if TYPE_CHECKING:
    from ..app import App

log = structlog.get_logger("solely.alerts")

MAX_ALERTS = 1000  # in one request: what a worker decides within the seconds that senders wait
MAX_BODY = 1024 * KIB  # bytes: about 1 KiB for each of them
OVERLOADED = TOO_MANY._replace(status=503)  # as these senders understand it


class GroupedAlert(msgspec.Struct, kw_only=True):
    """An alert of a group. Fields that are not read here may be there."""

    labels: Labels | None = None
    annotations: Labels | None = None
    status: Status = FIRING
    starts_at: str = msgspec.field(default="", name="startsAt")
    generator_url: str = msgspec.field(default="", name="generatorURL")
    fingerprint: Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT)] = ""


class Group(msgspec.Struct, kw_only=True):
    """A group of alerts, as the webhook tells it. Fields that are not read here may be there."""

    alerts: Annotated[list[GroupedAlert], msgspec.Meta(max_length=MAX_ALERTS)]
    external_url: str = msgspec.field(default="", name="externalURL")
    group_key: str = msgspec.field(default="", name="groupKey")
    truncated_alerts: int = msgspec.field(default=0, name="truncatedAlerts")


class PostedAlert(msgspec.Struct, kw_only=True):
    """An alert as Prometheus posts it. Fields that are not read here may be there."""

    labels: Annotated[Labels, msgspec.Meta(min_length=1)]
    annotations: Labels | None = None
    starts_at: str = msgspec.field(default="", name="startsAt")
    ends_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = msgspec.field(default=None, name="endsAt")
    generator_url: str = msgspec.field(default="", name="generatorURL")


PostedAlerts = Annotated[list[PostedAlert], msgspec.Meta(max_length=MAX_ALERTS)]


class ReceivedAlerts(Answer):
    """What became of each alert, in the order in which they came."""

    alerts: list[Outcome]


def parse_group(group: Group) -> list[Alert]:
    """The alerts of a group; their source is the Alertmanager that sent it."""
    source = group.external_url or "alertmanager"
    return [
        labelled_alert(
            each.labels or {},
            each.annotations or {},
            source=source,
            fingerprint=each.fingerprint,
            status=each.status,
            starts_at=each.starts_at,
            generator_url=each.generator_url,
        )
        for each in group.alerts
    ]


def parse_posted(posted: Sequence[PostedAlert], now: datetime) -> list[Alert]:
    """The alerts that were posted; their source is the Prometheus that they lead to. One that has ended is resolved."""
    return [
        labelled_alert(
            each.labels,
            each.annotations or {},
            source=_origin(each.generator_url) or "prometheus",
            status=RESOLVED if _has_ended(each.ends_at, now) else FIRING,
            starts_at=each.starts_at,
            generator_url=each.generator_url,
        )
        for each in posted
    ]


def _has_ended(ends_at: datetime | None, now: datetime) -> bool:
    """True if the end is past; the year 1 is how Go writes that none was given."""
    return ends_at is not None and ends_at.year > 1 and ends_at <= now


def _origin(url: str) -> str:
    """The URL without its path, which differs from alert to alert; "" if it has no host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


class Alertmanager:
    """The handlers of both endpoints."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def webhook(self, call: Call[Group, None]) -> ReceivedAlerts:
        """Decides the alerts of a group."""
        group = call.body
        if group.truncated_alerts:
            log.warning("alerts_truncated_by_sender", missing=group.truncated_alerts, group=group.group_key)
        return await self._decide(call.principal.name, parse_group(group))

    async def post(self, call: Call[list[PostedAlert], None]) -> ReceivedAlerts:
        """Decides the alerts that were posted."""
        return await self._decide(call.principal.name, parse_posted(call.body, datetime.now(UTC)))

    async def _decide(self, principal: str, alerts: list[Alert]) -> ReceivedAlerts:
        receiver = self._app.receiver
        try:
            receiver.check_capacity(principal)
        except Problem as refusal:
            raise _to_be_repeated(refusal, str(refusal)) from None
        return ReceivedAlerts(alerts=_all_decided(await receiver.receive_all(alerts)))


def _all_decided(told: Sequence[Outcome | SolelyError]) -> list[Outcome]:
    """What became of all alerts; a Problem if one of them can be decided by a repeat only, or cannot be at all."""
    undecided = [each for each in told if isinstance(each, SolelyError) and not isinstance(each, InvalidInput)]
    if undecided:
        log.warning("alerts_undecided", undecided=len(undecided), alerts=len(told), error=str(undecided[0]))
        detail = f"{len(undecided)} of {len(told)} alerts could not be decided; send all of them again"
        raise _to_be_repeated(problem_of(undecided[0]), detail)
    refused = [f"alerts[{index}]: {each}" for index, each in enumerate(told) if isinstance(each, InvalidInput)]
    if refused:
        raise Problem(INVALID, f"{len(refused)} of {len(told)} alerts were refused, the others not: {refused[0]}")
    return [each for each in told if isinstance(each, Outcome)]


def _to_be_repeated(problem: Problem, detail: str) -> Problem:
    return Problem(problem.kind._replace(status=503), detail, again=problem.document.retry_after)


def routes(app: App) -> list[Route]:
    """The endpoints: the webhook's, and the one that Prometheus knows."""
    handlers = Alertmanager(app)
    route = partial(
        Route,
        answer=ReceivedAlerts,
        refusals=(AWAY, OVERLOADED),
        cap=MAX_BODY,
        grants=True,
        again="Safe: what was decided is suppressed, what was not is decided then.",
    )
    webhook = "Receive a group of alerts from Alertmanager's webhook"
    posted = "Receive alerts from Prometheus, as Alertmanager does"
    return [
        route("POST", "/api/alerts/alertmanager", WRITE, handlers.webhook, webhook, body=Group),
        route("POST", "/api/v2/alerts", WRITE, handlers.post, posted, body=PostedAlerts),
    ]
