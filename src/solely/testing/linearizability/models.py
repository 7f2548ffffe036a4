"""What a lock, a mark, a claim, a reservation and a queue may answer, as models for `check_history`.

Holds expire, which is no operation of any client: a model knows the earliest and the latest moment at which one can
have expired, from the times of the operations that began and extended it. `now` is the earliest moment at which the
last operation can have happened; none after it happened before.

What a model allows is never less than what a store does; `drift` is by how much the store's clock may go faster or
slower than that of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .history import UNANSWERED, Operation

DRIFT = 0.01  # of a duration: clocks of servers differ by far less, their timers are coarse
OFFER = 1.0  # seconds for which a released key may stay offered to one waiter: 20 ms, on a busy machine more


class Holding(NamedTuple):
    """Who holds a key (nobody: ""), and between which moments the hold can have expired."""

    owner: str = ""
    earliest: float = 0.0
    latest: float = 0.0  # of a key that nobody holds: until when it may be offered to a waiter


class LockState(NamedTuple):
    hold: Holding = Holding()
    fence: int = 0
    now: float = 0.0


class Timed:
    """Clocks that may differ by `drift`."""

    def __init__(self, drift: float = DRIFT, offer: float = OFFER) -> None:
        self._drift = drift
        self._offer = offer

    def _held(self, operation: Operation, now: float, ttl: float, owner: str = "") -> Holding:
        """A hold that begins with this operation."""
        earliest = now + ttl * (1 - self._drift)
        latest = min(operation.end, now + _LONG) + ttl * (1 + self._drift)
        return Holding(owner or operation.owner, earliest, latest)

    def _freed(self, operation: Operation, now: float) -> Holding:
        return Holding("", 0.0, min(operation.end, now + _LONG) + self._offer)


_LONG = 3_600.0  # seconds: an unanswered operation may happen late, but no history is longer


class LockModel(Timed):
    """One holder at a time, and growing fences.

    acquire(ttl) → fence, 0 if refused · renew(ttl) → bool · release() → bool, False if lost · resume(successor, ttl) →
    fence, 0 if refused: of the hold of the operation's owner, which its successor has from then on · wipe() by the
    injector of faults: all is lost but the clock, and fences grow nevertheless.
    """

    def initial(self) -> LockState:
        return LockState()

    def steps(self, state: LockState, operation: Operation) -> Iterator[LockState]:
        now = max(state.now, operation.begin)
        if now <= operation.end:
            steps = {
                "acquire": self._acquire,
                "renew": self._renew,
                "resume": self._resume,
                "release": self._release,
                "wipe": self._wipe,
            }
            yield from steps[operation.name](state, operation, now)

    def _acquire(self, state: LockState, operation: Operation, now: float) -> Iterator[LockState]:
        if operation.output == 0:
            if now <= state.hold.latest:
                yield state._replace(now=now)
            return
        now = max(now, state.hold.earliest) if state.hold.owner else now
        fence = state.fence if operation.output == UNANSWERED else operation.output
        if now <= operation.end and (fence > state.fence or operation.output == UNANSWERED):
            yield LockState(self._held(operation, now, operation.input[0]), fence, now)

    def _renew(self, state: LockState, operation: Operation, now: float) -> Iterator[LockState]:
        hold, mine = state.hold, state.hold.owner == operation.owner
        if operation.output is not False and mine and now <= hold.latest:
            longer = self._held(operation, now, operation.input[0])
            both = Holding(hold.owner, max(hold.earliest, longer.earliest), max(hold.latest, longer.latest))
            yield state._replace(hold=both, now=now)
        if operation.output is False:
            yield from self._lost(state, operation, now)

    def _resume(self, state: LockState, operation: Operation, now: float) -> Iterator[LockState]:
        if operation.output == 0:
            yield from self._lost(state, operation, now)
            return
        successor, ttl = operation.input
        fence = state.fence if operation.output == UNANSWERED else operation.output
        mine = state.hold.owner == operation.owner and now <= state.hold.latest
        if mine and (fence > state.fence or operation.output == UNANSWERED):
            yield LockState(self._held(operation, now, ttl, str(successor)), fence, now)

    def _release(self, state: LockState, operation: Operation, now: float) -> Iterator[LockState]:
        mine = state.hold.owner == operation.owner
        if operation.output is not False and mine and now <= state.hold.latest:
            yield state._replace(hold=self._freed(operation, now), now=now)
        if operation.output is False:
            yield from self._lost(state, operation, now)

    def _lost(self, state: LockState, operation: Operation, now: float) -> Iterator[LockState]:
        """It is somebody else's, or has expired."""
        if state.hold.owner == operation.owner:
            now = max(now, state.hold.earliest)
        if now <= operation.end:
            yield state._replace(now=now)

    def _wipe(self, state: LockState, operation: Operation, now: float) -> Iterator[LockState]:
        yield LockState(Holding(), state.fence, now)


