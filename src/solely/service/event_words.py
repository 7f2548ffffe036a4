"""The words for each event: what the feed's sentences and the lines of a timeline are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .dashboard.formatting import ms, span

WAITED = 0.05  # seconds of waiting that are worth a word

Facts = Mapping[str, Any]
Details = tuple[str, ...]


class EventWords(NamedTuple):
    """An event in words: the word for it, and the details that say more. Together they are a sentence about the key.
    The level (held, done, free, warning or bad) is for its color."""

    word: str
    level: str
    details: Details


def in_words(event: str, facts: Facts) -> EventWords:
    """The words for this event with these facts; a fact that is not given is not mentioned."""
    if event == "marked" and not facts.get("first", True):
        event = "seen"
    if event == "limited" and not facts.get("allowed"):
        event = "over_limit"
    word, level, details = WORDS.get(event, (event.replace("_", " "), "free", _none))
    if facts.get("superseded") or facts.get("outcome", "done") not in ("released", "acked", "done"):
        level = "bad" if event == "tick_ended" else "warning"
    return EventWords(word, level, tuple(filter(None, details(facts))))


def times(count: int) -> str:
    """Once, 2 times, 1,240 times."""
    return "once" if count == 1 else f"{count:,} times"


def _lasting(seconds: float) -> str:
    return ms(seconds) if seconds < 1 else span(seconds)


def _waited(facts: Facts) -> str:
    return f"after waiting {_lasting(facts['waited'])}" if facts.get("waited", 0.0) >= WAITED else ""


def _because(facts: Facts) -> str:
    return f": {facts['reason']}" if facts.get("reason") else ""


def _none(facts: Facts) -> Details:
    return ()


def _taken(facts: Facts) -> Details:
    left, attempt = facts.get("left"), facts.get("attempt") or facts.get("attempts") or 1
    return f"for {span(left)}" if left else "", _waited(facts), f"attempt {attempt}" if attempt > 1 else ""


def _ended(facts: Facts) -> Details:
    late, outcome = "", facts.get("outcome", "released")
    if facts.get("superseded"):
        late = "too late: another result is final"
    elif outcome not in ("released", "acked"):
        late = f"too late: it was {outcome} before"
    return f"after {_lasting(facts['held'])}" if facts.get("held") else "", late


def _refused(facts: Facts) -> Details:
    return f"while held by {facts['holder']}" if facts.get("holder") else "", _waited(facts)


def _suppressed(facts: Facts) -> Details:
    why = {"reserved": "another sends it now", "quiet": "it was sent a while ago", "limited": "it is over its limit"}
    reason = facts.get("reason", "")
    return reason and f"since {why.get(reason, reason)}", f"for another {_lasting(facts.get('retry_after', 0.0))}"


def _tick(facts: Facts) -> Details:
    took, late = _lasting(facts.get("took", 0.0)), _lasting(facts.get("late", 0.0))
    return facts.get("outcome", ""), f"took {took}", f"{late} late"


# event → its word, its level unless it was too late or failed, its details. The last ones are in the history alone: an
# expiry is inferred, and the others are acts of remote clients, for which the library has no events here.
WORDS: dict[str, tuple[str, str, Callable[[Facts], Details]]] = {
    "acquired": ("acquired", "held", _taken),
    "claimed": ("claimed", "held", _taken),
    "reserved": ("reserved", "held", _taken),
    "resumed": ("resumed", "held", lambda facts: ("by another holder, with its token", *_taken(facts))),
    "renewed": ("renewed", "held", _taken),
    "released_lease": ("released", "free", _ended),
    "published": ("published", "done", _ended),
    "recorded": ("recorded", "done", lambda facts: ("as sent", *_ended(facts))),
    "marked": ("marked", "done", lambda _: ("for the first time",)),
    "seen": ("seen again", "free", lambda _: ("and skipped",)),
    "replayed": ("replayed", "done", lambda facts: ("the kept result", _waited(facts))),
    "contended": ("refused", "warning", _refused),
    "mismatched": ("refused", "warning", lambda _: ("since the key came again with another payload",)),
    "suppressed": ("suppressed", "free", _suppressed),
    "timed_out": ("timed out", "warning", lambda facts: ("while the work still ran", _waited(facts))),
    "limited": ("allowed", "free", lambda _: ("by its limit",)),
    "over_limit": ("refused", "free", lambda _: ("since it is over its limit",)),
    "lost": ("lost", "bad", lambda facts: (f"under its holder: {facts['how']}",)),
    "cleared": ("cleared", "bad", lambda facts: (f"by an admin{_because(facts)}",)),
    "rewound": ("rewound", "warning", lambda facts: (f"from {facts['before']} to {facts['to']}{_because(facts)}",)),
    "dead_lettered": (
        "parked", "bad", lambda facts: (f"as a dead letter in {facts['group']}", f"tried {times(facts['attempts'])}"),
    ),
    "breaker_turned": ("breaker", "warning", lambda facts: (f"now {facts['state']}",)),
    "tick_ended": ("tick", "done", _tick),
    "failed_open": ("proceeded", "bad", lambda facts: (f"without the store: {facts['what']}",)),
    "retried": ("retried", "warning", lambda facts: (f"since {facts['op']} was not answered: {facts['error']}",)),
    "expired": ("expired", "warning", lambda _: ("since nobody renewed or released it through this service",)),
    "refused": ("refused", "warning", _refused),
    "taken": ("taken", "held", _taken),
    "pushed": ("pushed", "free", _none),
    "given_back": (
        "given back", "free", lambda facts: (f"to wait for {span(facts['delay'])}" if facts.get("delay") else "",),
    ),
    "acked": ("acked", "done", _none),
    "finished": ("finished", "done", _none),
}  # fmt: skip
