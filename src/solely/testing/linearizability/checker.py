"""Decides whether a history is linearizable: whether each operation can be given one moment between its begin and its
end, so that the operations, in the order of these moments, do what a model allows.

The search is that of Wing and Gong with Lowe's memory of what was tried. Keys are independent of each other, so each is
searched alone.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from .history import Operation

S = TypeVar("S", bound=Hashable)

_LOOK = 4_096  # steps between two looks at the clock


class Model(Protocol[S]):
    """What a key may do. `steps` returns the states after the operation: none if it is not possible in this state."""

    def initial(self) -> S: ...
    def steps(self, state: S, operation: Operation) -> Iterable[S]: ...


class LinearizabilityVerdict(NamedTuple):
    """`ok` only if every key was searched and has an order. Otherwise `key` is the first that has none, or that took
    longer than allowed (`undecided`); `order` is the longest beginning that was found, `blocking` what did not fit."""

    ok: bool
    operations: int
    keys: int
    key: str = ""
    undecided: bool = False
    order: tuple[Operation, ...] = ()
    blocking: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        if self.ok:
            return f"linearizable: {self.operations:,} operations on {self.keys:,} keys"
        if self.undecided:
            return f"undecided, which counts as a failure: {self.key} took longer than allowed"
        lines = [f"not linearizable: {self.key}. The longest order that was found:"]
        lines += [f"  {_shown(each)}" for each in self.order[-12:]]
        return "\n".join([*lines, "after which none of these is possible:", *(f"  {_shown(e)}" for e in self.blocking)])


def check_history(history: Iterable[Operation], model: Model[S], *, timeout: float = 60.0) -> LinearizabilityVerdict:
    """The verdict on all keys of the history; `timeout` seconds are for each key."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    count = sum(map(len, by_key.values()))
    for key, operations in sorted(by_key.items()):
        found = _Search(operations, model).run(time.monotonic() + timeout)
        if found is not None:
            return LinearizabilityVerdict(False, count, len(by_key), key, *found)
    return LinearizabilityVerdict(True, count, len(by_key))


class _Event:
    """The begin or the end of an operation, in a linked list that is ordered by time."""

    __slots__ = ("after", "before", "end", "number")

    def __init__(self, number: int, end: _Event | None) -> None:
        self.number = number
        self.end = end  # of a begin: the event of its end. None: this is an end
        self.before: _Event | None = None
        self.after: _Event | None = None


class _Tried(NamedTuple, Generic[S]):
    """An operation that was put into the order, how to go on if that was wrong, and what was before it."""

    event: _Event
    others: Iterator[S]
    state: S
    chosen: int


class _Search(Generic[S]):
    """The search over the operations of one key."""

    def __init__(self, operations: Sequence[Operation], model: Model[S]) -> None:
        self._operations = operations
        self._model = model
        self._head = _linked(operations)
        self._open = sum(not each.answered for each in operations)
        self._longest: list[_Tried[S]] = []
        self._blocked = 0
        self._seen: set[tuple[int, S]] = set()

    def run(self, deadline: float) -> tuple[bool, tuple[Operation, ...], tuple[Operation, ...]] | None:
        """None if there is an order; else whether the time was over, and the longest beginning with what blocks it."""
        state, chosen, left = self._model.initial(), 0, len(self._operations) - self._open
        tried: list[_Tried[S]] = []
        event, looks = self._head.after, 0
        others: Iterator[S] | None = None
        while left:
            looks += 1
            if looks % _LOOK == 0 and time.monotonic() > deadline:
                return self._failure(True)
            assert event is not None
            if event.end is not None:  # a begin: try the operation here
                operation = self._operations[event.number]
                others = others or iter(self._model.steps(state, operation))
                now = chosen | 1 << event.number
                after = next((each for each in others if self._is_new(now, each)), None)
                if after is None:
                    event, others = event.after, None
                    continue
                tried.append(_Tried(event, others, state, chosen))
                state, chosen, others = after, now, None
                left -= operation.answered
                _take_out(event)
                event = self._head.after
                continue
            if len(tried) >= len(self._longest):  # an end: its operation should have happened by now
                self._longest, self._blocked = tried.copy(), chosen
            if not tried:
                return self._failure(False)
            event, others, state, chosen = tried.pop()
            left += self._operations[event.number].answered
            _put_back(event)
        return None

    def _is_new(self, chosen: int, state: S) -> bool:
        """True once: the same operations in another order, with the same state, have the same future."""
        known = len(self._seen)
        self._seen.add((chosen, state))
        return len(self._seen) > known

    def _failure(self, undecided: bool) -> tuple[bool, tuple[Operation, ...], tuple[Operation, ...]]:
        order = tuple(self._operations[each.event.number] for each in self._longest)
        rest = [each for at, each in enumerate(self._operations) if not self._blocked >> at & 1]
        first_end = min((each.end for each in rest), default=math.inf)
        blocking = tuple(each for each in rest if each.begin <= first_end)
        return undecided, order, blocking


def _linked(operations: Sequence[Operation]) -> _Event:
    """The head of the list of begins and ends. Of two at the same time the begin is first: they may overlap."""
    events: list[tuple[float, bool, int, _Event]] = []
    for number, operation in enumerate(operations):
        end = _Event(number, None)
        events.append((operation.begin, False, number, _Event(number, end)))
        events.append((operation.end if operation.answered else math.inf, True, number, end))
    head = last = _Event(-1, None)
    for *_, event in sorted(events, key=lambda each: each[:3]):
        last.after, event.before = event, last
        last = event
    return head


def _take_out(begin: _Event) -> None:
    for event in (begin, begin.end):
        assert event is not None
        assert event.before is not None
        event.before.after = event.after
        if event.after is not None:
            event.after.before = event.before


def _put_back(begin: _Event) -> None:
    for event in (begin.end, begin):
        assert event is not None
        assert event.before is not None
        event.before.after = event
        if event.after is not None:
            event.after.before = event


def _shown(each: Operation) -> str:
    given = ", ".join(map(repr, each.input))
    until = f"{each.end:.6f}" if math.isfinite(each.end) else "?"
    return f"{each.begin:.6f} to {until}  {each.name}({given}) by {each.owner or '?'} → {each.output!r}"
