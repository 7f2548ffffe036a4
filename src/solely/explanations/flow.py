"""Explain: everything that the store has under one name, and why a call would be refused; changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from .. import values
from ..breakers.flow import state_of
from ..errors import NotKept, Unreadable, WorkFailed
from ..flow import Flow, Scan, replies_or_raise
from ..holder import describe, since_of
from ..leases.flow import Here
from ..limits.flow import NOTES, info_of
from ..model import Entry, State, item_key
from ..ops import Read
from ..queues.flow import queue_of
from ..rules import MOST_LISTED
from ..schedules.state import RunReport
from ..schedules.timetable import moment
from ..watermarks import flow as watermark

TICK = "tick"  # of a schedule, which is shown under that word
KINDS = ("lock", "mark", "claim", "reservation", "watermark", "breaker", NOTES, TICK)
_PART = 50  # items per scan: at 256 KiB each, 13 MiB in memory at worst
_SHOWN = {NOTES: "limit", TICK: "schedule"}


@dataclass(frozen=True, slots=True)
class Side:
    """One kind of entry under the name. `waiters` are processes queued in the store, `waiting_here` callers of this
    client; `here`: this client holds it; `value` describes the stored value; `why` is empty if a call would succeed."""

    kind: str
    state: State
    holder: str
    here: bool
    since: datetime | None
    left: float
    fence: int
    attempts: int
    refused: int
    waiters: int
    waiting_here: int
    size: int
    value: str
    why: str

    @property
    def known(self) -> bool:
        """True if the entry exists or has waiters."""
        return bool(self.state is not State.FREE or self.attempts or self.waiters or self.waiting_here or self.value)

    def __str__(self) -> str:
        lines = [_headline(self), _counts(self), self.value, self.why]
        return "\n".join(
            f"  {head:<12} {line}" for head, line in zip((self.kind, "", "", ""), _non_empty(lines), strict=False)
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that the store has under a name, per kind; `str()` is text for people. A limit is included while it
    refuses calls, a queue while it has items."""

    key: str
    sides: tuple[Side, ...]

    def __getitem__(self, kind: str) -> Side:
        """The side of this kind; raises KeyError if there is no such kind."""
        for side in self.sides:
            if side.kind == kind:
                return side
        raise KeyError(kind)

    @property
    def why(self) -> tuple[str, ...]:
        """Why calls for this name would be refused; empty if all would succeed."""
        return tuple(side.why for side in self.sides if side.why)

    def __str__(self) -> str:
        known = [str(side) for side in self.sides if side.known]
        return "\n".join([self.key, *(known or ["  free: nothing is held, done or waited for under this name"])])


def explain(key: str, here: Here, waiting: Callable[[str], int]) -> Flow[Explanation]:
    """All sides of the name; `waiting` counts the waiters of this process. A name with a slash may also be that of an
    item, after its queue."""
    queue, _, id = key.rpartition("/")
    reads = [Read(f"{kind}/{key}") for kind in KINDS]
    if queue and id:
        reads.append(Read(item_key(queue_of(queue), id)))
    entries: list[Entry] = replies_or_raise((yield reads))
    items = yield from _items_of(key)
    sides = [_side(entry, entry.key in here, waiting(entry.key)) for entry in entries]
    return Explanation(key, (*sides, _queue(items)))


