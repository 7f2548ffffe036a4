"""Alertmanager's webhook (version 4), and the API (version 2) to which Prometheus posts.

Both senders retry after a 5xx at best, and never after a 4xx: Alertmanager drops what was answered with 429. So the
response is 503 whenever a retry can help; in the retry, alerts that were decided are suppressed or taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import structlog

from .... import InvalidInput, SolelyError
from ....kit import AWAY, INVALID, KIB, TOO_MANY, WRITE, Answer, Call, Problem, Route, problem_of
from ..model import FIRING, MAX_FINGERPRINT, RESOLVED, Alert, AlertOutcome, Labels, Status
from ..runtime import AlertsRuntime, Handlers
from .labels import labelled_alert, present

log = structlog.get_logger("solely.alerts")

MAX_ALERTS = 1000  # in one request: a worker decides as many within the timeout of senders
MAX_BODY = 1024 * KIB  # bytes: about 1 KiB per alert
_NEVER = "0001-01-01T"  # how Go begins a time that is not set
OVERLOADED = TOO_MANY._replace(status=503)  # the status that makes these senders retry


class GroupedAlert(msgspec.Struct, kw_only=True, rename="camel"):
    """An alert of a group. Other fields are ignored."""

    labels: Labels | None = None
    annotations: Labels | None = None
    status: Status = FIRING
    starts_at: str = ""
    generator_url: str = msgspec.field(default="", name="generatorURL")
    fingerprint: Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT)] = ""


class AlertmanagerGroup(msgspec.Struct, kw_only=True, rename="camel"):
    """A group of alerts as the webhook sends it. Other fields are ignored."""

    alerts: Annotated[list[GroupedAlert], msgspec.Meta(max_length=MAX_ALERTS)]
    external_url: str = msgspec.field(default="", name="externalURL")
    group_key: str = ""
    truncated_alerts: int = 0


class PostedAlert(msgspec.Struct, kw_only=True, rename="camel"):
    """An alert as Prometheus posts it. Other fields are ignored."""

    labels: Annotated[Labels, msgspec.Meta(min_length=1)]
    annotations: Labels | None = None
    starts_at: str = ""
    ends_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    generator_url: str = msgspec.field(default="", name="generatorURL")


PostedAlerts = Annotated[list[PostedAlert], msgspec.Meta(max_length=MAX_ALERTS)]


class ReceivedAlerts(Answer):
    """The outcome of each alert, in the order of the request."""

    alerts: list[AlertOutcome]


def parse_group(group: AlertmanagerGroup) -> list[Alert]:
    """The alerts of a group; their source is the Alertmanager that sent it."""
    source = group.external_url or "alertmanager"
    return [
        labelled_alert(
            each.labels or {}, _annotations(each), source=source, fingerprint=each.fingerprint, status=each.status
        )
        for each in group.alerts
    ]


def parse_posted(posted: Sequence[PostedAlert], now: datetime) -> list[Alert]:
    """The posted alerts; their source is the host of `generatorURL`. An alert whose `endsAt` is past is resolved; Go
    writes the year 1 if there is none."""
    return [
        labelled_alert(
            each.labels,
            _annotations(each),
            source=_origin(each.generator_url) or "prometheus",
            status=RESOLVED if each.ends_at is not None and each.ends_at.year > 1 and each.ends_at <= now else FIRING,
        )
        for each in posted
    ]


def _annotations(alert: GroupedAlert | PostedAlert) -> Labels:
    """The annotations, with the start and the generator, which do not affect the fingerprint there."""
    start = "" if alert.starts_at.startswith(_NEVER) else alert.starts_at
    return present({"startsAt": start, "generatorURL": alert.generator_url}) | (alert.annotations or {})


def _origin(url: str) -> str:
    """The scheme and host of the URL, since its path differs from alert to alert; "" if it has no host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


class Alertmanager(Handlers):
    """The handlers of both endpoints."""

    async def webhook(self, call: Call[AlertmanagerGroup, None]) -> ReceivedAlerts:
        """Decides the alerts of a group."""
        group = call.body
        if group.truncated_alerts:
            log.warning("alerts_truncated_by_sender", missing=group.truncated_alerts, group=group.group_key)
        return await self._decide(call.principal.name, parse_group(group))

    async def post(self, call: Call[PostedAlerts, None]) -> ReceivedAlerts:
        """Decides the alerts that were posted."""
        return await self._decide(call.principal.name, parse_posted(call.body, datetime.now(UTC)))

    async def _decide(self, principal: str, alerts: list[Alert]) -> ReceivedAlerts:
        receiver = self._app.receiver
        try:
            receiver.check_capacity(principal)
        except Problem as refusal:
            raise _to_retry(refusal, str(refusal)) from None
        return ReceivedAlerts(alerts=_all_decided(await receiver.receive_all(alerts)))


def _all_decided(found: Sequence[AlertOutcome | SolelyError]) -> list[AlertOutcome]:
    """All outcomes; raises Problem if an alert failed and the sender has to retry, or if an alert is invalid."""
    failed = {index: each for index, each in enumerate(found) if isinstance(each, SolelyError)}
    undecided = [each for each in failed.values() if not isinstance(each, InvalidInput)]
    if undecided:
        log.warning("alerts_undecided", undecided=len(undecided), alerts=len(found), error=str(undecided[0]))
        detail = f"{len(undecided)} of {len(found)} alerts could not be decided; send all of them again"
        raise _to_retry(problem_of(undecided[0]), detail)
    for index, refused in failed.items():
        text = f"{len(failed)} of {len(found)} alerts were refused, the others not: alerts[{index}]: {refused}"
        raise Problem(INVALID, text)
    return [each for each in found if isinstance(each, AlertOutcome)]


def _to_retry(problem: Problem, detail: str) -> Problem:
    return Problem(problem.kind._replace(status=503), detail, again=problem.document.retry_after)


def routes(app: AlertsRuntime) -> list[Route]:
    """The endpoints of Alertmanager's webhook and of Prometheus."""
    handlers = Alertmanager(app)
    route = partial(
        Route,
        refusals=(AWAY, OVERLOADED),
        cap=MAX_BODY,
        grants=True,
        again="Safe: what was decided is suppressed, what was not is decided then.",
    )
    webhook = "Receive a group of alerts from Alertmanager's webhook"
    posted = "Receive alerts from Prometheus, as Alertmanager does"
    return [
        route("POST", "/api/alerts/alertmanager", WRITE, handlers.webhook, webhook),
        route("POST", "/api/v2/alerts", WRITE, handlers.post, posted, text_errors=True),
    ]
