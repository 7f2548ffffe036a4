"""Why an alert was not sent: everything that suppresses or delays notifications of a fingerprint, in one response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from .... import ItemInfo, Letter
from ....kit import MAX_TTL, Explainer, Route, seconds
from ..decision import FLAPPING
from ..model import MAX_FINGERPRINT, OF_GROUP, Alert, bare_alert, subject_of
from ..notifications.publishing import GROUP, QUEUE, RETRIES
from ..records.history import ReasonCount
from ..runtime import AlertsRuntime
from ..settings import table
from ..suppression.silences import Silence
from .acknowledgements import is_open
from .explanation import DeadNotification, FiringGroup, FlappingState, LimitState, WaitingNotification, Why, verdict
from .windows import key_of_resolved, of_fingerprint, prefix_of

T = TypeVar("T")

SEARCHED = 1_000  # items and letters that are searched for the fingerprint; if there are more, `complete` is false
SEVERITIES = 50  # of one fingerprint that may wait: more than anybody has
RECENT = 20  # notifications that are shown

WHY = Explainer(
    "alerts",
    "fingerprint",
    Why,
    title="Why was I not notified?",
    hint="the fingerprint of an alert",
    template="alerts:why.html",
    most=MAX_FINGERPRINT,
)


def routes(app: AlertsRuntime) -> list[Route]:
    """The route and the page."""
    return WHY.routes(lambda fingerprint: why(app, fingerprint))


async def why(app: AlertsRuntime, fingerprint: str) -> Why:
    """The explanation for this fingerprint. Flushes this worker's history first; otherwise it only reads."""
    history, once = app.history, app.once
    await history.flush()
    samples = await history.samples(fingerprint)
    group = await _group(app, fingerprint, samples)
    subjects = list(dict.fromkeys((fingerprint, group.fingerprint) if group is not None else (fingerprint,)))
    windows, outbox, retries, letters = await asyncio.gather(
        _of_each(subjects, lambda subject: of_fingerprint(app, subject)),
        _of_each(subjects, lambda subject: _in_outbox(app, subject)),
        once.queue(RETRIES).list(limit=SEARCHED),
        once.dead_letters(GROUP).list(limit=SEARCHED),
    )
    suppressed = await history.suppressed_counts(fingerprint=fingerprint)
    holding = await asyncio.gather(*map(app.acknowledgements.of_fingerprint, subjects))
    of_this = [item for item in retries if _read(item.payload).alert.fingerprint == fingerprint]
    found = Why(
        fingerprint=fingerprint,
        verdict=[],
        is_open=await is_open(app, fingerprint),
        silences=_silences(app, fingerprint, samples),
        acknowledged=next((each for each in holding if each is not None), None),
        group=group,
        windows=windows,
        flapping=_flaps(app, suppressed),
        limits=[limit for alert in samples for limit in await _limits(app, alert)],
        waiting=[_waiting(item) for item in (*outbox, *of_this)],
        dead_letters=[_dead(letter) for letter in letters if _read(letter.payload).alert.fingerprint == fingerprint],
        suppressed=suppressed,
        last_notified=await history.last_notified(fingerprint),
        recent=await history.recent(fingerprint=fingerprint, limit=RECENT),
        complete=len(retries) < SEARCHED and len(letters) < SEARCHED,
    )
    found.verdict = verdict(found, time.time())
    return found


async def _of_each(subjects: list[str], look: Callable[[str], Awaitable[list[T]]]) -> list[T]:
    """The results for the alert, then for its group."""
    return [found for subject in subjects for found in await look(subject)]


async def _group(app: AlertsRuntime, fingerprint: str, samples: list[Alert]) -> FiringGroup | None:
    """The group of the last alert of this fingerprint, or the group that the fingerprint names."""
    name = samples[0].group if samples else fingerprint.removeprefix(OF_GROUP)
    if not name or (not samples and name == fingerprint):
        return None
    alert = bare_alert(fingerprint, name)
    return FiringGroup(name=name, fingerprint=subject_of(alert), firing=list(await app.open_alerts.members(alert)))


