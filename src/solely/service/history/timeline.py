"""The timeline of a key: its events as sentences, newest first; repetitions in a row are one line, and an expiry, which
no process reports, is inferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..event_words import in_words, times
from .records import HistoryEvent

_BEGINS = frozenset(("acquired", "claimed", "reserved", "taken", "resumed"))
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
            line.text = f"{times(line.times)}{f', {line.text}' if line.text else ''}"
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
    """The end of the hold that began with this event."""
    return _line(msgspec.structs.replace(event, event="expired", at=ends, last=ends, times=1, facts={}), inferred=True)


def _line(event: HistoryEvent, inferred: bool = False) -> TimelineEntry:
    word, level, details = in_words(event.event, event.facts)
    common: Any = {"who": event.who, "fence": event.fence, "times": event.times, "inferred": inferred}
    return TimelineEntry(at=event.at, last=event.last, event=word, level=level, text=", ".join(details), **common)


def _same(newer: TimelineEntry, older: TimelineEntry) -> bool:
    """True if both lines say the same of one hold and caller."""
    return (
        (newer.event, newer.who, newer.fence, newer.text) == (older.event, older.who, older.fence, older.text)
        and not (newer.inferred or older.inferred)
        and newer.event in ("renewed", "refused", "suppressed", "replayed", "seen again", "allowed", "timed out")
    )
