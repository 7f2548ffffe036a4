"""The timeline of a key: its events as sentences, newest first; repetitions in a row are one line, and an expiry, which
no process reports, is inferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..dashboard.formatting import ms, span
from .journal import HistoryEvent

# event → (what is shown, its level: ok, held, done, warning, bad or free)
_WORDS: dict[str, tuple[str, str]] = {
    "acquired": ("acquired", "held"),
    "claimed": ("claimed", "held"),
    "reserved": ("reserved", "held"),
    "taken": ("taken", "held"),
    "pushed": ("pushed", "free"),
    "renewed": ("renewed", "held"),
    "released_lease": ("released", "free"),
    "given_back": ("given back", "free"),
    "acked": ("acked", "done"),
    "published": ("published", "done"),
    "recorded": ("recorded", "done"),
    "marked": ("marked", "done"),
    "finished": ("finished", "done"),
    "seen": ("seen again", "free"),
    "replayed": ("replayed", "done"),
    "contended": ("refused", "warning"),
    "refused": ("refused", "warning"),
    "suppressed": ("suppressed", "free"),
    "timed_out": ("timed out", "warning"),
    "mismatched": ("refused", "warning"),
    "limited": ("limit", "free"),
    "lost": ("lost", "bad"),
    "expired": ("expired", "warning"),
    "cleared": ("cleared", "bad"),
    "rewound": ("rewound", "warning"),
    "advanced": ("advanced", "done"),
    "dead_lettered": ("dead letter", "bad"),
    "breaker_turned": ("breaker", "warning"),
    "tick_ended": ("tick", "done"),
    "failed_open": ("proceeded", "bad"),
    "retried": ("retried", "warning"),
}
_BEGINS = frozenset(("acquired", "claimed", "reserved", "taken"))
_ENDS = frozenset((
    "released_lease", "given_back", "acked", "published", "recorded", "finished", "lost", "cleared", "dead_lettered",
    "tick_ended",
))  # fmt: skip
SLACK = 1.0  # seconds beyond its end after which a hold counts as expired: clocks, and events under way


class TimelineEntry(msgspec.Struct, kw_only=True):
    """One line: what happened from `at` to `last` (wall clock, in seconds), `times` times, by whom. `inferred`: nobody
    reported it, it follows from the times of the events before."""

    at: float
    last: float
    event: str
    level: str
    text: str
    who: str
    fence: int
    times: int
    inferred: bool = False


def timeline(events: Sequence[HistoryEvent], now: float) -> list[TimelineEntry]:
    """The lines of these events, which come newest first."""
    lines: list[TimelineEntry] = []
    for line in sorted(_with_expiries(events, now), key=lambda each: each.last, reverse=True):
        if lines and _same(lines[-1], line):
            lines[-1].times += line.times
            lines[-1].at = line.at
        else:
            lines.append(line)
    for line in lines:
        if line.times > 1:
            line.text = f"{_times(line.times)}{f', {line.text}' if line.text else ''}"
    return lines


def _with_expiries(events: Sequence[HistoryEvent], now: float) -> Iterator[TimelineEntry]:
    ended, next_at = set[int](), now
    renewed: dict[int, float] = {}  # fence → when its hold ends, by the last renewal
    for event in events:
        line = _line(event)
        if event.event in _ENDS:
            ended.add(event.fence)
        elif event.event == "renewed":
            renewed.setdefault(event.fence, event.last + float(event.facts.get("left") or 0.0))
        elif event.event in _BEGINS and event.fence not in ended:
            ends = renewed.get(event.fence, event.at + float(event.facts.get("left") or 0.0))
            if event.at < ends < next_at - SLACK:
                yield _expiry(event, ends)
        yield line
        if event.event in _BEGINS:
            next_at = event.at


def _expiry(event: HistoryEvent, ends: float) -> TimelineEntry:
    text = "nobody renewed or released it through this service until then"
    shown, level = _WORDS["expired"]
    common: Any = {"who": event.who, "fence": event.fence, "times": 1, "inferred": True}
    return TimelineEntry(at=ends, last=ends, event=shown, level=level, text=text, **common)


def _line(event: HistoryEvent) -> TimelineEntry:
    shown, level = _WORDS.get(event.event, (event.event.replace("_", " "), "free"))
    if event.event == "released_lease" and event.facts.get("outcome") not in ("released", "acked", None):
        level = "warning"
    if event.event == "tick_ended" and event.facts.get("outcome") != "done":
        level = "bad"
    if event.event == "published" and event.facts.get("superseded"):
        level = "warning"
    common: Any = {"who": event.who, "fence": event.fence, "times": event.times}
    return TimelineEntry(at=event.at, last=event.last, event=shown, level=level, text=_text(event), **common)


def _same(newer: TimelineEntry, older: TimelineEntry) -> bool:
    """True if both lines say the same of one hold and caller."""
    return (
        (newer.event, newer.who, newer.fence, newer.text) == (older.event, older.who, older.fence, older.text)
        and not (newer.inferred or older.inferred)
        and newer.event in ("renewed", "refused", "suppressed", "replayed", "seen again", "limit", "timed out")
    )


def _text(event: HistoryEvent) -> str:
    """What happened, as far as the facts of the event say more than its name."""
    facts = event.facts
    write = _SENTENCES.get(event.event)
    return write(facts) if write is not None else ""


def _acquired(facts: dict[str, Any]) -> str:
    parts = [
        f"for {span(facts['left'])}" if facts.get("left") else "",
        f"after waiting {_lasting(facts['waited'])}" if facts.get("waited", 0.0) >= 0.05 else "",
        f"attempt {attempt}" if (attempt := facts.get("attempt") or facts.get("attempts") or 1) > 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def _released(facts: dict[str, Any]) -> str:
    held = f"after {_lasting(facts['held'])}" if facts.get("held") else ""
    outcome = facts.get("outcome", "released")
    late = "" if outcome in ("released", "acked") else f"too late: it was {outcome} before"
    return ", ".join(part for part in (held, late) if part)


def _published(facts: dict[str, Any]) -> str:
    late = "too late: another result is final" if facts.get("superseded") else ""
    return ", ".join(part for part in (f"after {_lasting(facts['held'])}" if facts.get("held") else "", late) if part)


def _contended(facts: dict[str, Any]) -> str:
    waited = f"gave up after {_lasting(facts['waited'])}" if facts.get("waited") else "it did not wait"
    return f"{waited}; held by {facts['holder']}" if facts.get("holder") else waited


def _tick(facts: dict[str, Any]) -> str:
    return f"{facts.get('outcome')}, {_lasting(facts.get('late', 0.0))} late, took {_lasting(facts.get('took', 0.0))}"


_SENTENCES: dict[str, Any] = {
    "acquired": _acquired,
    "claimed": _acquired,
    "reserved": _acquired,
    "taken": _acquired,
    "renewed": lambda facts: f"each time for {span(facts['left'])}" if facts.get("left") else "",
    "released_lease": _released,
    "published": _published,
    "recorded": lambda facts: f"after {_lasting(facts['held'])}" if facts.get("held") else "",
    "contended": _contended,
    "suppressed": lambda facts: f"{facts.get('reason', '')}, retry after {span(facts.get('retry_after', 0.0))}",
    "replayed": lambda facts: "a caller got the winner's result",
    "mismatched": lambda facts: "the key came again with another payload",
    "timed_out": lambda facts: f"the work still ran after {span(facts.get('waited', 0.0))}",
    "marked": lambda facts: "for the first time",
    "seen": lambda facts: "a caller came again, and did nothing",
    "limited": lambda facts: "allowed" if facts.get("allowed") else "refused: over the limit",
    "lost": lambda facts: f"it ended under its holder: {facts.get('how', '')}",
    "cleared": lambda facts: f"an admin ended it: {facts['reason']}" if facts.get("reason") else "an admin ended it",
    "rewound": lambda facts: f"from {facts.get('before')} to {facts.get('to')}: {facts.get('reason', '')}",
    "dead_lettered": lambda facts: f"parked after {_times(facts.get('attempts', 1))} in {facts.get('group', '')}",
    "breaker_turned": lambda facts: f"now {facts.get('state', '')}",
    "tick_ended": _tick,
    "failed_open": lambda facts: "without the store, which was unreachable",
    "retried": lambda facts: f"{facts.get('op', '')} was not answered: {facts.get('error', '')}",
    "given_back": lambda facts: f"available again in {span(facts['delay'])}" if facts.get("delay") else "",
}


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _lasting(seconds: float) -> str:
    return ms(seconds) if seconds < 1 else span(seconds)