def _flaps(app: AlertsRuntime, suppressed: list[ReasonCount]) -> FlappingState | None:
    """The flapping state, if the alert was suppressed for it within the last `flap_per` seconds."""
    limit, per = app.settings.flap_limit, app.settings.flap_per
    last = max((each.last for each in suppressed if each.reason == FLAPPING), default=0.0)
    return FlappingState(limit=limit, per=per, last=last) if limit and last > time.time() - per else None


async def _in_outbox(app: AlertsRuntime, fingerprint: str) -> list[ItemInfo]:
    """Queued items under the keys of this fingerprint."""
    queue, prefix = app.once.queue(QUEUE), prefix_of(fingerprint)
    resolved = await queue.read(key_of_resolved(fingerprint))
    firing = [item for item in await queue.list(after=prefix, limit=SEVERITIES) if item.id.startswith(prefix)]
    return firing if resolved is None else [*firing, resolved]


def _silences(app: AlertsRuntime, fingerprint: str, samples: list[Alert]) -> list[Silence]:
    """Silences that suppress alerts of this fingerprint; an unknown alert is matched by its fingerprint only."""
    alerts = samples or [bare_alert(fingerprint)]
    found = {silence.id: silence for alert in alerts for silence in app.silences.matching(alert)}
    return list(found.values())


async def _limits(app: AlertsRuntime, alert: Alert) -> list[LimitState]:
    """The limits that apply to alerts like this one, and how many notifications the history has."""
    severity, found = alert.severity, list[LimitState]()
    policy = table(app.settings)[severity]
    if policy.limit is not None and policy.per is not None:
        per = seconds("per", policy.per, least=0.0, most=MAX_TTL)
        count = await app.history.notified_since(time.time() - per, severity=severity, fingerprint=alert.fingerprint)
        found.append(_limit(severity, False, policy.limit, per, count))
    limits = {name.casefold(): each for name, each in app.settings.severity_limits.items()}
    shared = limits.get(severity.casefold())
    if shared is not None:
        count = await app.history.notified_since(time.time() - shared.per, severity=severity)
        found.append(_limit(severity, True, shared.limit, shared.per, count))
    return found


def _limit(severity: str, shared: bool, limit: int, per: float, count: int) -> LimitState:
    return LimitState(severity=severity, shared=shared, limit=limit, per=per, notified=count, reached=count >= limit)


# -- payloads of queued items and dead letters


class _Alert(msgspec.Struct, frozen=True):
    fingerprint: str = ""
    severity: str = ""


class _Payload(msgspec.Struct):
    """What matters here of a notification in the outbox, or of one that waits for a single publisher."""

    id: str = ""
    publisher: str = ""
    alert: _Alert = _Alert()
    notification: _Payload | None = None


def _read(payload: Any) -> _Payload:
    """The notification in a payload, with its publisher if there is one; empty if it is none."""
    try:
        found = msgspec.convert(payload, _Payload)
    except msgspec.ValidationError:
        return _Payload()
    return (
        found
        if found.notification is None
        else _Payload(found.notification.id, found.publisher, found.notification.alert)
    )


def _waiting(item: ItemInfo) -> WaitingNotification:
    known = _read(item.payload)
    return WaitingNotification(
        id=known.id or item.id,
        publisher=known.publisher,
        severity=known.alert.severity,
        state=item.state,
        left=item.left,
        attempts=item.attempts,
        unreadable=item.unreadable,
    )


def _dead(letter: Letter) -> DeadNotification:
    known = _read(letter.payload)
    return DeadNotification(
        id=letter.id,
        publisher=known.publisher,
        severity=known.alert.severity,
        error=letter.last_error.removeprefix(f"{known.publisher}: "),
        at=letter.last_at.timestamp(),
    )