class MarkState(NamedTuple):
    earliest: float = 0.0  # at which the mark can have expired; 0 if there is none
    latest: float = -1.0  # until when there may be a mark
    now: float = 0.0


class MarkModel(Timed):
    """One first caller per window. first(ttl) → bool · seen() → bool · forget() → bool, True if it was marked."""

    def initial(self) -> MarkState:
        return MarkState()

    def steps(self, state: MarkState, operation: Operation) -> Iterator[MarkState]:
        now = max(state.now, operation.begin)
        if now <= operation.end:
            steps = {"first": self._first, "seen": self._seen, "forget": self._forget}
            yield from steps[operation.name](state, operation, now)

    def _first(self, state: MarkState, operation: Operation, now: float) -> Iterator[MarkState]:
        if operation.output is False:
            yield from _if_marked(state, now)
            return
        for free in _if_unmarked(state, operation, now):
            held = self._held(operation, free.now, operation.input[0])
            yield MarkState(held.earliest, held.latest, free.now)

    def _seen(self, state: MarkState, operation: Operation, now: float) -> Iterator[MarkState]:
        yield from _if_marked(state, now) if operation.output else _if_unmarked(state, operation, now)

    def _forget(self, state: MarkState, operation: Operation, now: float) -> Iterator[MarkState]:
        if operation.output is False:
            yield from _if_unmarked(state, operation, now)
        elif now <= state.latest:
            yield MarkState(now=now)


def _if_marked(state: MarkState, now: float) -> Iterator[MarkState]:
    if now <= state.latest:
        yield state._replace(now=now)


def _if_unmarked(state: MarkState, operation: Operation, now: float) -> Iterator[MarkState]:
    now = max(now, state.earliest)
    if now <= operation.end:
        yield state._replace(now=now)


class ClaimState(NamedTuple):
    hold: Holding = Holding()
    value: str | None = None  # None: not published
    fence: int = 0
    now: float = 0.0


class ClaimModel(Timed):
    """One result per key, which all get.

    claim(ttl) → fence if won, ("value", value) if published, 0 if held by another · publish(value, keep) → bool, False
    if superseded · release() → bool. A publication is accepted from the last winner until another wins.
    """

    def initial(self) -> ClaimState:
        return ClaimState()

    def steps(self, state: ClaimState, operation: Operation) -> Iterator[ClaimState]:
        now = max(state.now, operation.begin)
        if now <= operation.end:
            steps = {"claim": self._claim, "publish": self._publish, "release": self._release}
            yield from steps[operation.name](state, operation, now)

    def _claim(self, state: ClaimState, operation: Operation, now: float) -> Iterator[ClaimState]:
        output, hold = operation.output, state.hold
        if isinstance(output, tuple):
            if state.value == output[1] and now <= hold.latest:
                yield state._replace(now=now)
            return
        if output == 0:
            if state.value is None and now <= hold.latest:
                yield state._replace(now=now)
            return
        now = max(now, hold.earliest) if hold.owner or state.value is not None else now
        fence = state.fence if output == UNANSWERED else output
        if now <= operation.end and (fence > state.fence or output == UNANSWERED):
            yield ClaimState(self._held(operation, now, operation.input[0]), None, fence, now)

    def _publish(self, state: ClaimState, operation: Operation, now: float) -> Iterator[ClaimState]:
        value, keep = operation.input
        mine = state.hold.owner == operation.owner
        if operation.output is not False and mine:
            yield ClaimState(self._held(operation, now, keep), str(value), state.fence, now)
        if operation.output is False and not mine:
            yield state._replace(now=now)

    def _release(self, state: ClaimState, operation: Operation, now: float) -> Iterator[ClaimState]:
        mine = state.hold.owner == operation.owner and state.value is None
        if operation.output is not False and mine:
            yield ClaimState(self._freed(operation, now), None, state.fence, now)
        if operation.output is False:
            now = max(now, state.hold.earliest) if mine else now
            if now <= operation.end:
                yield state._replace(now=now)


