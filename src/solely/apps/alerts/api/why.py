"""Why an alert was not sent: everything that suppresses or delays notifications of a fingerprint, and the sentences
that say it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from .... import ItemInfo, Letter, State
from ....kit import MAX_TTL, Answer, Explained, Explainer, Route, at, seconds, span
from ..decision import FLAPPING, QUIET
from ..history import NotificationRecord, ReasonCount
from ..model import MAX_FINGERPRINT, OF_GROUP, RESOLVED, Alert, Member, Notification, bare_alert, subject_of
from ..notifications.publishing import GROUP, QUEUE
from ..runtime import AlertsRuntime
from ..suppression.acknowledgements import Acknowledgement
from ..suppression.silences import Silence
from .acknowledgements import is_open
from .windows import Window, keys_of, of_fingerprint

SEARCHED = 1_000  # items and letters that are searched for the fingerprint; if there are more, `complete` is false
SEVERITIES = 50  # of one fingerprint that may wait: more than anybody has
RECENT = 20  # notifications that are shown


class LimitState(Answer):
    """A limit of notifications per `per` seconds, for this fingerprint or (`shared`) for all; `notified` were sent."""

    severity: str
    shared: bool
    limit: int
    per: float
    notified: int
    reached: bool


class WaitingNotification(Answer):
    """A queued notification for all publishers or for this one. It is retried after `left` seconds; if `state` is held,
    a worker is publishing it, and its lease expires after `left` seconds. An `unreadable` one (which says why) becomes
    a dead letter at its next attempt."""

    id: str
    publisher: str
    severity: str
    state: State
    left: float
    attempts: int
    unreadable: str = ""


class DeadNotification(Answer):
    """A dead letter of this `group`: a notification that this publisher could not send, which can be replayed."""

    id: str
    publisher: str
    severity: str
    error: str
    at: float
    group: str = GROUP


class FiringGroup(Answer):
    """The alert's group, the fingerprint that names the group, and its firing alerts."""

    name: str
    fingerprint: str
    firing: list[Member]


class FlappingState(Answer):
    """The alert opened more than `limit` times within `per` seconds; `last` is when it was last suppressed for that."""

    limit: int
    per: float
    last: float


class Why(Explained):
    """What is known about a fingerprint. Only an alert that `is_open` can be acknowledged: a firing notification was
    sent, and no resolved one since. `complete` is false if there were too many queued items or dead letters to search
    all of them."""

    fingerprint: str
    is_open: bool
    silences: list[Silence]
    acknowledged: Acknowledgement | None
    group: FiringGroup | None
    windows: list[Window]
    flapping: FlappingState | None
    limits: list[LimitState]
    waiting: list[WaitingNotification]
    dead_letters: list[DeadNotification]
    suppressed: list[ReasonCount]
    last_notified: float | None
    recent: list[NotificationRecord]
    complete: bool


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
    history, queue = app.history, app.once.queue(QUEUE)
    await history.flush()
    samples = await history.samples(fingerprint)
    group = await _group(app, fingerprint, samples)
    subjects = list(dict.fromkeys((fingerprint, group.fingerprint) if group is not None else (fingerprint,)))
    retries, letters = await asyncio.gather(
        queue.list(limit=SEARCHED), app.once.dead_letters(GROUP).list(limit=SEARCHED)
    )
    suppressed = await history.suppressed_counts(fingerprint=fingerprint)
    holding = await asyncio.gather(*map(app.acknowledgements.of_fingerprint, subjects))
    outbox = [item for subject in subjects for item in await _in_outbox(app, subject)]
    found = Why(
        fingerprint=fingerprint,
        verdict=[],
        is_open=await is_open(app, fingerprint),
        silences=_silences(app, fingerprint, samples),
        acknowledged=next((each for each in holding if each is not None), None),
        group=group,
        windows=[window for subject in subjects for window in await of_fingerprint(app, subject)],
        flapping=_flaps(app, suppressed),
        limits=[limit for alert in samples for limit in await _limits(app, alert)],
        waiting=[_waiting(item) for item in (*outbox, *(item for item in retries if _alone(item, fingerprint)))],
        dead_letters=[_dead(letter) for letter in letters if _read(letter.payload).alert.fingerprint == fingerprint],
        suppressed=suppressed,
        last_notified=await history.last_notified(fingerprint),
        recent=await history.recent(fingerprint=fingerprint, limit=RECENT),
        complete=len(retries) < SEARCHED and len(letters) < SEARCHED,
    )
    found.verdict = verdict(found, time.time())
    return found


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


def _silences(app: AlertsRuntime, fingerprint: str, samples: list[Alert]) -> list[Silence]:
    """Silences that suppress alerts of this fingerprint; an unknown alert is matched by its fingerprint only."""
    alerts = samples or [bare_alert(fingerprint)]
    return list({silence.id: silence for alert in alerts for silence in app.silences.matching(alert)}.values())


async def _limits(app: AlertsRuntime, alert: Alert) -> list[LimitState]:
    """The limits that apply to alerts like this one, and how many notifications the history has."""
    severity, found = alert.severity, list[LimitState]()
    policy, shared = app.windows.policies[severity], app.windows.shared_limits.get(severity.casefold())
    if policy.limit is not None and policy.per is not None:
        per = seconds("per", policy.per, least=0.0, most=MAX_TTL)
        found.append(await _limit(app, severity, alert.fingerprint, policy.limit, per))
    if shared is not None:
        found.append(await _limit(app, severity, "", shared.limit, shared.per))
    return found


