"""Recorder: a hook that buffers events for the history. It never waits and never fails; formatting and folding happen
when the buffer is written.

What is kept under load, in this order: what went wrong always (up to a bound); marks, limits and replays as samples;
of all else as many events as the budget allows, and if there are more, all events of some keys and none of the others,
so that the timelines that are kept are complete.
"""

from __future__ import annotations

import time
import zlib
from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec

from ... import events
from ...data import Row, without_nul
from ...holder import ON_BEHALF, OnBehalf, this_process
from ...owner import fresh_owner
from ..feed import facts_of_event, word

# Per write and worker. Rows of the history cost some microseconds each, on the thread of the database and here: this
# budget is about 1 % of a core, whatever the load.
BUDGET = 250
SAMPLES = 25  # of marks, limits and replays: these are the most frequent events by far, and each says little
ALARMS = 500  # of what went wrong: beyond the budget, since these are what people look for
FOLDED = 10_000  # rows that may still grow: leases that are renewed, and callers that are refused again and again
FOLD = {"renewed": 3_600.0}  # seconds for which repeated events are one row; so that a long lease still shows when
FOLD_OTHERS = 60.0
WRONG, USUAL, SAMPLE = range(3)  # grades of events: each has room of its own, so that none displaces another

_SAMPLED = frozenset((events.Marked, events.Limited, events.Replayed))
_ALARMING = frozenset((
    events.Lost, events.Cleared, events.FailedOpen, events.DeadLettered, events.BreakerTurned, events.Rewound,
))  # fmt: skip
# Events that repeat for one holder or caller: they become one row, which counts them.
_REPEATED = frozenset((
    "renewed", "contended", "suppressed", "replayed", "timed_out", "mismatched", "limited", "retried", "failed_open",
    "seen", "refused",
))  # fmt: skip
_NOTABLE = frozenset((
    "lost", "cleared", "failed_open", "dead_lettered", "breaker_turned", "rewound", "contended", "timed_out",
    "mismatched", "refused",
))  # fmt: skip


class Noted(NamedTuple):
    """Something that happened to a stored key, for which the library has no event, such as an op of a remote client."""

    key: str
    event: str
    fence: int
    facts: dict[str, Any]


_Unwritten = tuple[float, events.Event | Noted, OnBehalf | None]  # when, what, for whom; a plain tuple is quick to make


class _Fold(NamedTuple):
    at: float
    id: str
    times: int


class HistoryRecorder:
    """Buffers the events of one worker until `rows` formats them. `dropped` counts events that were not kept for lack
    of room; samples are not counted."""

    def __init__(self) -> None:
        self._buffer: list[_Unwritten] = []
        self._alarms = self._samples = self._kept = 0
        self._share = 0  # of the keys, one in 2 ** share is kept
        self._folds: OrderedDict[tuple[object, ...], _Fold] = OrderedDict()
        self._worker, self._count = fresh_owner()[:8], 0
        self._here = f"the service, {this_process()}"
        self.dropped = 0

    def __call__(self, event: events.Event, /) -> None:
        kind = type(event)
        if kind in _SAMPLED:
            self._samples += 1
            if self._samples > SAMPLES:
                return
        elif kind in _ALARMING:
            self._alarms += 1
            if self._alarms > ALARMS:
                self.dropped += 1
                return
        elif not self._fits(event.key):
            self.dropped += 1
            return
        self._buffer.append((time.time(), event, ON_BEHALF.get()))

    def note(self, key: str, event: str, fence: int = 0, **facts: Any) -> None:
        """Records that this happened to the stored key, on behalf of the current caller."""
        if self._fits(key):
            self._buffer.append((time.time(), Noted(key, event, fence, facts), ON_BEHALF.get()))
        else:
            self.dropped += 1

    def _fits(self, key: str) -> bool:
        """True if there is room for an event of this key. Over the budget, the share of the keys that are kept is
        halved, from the next write on; a key that is kept is kept with all its events."""
        if self._share and zlib.crc32(key.encode("utf-8", "replace")) & ((1 << self._share) - 1):
            return False
        self._kept += 1
        return self._kept <= 2 * BUDGET  # at once, when the load has just begun to rise

    def rows(self) -> list[Row]:
        """The rows of what was buffered, which is emptied."""
        buffered, self._buffer = self._buffer, []
        if self._kept > BUDGET:
            self._share = min(20, self._share + 1)
        elif self._share and self._kept < BUDGET // 4:
            self._share -= 1
        self._alarms = self._samples = self._kept = 0
        found: dict[tuple[str, float, str], Row] = {}  # a row that grew twice is written once
        for each in buffered:
            row = self._row(each)
            found[row["name"], row["at"], row["id"]] = row
        return list(found.values())

    def _row(self, one: _Unwritten) -> Row:
        at, what, by = one
        if isinstance(what, Noted):
            event, fence, facts = what.event, what.fence, what.facts
        else:
            facts = facts_of_event(what)
            event, fence = word(type(what)), facts.pop("fence", 0)
            if event == "marked" and not facts["first"]:
                event = "seen"
        who = str(by) if by is not None else self._here
        kind, _, name = what.key.partition("/")
        first = self._folded(at, (what.key, event, fence, who), event) if event in _REPEATED else self._fresh(at)
        return {
            "kind": kind,
            "name": name,
            "at": first.at,
            "id": first.id,
            "event": event,
            "fence": fence,
            "who": without_nul(who),
            "facts": without_nul(msgspec.json.encode(facts).decode()),
            "times": first.times,
            "last": at,
            "grade": _grade(what, event, facts),
        }

    def _fresh(self, at: float) -> _Fold:
        self._count += 1
        return _Fold(at, f"{self._worker}{self._count:012x}", 1)

    def _folded(self, at: float, key: tuple[object, ...], event: str) -> _Fold:
        """The row to which this repetition belongs, counted; a new one after a while."""
        known = self._folds.pop(key, None)
        if known is None or at - known.at > FOLD.get(event, FOLD_OTHERS):
            known = self._fresh(at)
        else:
            known = known._replace(times=known.times + 1)
        self._folds[key] = known
        if len(self._folds) > FOLDED:
            self._folds.popitem(last=False)
        return known


def _grade(what: events.Event | Noted, event: str, facts: dict[str, Any]) -> int:
    """Which share of the room the event takes: that of what went wrong or needed somebody, of the usual, or of
    samples."""
    notable = (
        event in _NOTABLE
        or facts.get("outcome", "released") not in ("released", "done", "acked")
        or bool(facts.get("superseded"))
        or facts.get("attempt", 1) > 1
    )
    return WRONG if notable else SAMPLE if type(what) in _SAMPLED else USUAL