class ReservationModel(ClaimModel):
    """One sender at a time, and a quiet window after each record.

    reserve(hold) → fence if granted, 0 if another reserved it or it is quiet · record(quiet) → bool · release() → bool.
    """

    def steps(self, state: ClaimState, operation: Operation) -> Iterator[ClaimState]:
        if operation.name == "record":
            operation = operation._replace(name="publish", input=("recorded", *operation.input))
        elif operation.name == "reserve":
            operation = operation._replace(name="claim")
            if operation.output == 0 and state.value is not None:
                operation = operation._replace(output=("value", state.value))
        yield from super().steps(state, operation)


class QueueItem(NamedTuple):
    id: str
    hold: Holding = Holding()


class QueueState(NamedTuple):
    items: tuple[QueueItem, ...] = ()
    now: float = 0.0


class QueueModel(Timed):
    """Each item is with one taker at a time until it is acknowledged, and is never delivered after that. The key is the
    queue's name.

    push(id) → bool, False if it is there · take(ttl) → id, "" if none is available · ack(id) → bool, also True if the
    item was removed before · give_back(id) → bool.
    """

    def initial(self) -> QueueState:
        return QueueState()

    def steps(self, state: QueueState, operation: Operation) -> Iterator[QueueState]:
        now = max(state.now, operation.begin)
        if now <= operation.end:
            steps = {"push": self._push, "take": self._take, "ack": self._ack, "give_back": self._give_back}
            yield from steps[operation.name](state, operation, now)

    def _push(self, state: QueueState, operation: Operation, now: float) -> Iterator[QueueState]:
        id, there = operation.input[0], {each.id for each in state.items}
        if operation.output is not False and id not in there:
            yield QueueState((*state.items, QueueItem(id)), now)
        if operation.output is False and id in there:
            yield state._replace(now=now)

    def _take(self, state: QueueState, operation: Operation, now: float) -> Iterator[QueueState]:
        if operation.output == "":
            if all(each.hold.owner and now <= each.hold.latest for each in state.items):
                yield state._replace(now=now)
            return
        for item in state.items:
            if operation.output in (item.id, UNANSWERED):
                taken = max(now, item.hold.earliest) if item.hold.owner else now
                if taken <= operation.end:
                    hold = self._held(operation, taken, operation.input[0])
                    yield QueueState(_replaced(state.items, item, item._replace(hold=hold)), taken)

    def _ack(self, state: QueueState, operation: Operation, now: float) -> Iterator[QueueState]:
        if operation.output is not False and all(each.id != operation.input[0] for each in state.items):
            yield state._replace(now=now)
        yield from self._settle(state, operation, now, None)

    def _give_back(self, state: QueueState, operation: Operation, now: float) -> Iterator[QueueState]:
        yield from self._settle(state, operation, now, QueueItem(operation.input[0]))

    def _settle(
        self, state: QueueState, operation: Operation, now: float, after: QueueItem | None
    ) -> Iterator[QueueState]:
        mine = next((e for e in state.items if e.id == operation.input[0] and e.hold.owner == operation.owner), None)
        if operation.output is not False and mine is not None:
            yield QueueState(_replaced(state.items, mine, after), now)
        if operation.output is False:
            now = max(now, mine.hold.earliest) if mine is not None else now
            if now <= operation.end:
                yield state._replace(now=now)


def _replaced(items: tuple[QueueItem, ...], old: QueueItem, new: QueueItem | None) -> tuple[QueueItem, ...]:
    return tuple(new if each is old else each for each in items if each is not old or new is not None)  # type: ignore[misc]