async def _limit(app: AlertsRuntime, severity: str, fingerprint: str, limit: int, per: float) -> LimitState:
    """The limit of this fingerprint, or the one that all share if it is empty."""
    count = await app.history.notified_since(time.time() - per, severity=severity, fingerprint=fingerprint)
    shared, reached = not fingerprint, count >= limit
    return LimitState(severity=severity, shared=shared, limit=limit, per=per, notified=count, reached=reached)


# -- queued items and dead letters


async def _in_outbox(app: AlertsRuntime, fingerprint: str) -> list[ItemInfo]:
    """Queued items under the keys of this fingerprint."""
    queue, (prefix, resolved) = app.once.queue(QUEUE), keys_of(fingerprint)
    waiting = await queue.read(resolved)
    firing = [item for item in await queue.list(after=prefix, limit=SEVERITIES) if item.id.startswith(prefix)]
    return firing if waiting is None else [*firing, waiting]


def _read(payload: Any) -> Notification:
    """The notification in this payload; one without an alert if it is invalid."""
    try:
        return msgspec.convert(payload, Notification)
    except msgspec.ValidationError:
        return Notification(id="", alert=bare_alert(), at=0.0)


def _alone(item: ItemInfo, fingerprint: str) -> bool:
    """True if the item is a notification of this fingerprint that one publisher has yet to send."""
    known = _read(item.payload)
    return bool(known.publisher) and known.alert.fingerprint == fingerprint


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


# -- sentences


def verdict(found: Why, now: float) -> list[str]:
    """What suppresses or delays notifications now, what did so before, or that nothing does."""
    sent = [each for each in found.windows if each.status == RESOLVED and each.reason == QUIET]
    current = [
        *(f"Silenced until {at(each.ends)} by {each.made_by}: {each.reason}" for each in found.silences),
        *([_of_acknowledgement(found.acknowledged)] if found.acknowledged is not None else []),
        *map(_of_waiting, found.waiting),
        *(_of_window(each) for each in found.windows if each not in sent),
        *([_of_flapping(found.flapping)] if found.flapping is not None else []),
        *(_of_limit(each) for each in found.limits if each.reached),
    ]
    return [
        *current,
        *map(_of_dead, found.dead_letters),
        *([] if current else ["Nothing suppresses it now: the next firing alert sends a notification."]),
        *("The resolved notification was sent." for _ in sent),  # which suppresses no firing alert
        *([_of_group(found.group)] if found.group is not None else []),
        _of_the_past(found, now),
    ]


def _of_acknowledgement(made: Acknowledgement) -> str:
    which = f", severity {made.severity} only" if made.severity else ""
    comment = f": {made.comment}" if made.comment else "."
    return f"Acknowledged by {made.made_by} until it resolves, or until {at(made.ends)}{which}{comment}"


def _of_waiting(waiting: WaitingNotification) -> str:
    whom = waiting.publisher or "all publishers"
    if waiting.state is State.HELD:
        return f"A notification is being published to {whom} right now (attempt {waiting.attempts})."
    when = f"in {span(waiting.left)}" if waiting.left > 0 else "in a moment"
    times = "1 attempt" if waiting.attempts == 1 else f"{waiting.attempts} attempts"
    return f"A notification waits: it is published to {whom} {when}, after {times}."


def _of_window(window: Window) -> str:
    name = window.fingerprint.removeprefix(OF_GROUP)
    group = "" if name == window.fingerprint else f" of the group {name}"
    which = f"The resolved notification{group}" if window.status == RESOLVED else f"Severity {window.severity}{group}"
    if window.reason != QUIET:
        return f"{which} is being sent right now, by {window.who or 'another'}; if that fails, it is sent again."
    return f"{which} was sent and is quiet for {span(window.left)} more."


def _of_flapping(flaps: FlappingState) -> str:
    often = f"{flaps.limit} openings are sent in {span(flaps.per)}"
    return f"It flaps: {often}, and it was last suppressed for that at {at(flaps.last)}."


def _of_limit(limit: LimitState) -> str:
    which = f"Severity {limit.severity}, over all alerts," if limit.shared else f"Severity {limit.severity}"
    return f"{which} is at its limit: {limit.notified} of {limit.limit} were sent in the last {span(limit.per)}."


def _of_dead(dead: DeadNotification) -> str:
    whom = dead.publisher or "any publisher"
    return f"A notification could not be published to {whom} and is a dead letter: {dead.error}"


def _of_group(group: FiringGroup) -> str:
    if not group.firing:
        return f"It belongs to the group {group.name}, of which no alert fires."
    names = ", ".join(dict.fromkeys(each.name for each in group.firing))
    return f"It shares notifications with its group {group.name}, of which {len(group.firing)} fire: {names}."


def _of_the_past(found: Why, now: float) -> str:
    if found.last_notified is None:
        if found.suppressed or found.recent:
            return "It came in, and no notification was sent so far."
        return "The history has no alert of this fingerprint: is it spelled as its sender does?"
    count = sum(each.count for each in found.suppressed)
    more = f"; the history has {count} suppressed {'alert' if count == 1 else 'alerts'}" if count else ""
    return f"Last sent {span(now - found.last_notified)} ago, at {at(found.last_notified)}{more}."
