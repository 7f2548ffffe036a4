"""The explanation of why an alert was not sent: its data, and the verdict in sentences."""

from __future__ import annotations

from .... import State
from ....kit import Answer, Explained, at, span
from ..model import OF_GROUP, RESOLVED, Member
from ..notifications.publishing import GROUP
from ..records.history import NotificationRecord, ReasonCount
from ..suppression.acknowledgements import Acknowledgement
from ..suppression.silences import Silence
from ..worker import QUIET
from .windows import Window


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


def verdict(found: Why, now: float) -> list[str]:
    """What suppresses or delays notifications now, what did so before, or that nothing does."""
    current = [
        *(_of_silence(each) for each in found.silences),
        *([_of_acknowledgement(found.acknowledged)] if found.acknowledged is not None else []),
        *(_of_waiting(each) for each in found.waiting),
        *(_of_window(each) for each in found.windows if not _was_resolved(each)),
        *([_of_flapping(found.flapping)] if found.flapping is not None else []),
        *(_of_limit(each) for each in found.limits if each.reached),
    ]
    sentences = [*current, *(_of_dead(each) for each in found.dead_letters)]
    if not current:
        sentences.append("Nothing suppresses it now: the next firing alert sends a notification.")
    sentences += ["The resolved notification was sent." for each in found.windows if _was_resolved(each)]
    if found.group is not None:
        sentences.append(_of_group(found.group))
    return [*sentences, _of_the_past(found, now)]


def _of_silence(silence: Silence) -> str:
    return f"Silenced until {at(silence.ends)} by {silence.made_by}: {silence.reason}"


def _of_acknowledgement(made: Acknowledgement) -> str:
    which = f", severity {made.severity} only" if made.severity else ""
    comment = f": {made.comment}" if made.comment else "."
    return f"Acknowledged by {made.made_by} until it resolves, or until {at(made.ends)}{which}{comment}"


def _of_flapping(flaps: FlappingState) -> str:
    return (
        f"It flaps: {flaps.limit} openings are sent in {span(flaps.per)}, and it was last suppressed for that at "
        f"{at(flaps.last)}."
    )


def _of_group(group: FiringGroup) -> str:
    if not group.firing:
        return f"It belongs to the group {group.name}, of which no alert fires."
    names = ", ".join(dict.fromkeys(each.name for each in group.firing))
    return f"It shares notifications with its group {group.name}, of which {len(group.firing)} fire: {names}."


def _was_resolved(window: Window) -> bool:
    """True if its resolved notification was sent: that suppresses no firing alert, which ends this window."""
    return window.status == RESOLVED and window.reason == QUIET


def _of_window(window: Window) -> str:
    group = (
        f" of the {window.fingerprint.replace(OF_GROUP, 'group ', 1)}"
        if window.fingerprint.startswith(OF_GROUP)
        else ""
    )
    which = f"The resolved notification{group}" if window.status == RESOLVED else f"Severity {window.severity}{group}"
    if window.reason != QUIET:
        return f"{which} is being sent right now, by {window.who or 'another'}; if that fails, it is sent again."
    return f"{which} was sent and is quiet for {span(window.left)} more."


def _of_limit(limit: LimitState) -> str:
    which = f"Severity {limit.severity}, over all alerts," if limit.shared else f"Severity {limit.severity}"
    return f"{which} is at its limit: {limit.notified} of {limit.limit} were sent in the last {span(limit.per)}."


def _of_waiting(waiting: WaitingNotification) -> str:
    whom = waiting.publisher or "all publishers"
    if waiting.state is State.HELD:
        return f"A notification is being published to {whom} right now (attempt {waiting.attempts})."
    when = f"in {span(waiting.left)}" if waiting.left > 0 else "in a moment"
    times = "1 attempt" if waiting.attempts == 1 else f"{waiting.attempts} attempts"
    return f"A notification waits: it is published to {whom} {when}, after {times}."


def _of_dead(dead: DeadNotification) -> str:
    whom = dead.publisher or "any publisher"
    return f"A notification could not be published to {whom} and is a dead letter: {dead.error}"


def _of_the_past(found: Why, now: float) -> str:
    if found.last_notified is not None:
        return f"Last sent {span(now - found.last_notified)} ago, at {at(found.last_notified)}{_suppressed(found)}."
    if found.suppressed or found.recent:
        return "It came in, and no notification was sent so far."
    return "The history has no alert of this fingerprint: is it spelled as its sender does?"


def _suppressed(found: Why) -> str:
    count = sum(each.count for each in found.suppressed)
    return f"; the history has {count} suppressed {'alert' if count == 1 else 'alerts'}" if count else ""