def _items_of(queue: str) -> Flow[list[Entry]]:
    """The first items of the queue, read in parts and kept without their payloads."""
    found, last = list[Entry](), ""
    for _ in range(MOST_LISTED // _PART):
        page: list[Entry] = yield Scan(item_key(queue_of(queue), ""), last, _PART)
        found += [entry._replace(value=b"") for entry in page if entry.value is not None]
        if len(page) < _PART:
            break
        last = page[-1].key
    return found


def _side(entry: Entry, here: bool, waiting: int) -> Side:
    limit = entry.kind == NOTES
    holder = "" if limit else describe(entry.info)
    return Side(
        kind=_SHOWN.get(entry.kind, entry.kind),
        state=entry.state,
        holder=holder,
        here=here and entry.state is State.HELD,
        since=since_of(entry.info),
        left=entry.left,
        fence=entry.fence,
        attempts=entry.attempts,
        refused=entry.refused,
        waiters=entry.waiters,
        waiting_here=waiting,
        size=len(entry.value or b""),
        value=_value(entry),
        why=_why(entry, holder or "another owner"),
    )


def _queue(items: list[Entry]) -> Side:
    """The queue of this name: free if an item can be taken now, or if there is none."""
    taken, delayed = ([item.left for item in items if item.state is state] for state in (State.HELD, State.CLOSED))
    waiting, soonest = len(items) - len(taken) - len(delayed), min((*taken, *delayed), default=0.0)
    state = State.FREE if waiting or not items else State.HELD if taken else State.CLOSED
    more = " at least" if len(items) == MOST_LISTED else ""
    counts = [_items(waiting, "waits", "wait"), _items(len(taken), "taken"), _items(len(delayed), "delayed")]
    value = f"{_many(len(items), 'item', 'items')}{more}: {', '.join(_non_empty(counts))}" if items else ""
    why = "" if state is State.FREE else f"take() returns None: the next item is available in {_seconds(soonest)}"
    left = soonest if state is not State.FREE else 0.0
    return Side("queue", state, "", False, None, left, 0, 0, 0, 0, 0, 0, value, why)


def _items(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 or not more else more}" if count else ""


def _value(entry: Entry) -> str:
    if entry.kind == NOTES and entry.state is State.HELD:
        info = info_of(entry)
        return f"{info.hits} hits, of at most {info.limit} in any {_seconds(info.per)}"
    if entry.kind == "item" and entry.value is not None:
        return f"its payload is stored: {_many(len(entry.value), 'byte', 'bytes')}"
    if entry.state is not State.DONE or entry.value is None:
        return ""
    try:
        return _kept(entry, entry.value)
    except Unreadable as why:
        return f"unreadable: {why}"


def _kept(entry: Entry, value: bytes) -> str:
    if entry.kind == "watermark":
        return f"its value is {watermark.decode(value)}"
    if entry.kind == TICK:
        return _last_run(entry)
    if entry.kind == "breaker":
        return "closed" if state_of(entry).closed else "open, or half-open during a trial"
    if entry.kind != "claim":
        return ""
    try:
        values.decode(value, entry.name)
    except (WorkFailed, NotKept) as instead:
        return str(instead)
    return f"its result is kept: {_many(len(value) - 1, 'byte', 'bytes')}"


def _last_run(entry: Entry) -> str:
    report = RunReport.read(entry)
    if report is None or not report.tick:
        return "it has not run yet"
    how = f"failed: {report.outcome}" if report.outcome else "was done"
    return f"its last tick, of {moment(report.tick):%Y-%m-%d %H:%M:%S} UTC, {how}, by {report.by}"


def _breaker(entry: Entry) -> str:
    try:
        closed = state_of(entry).closed
    except Unreadable:
        return "calls fail: the state of the breaker is unreadable"
    return "" if closed else "calls are refused, except for one trial: the breaker is not closed"


def _why(entry: Entry, holder: str) -> str:
    """Why a call would be refused now; "" if it would succeed."""
    kind, left = entry.kind, _seconds(entry.left)
    if entry.state is State.CLOSED and kind == "item":
        return f"take() does not return it: it is delayed for another {left}"
    if entry.state is State.CLOSED:
        return f"it is closed for another {left}: a delay after the last hold, or an offer to the first waiter"
    if entry.state is State.HELD:
        return {
            "lock": f"lock() waits and try_lock() is refused: {holder} holds it",
            "claim": f"claim() waits for the result of {holder}",
            "reservation": f"reserve() is suppressed (reserved): {holder} is sending",
            TICK: f"run_due() runs nothing: {holder} runs the tick",
            NOTES: f"limit() refuses calls: the next one is allowed in {left}",
            "item": f"take() does not return it: another caller has it, for {left} unless renewed",
        }.get(kind, "")
    if entry.state is State.DONE:
        return {
            "breaker": _breaker(entry) if kind == "breaker" else "",
            "mark": f"first() returns False: it was seen, and the mark expires in {left}",
            "claim": f"claim() does not run the work again: it is finished, and its outcome expires in {left}",
            "reservation": f"reserve() is suppressed (quiet) for another {left}",
            TICK: f"run_due() runs nothing: the next tick is due in {left}",
        }.get(kind, "")
    return ""


# -- for people

_OWN_WORDS: dict[str, dict[State, str]] = {
    "limit": {State.HELD: "reached", State.FREE: "free", State.CLOSED: "free", State.DONE: "free"},
    "queue": {State.HELD: "no item is available", State.CLOSED: "no item is available", State.FREE: "available"},
    "item": {State.HELD: "taken", State.CLOSED: "delayed", State.FREE: "waits", State.DONE: "done"},
}


def _headline(side: Side) -> str:
    who = f" by {side.holder}" if side.holder else ""
    if side.kind in _OWN_WORDS:
        return _OWN_WORDS[side.kind][side.state]
    if side.state is State.HELD:
        mine = " (this client)" if side.here else ""
        return f"held{who}{mine}, for another {_seconds(side.left)} unless renewed"
    if side.state is State.DONE:
        return f"done{who}, kept for {'ever' if side.left == float('inf') else _seconds(side.left)}"
    return str(side.state)


def _counts(side: Side) -> str:
    parts = [
        f"fence {side.fence}" if side.fence else "",
        f"attempt {side.attempts}" if side.attempts else "",
        f"{side.refused} refused" if side.refused else "",
        f"{_many(side.waiters, 'process waits', 'processes wait')} at the store" if side.waiters else "",
        f"{_many(side.waiting_here, 'caller waits', 'callers wait')} here" if side.waiting_here else "",
    ]
    return ", ".join(_non_empty(parts))


def _non_empty(texts: list[str]) -> list[str]:
    return [text for text in texts if text]


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _seconds(left: float) -> str:
    """The duration for people: 12.3 s, 14 min, 23 h, 12 days."""
    for least, unit, size in ((2 * 86_400, "days", 86_400), (2 * 3_600, "h", 3_600), (120, "min", 60)):
        if left >= least:
            return f"{left / size:.0f} {unit}" if left < float("inf") else "ever"
    return f"{left:.1f} s"
