"""The verdict: why somebody was not told, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....model import State
from ....service.dashboard.telling import at, span
from ..model import OF_GROUP, RESOLVED

if TYPE_CHECKING:
    from ..suppression.acknowledgements import Acknowledgement
    from ..suppression.silences import Silence
    from .why import Dead, FiringGroup, Flaps, Limit, Waiting, Why
    from .windows import Window

_QUIET = "quiet"


def verdict(told: Why, now: float) -> list[str]:
    """What keeps it from people now, what did so, or that nothing does."""
    now_kept = [
        *(_of_silence(each) for each in told.silences),
        *([_of_acknowledgement(told.acknowledged)] if told.acknowledged is not None else []),
        *(_of_waiting(each) for each in told.waiting),
        *(_of_window(each) for each in told.windows),
        *([_of_flapping(told.flapping)] if told.flapping is not None else []),
        *(_of_limit(each) for each in told.limits if each.reached),
    ]
    said = [*now_kept, *(_of_dead(each) for each in told.dead_letters)]
    if not now_kept:
        said.append("Nothing keeps it back now: the next firing alert is told.")
    if told.group is not None:
        said.append(_of_group(told.group))
    return [*said, _of_the_past(told, now)]


def _of_silence(silence: Silence) -> str:
    return f"Silenced until {at(silence.ends)} by {silence.made_by}: {silence.reason}"


def _of_acknowledgement(made: Acknowledgement) -> str:
    which = f", severity {made.severity} only" if made.severity else ""
    comment = f": {made.comment}" if made.comment else "."
    return f"Acknowledged by {made.made_by} until it is over, or until {at(made.ends)}{which}{comment}"


def _of_flapping(flaps: Flaps) -> str:
    return (
        f"It flaps: of its openings, {flaps.limit} are told in {span(flaps.per)}, and it was suppressed for that last "
        f"at {at(flaps.last)}."
    )


def _of_group(group: FiringGroup) -> str:
    if not group.firing:
        return f"It comes in the group {group.name}, of which none fires."
    names = ", ".join(dict.fromkeys(each.name for each in group.firing))
    return f"It is told together with its group {group.name}, of which {len(group.firing)} fire: {names}."


def _of_window(window: Window) -> str:
    group = (
        f" of the {window.fingerprint.replace(OF_GROUP, 'group ', 1)}"
        if window.fingerprint.startswith(OF_GROUP)
        else ""
    )
    which = f"That it is over{group}" if window.status == RESOLVED else f"Severity {window.severity}{group}"
    if window.reason != _QUIET:
        return f"{which} is being sent right now, by {window.who or 'another'}; if that fails, it is sent again."
    return f"{which} was told and is quiet for {span(window.left)} more."


def _of_limit(limit: Limit) -> str:
    which = f"Severity {limit.severity}, over all alerts," if limit.shared else f"Severity {limit.severity}"
    return f"{which} is at its limit: {limit.told} told in the last {span(limit.per)}, where {limit.limit} may be."


def _of_waiting(waiting: Waiting) -> str:
    if waiting.state is State.HELD:
        whom = f" to {waiting.publisher}" if waiting.publisher else ""
        return f"A notification is being published{whom} right now (attempt {waiting.attempts})."
    whom = f"{waiting.publisher} is" if waiting.publisher else "people are"
    when = f"in {span(waiting.left)}" if waiting.left > 0 else "in a moment"
    return f"A notification waits: {whom} told {when}, after {_times(waiting.attempts)} tried."


def _of_dead(dead: Dead) -> str:
    whom = dead.publisher or "any publisher"
    return f"A notification could not be told to {whom} and is a dead letter: {dead.error}"


def _of_the_past(told: Why, now: float) -> str:
    if told.last_told is not None:
        return f"Last told {span(now - told.last_told)} ago, at {at(told.last_told)}{_suppressed(told)}."
    if told.suppressed or told.recent:
        return "It came in, and nobody was told of it so far."
    return "No alert of this fingerprint is remembered: is it spelled as its sender does?"


def _suppressed(told: Why) -> str:
    count = sum(each.count for each in told.suppressed)
    return f"; {count} {'was' if count == 1 else 'were'} suppressed, as far as is remembered" if count else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
