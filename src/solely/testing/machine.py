"""A Hypothesis state machine that compares a store with the memory model, op by op, on one manual clock.

def test_my_store_behaves_as_the_model(tmp_path):
    clock = ManualClock()
    run_machine(MyStore(tmp_path, clock=clock), clock)
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ..errors import StoreError
from ..formats import write_watermark
from ..model import Allowance, Entry, LeasedItem, NoItem, item_key, line_key
from ..ops import (
    Ack,
    Acquire,
    Advance,
    Amend,
    Clear,
    Count,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Reply,
    Resume,
    Return,
    Take,
    Unhit,
)
from ..stores import Store
from ..stores.memory import Memory, MemoryStore
from .clock import ManualClock
from .harness import fresh

EXAMPLES, STEPS = 200, 30
PER = 2.0  # seconds: the window of every limit
_TOLERANCE = 0.002  # seconds: a store may round the time left to the millisecond

_NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)

# How the clock moves before a batch: not at all; by a period that some store remembers something for; or to a time at
# which something expires by one of the last replies, or a millisecond before or after it.
_moves: st.SearchStrategy[float | tuple[int, float]] = st.one_of(
    st.just(0.0),
    st.sampled_from([0.001, 0.020, 1.0, 2.0, 10.0, 30.0, 59.999, 60.0, 100.0]),
    st.tuples(st.integers(0, 3), st.sampled_from([-0.001, 0.0, 0.0, 0.001])),
)

# There are few keys and owners, so that ops conflict. Keys and queues are names within an example; the fence of a Clear
# is the index of a fence that the admin saw under that key.
_owners = st.sampled_from(["o1", "o2", "o3"])
_clients = st.sampled_from(["", "A", "B", "C"])
_ttls = st.sampled_from([0.02, 1.0, 10.0, 100.0])
_delays = st.sampled_from([0.0, 0.0, 0.02, 10.0])
_payloads = st.sampled_from([b"", b"\0", b"1", b"10", b"9", b"\xff"])
_results = st.sampled_from([b"b", b"b\0", b"b1", b"j10", b"t9", b"b\xff"])
_moments = st.sampled_from([*(write_watermark(n) for n in (-(2**63), -1, 9, 10)), write_watermark(_NEW_YEAR)])
_prints = st.sampled_from(["", "f"])
_flags = st.booleans()
_seen = st.integers(0, 3)
_fences = st.sampled_from([0, 0, 1])  # 0: unknown; 1: older than the data of any store
_why = st.just("why")
_keys = st.sampled_from(["claim/a", "claim/a", "claim/a", "claim/b"])
_marks = st.sampled_from(["mark/a", "mark/a", "mark/b"])
_watermarks = st.just("watermark/a")
_kinds = st.sampled_from(["claim/", "mark/", "watermark/", "item/"])
_limits = st.sampled_from(["limit/a", "limit/b"])
_queues = st.sampled_from(["q", "q", "q/r"])
_ids = st.sampled_from(["i", "j", "k"])
_items = st.builds(item_key, _queues, _ids)

_ENTRY_OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Acquire, _keys, _owners, _ttls, _prints, _clients, _delays, _prints, _flags, _flags),
    st.builds(lambda key, owner, ttl, client: Acquire(key, owner, ttl, client=client), _keys, _owners, _ttls, _clients),
    st.builds(Renew, _keys, _owners, _ttls),
    st.builds(Resume, _keys, _owners, _owners, _ttls, _prints),
    st.builds(Finish, _keys, _owners, _results, _ttls),
    st.builds(Release, _keys, _owners, _flags, _delays, _delays, _fences),
    st.builds(lambda key, owner: Release(key, owner), _keys, _owners),
    st.builds(Read, _keys),
    st.builds(Clear, _keys, _seen, _why),
)
_MARK_OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Mark, _marks, _owners, _ttls),
    st.builds(Mark, _marks, _owners, _ttls, _flags),
    st.builds(lambda key, owner, revoke: Release(key, owner, revoke), _marks, _owners, _flags),
    st.builds(Read, _marks),
    st.builds(Clear, _marks, _seen, _why),
)
_WATERMARK_OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Advance, _watermarks, _moments),
    st.builds(Read, _watermarks),
    st.builds(Clear, _watermarks, _seen, _why),
)
_LIMIT_OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Hit, _limits, st.sampled_from("abcdefgh"), st.integers(1, 4), st.just(PER)),
    st.builds(Unhit, _limits, st.sampled_from("abcdefgh")),
)
_QUEUE_OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Push, _queues, _ids, _payloads, _delays),
    st.builds(Take, _queues, _owners, _ttls, st.one_of(st.just(""), _ids), _clients),
    st.builds(lambda queue, owner: Release(line_key(queue), owner), _queues, _owners),
    st.builds(Read, st.builds(line_key, _queues)),
    st.builds(Ack, _queues, _ids, _owners, st.just(0)),
    st.builds(Return, _queues, _ids, _owners, _delays, _flags),
    st.builds(Amend, _queues, _ids, st.one_of(st.none(), _payloads), _payloads),
    st.builds(Count, _queues),
    st.builds(Renew, _items, _owners, _ttls),
    st.builds(Resume, _items, _owners, _owners, _ttls, _prints),
    st.builds(Read, _items),
    st.builds(Clear, _items, _seen, _why),
)
_EVERYTHING = st.one_of(_ENTRY_OPS, _MARK_OPS, _WATERMARK_OPS, _LIMIT_OPS, _QUEUE_OPS)

# Each example uses ops of one theme, so that thirty steps reach deep states; entries have the most states.
_THEMES = [
    _ENTRY_OPS,
    _ENTRY_OPS,
    _ENTRY_OPS,
    _ENTRY_OPS,
    _MARK_OPS,
    _QUEUE_OPS,
    _QUEUE_OPS,
    _LIMIT_OPS,
    _WATERMARK_OPS,
    _EVERYTHING,
]


class StoreMachine(RuleBasedStateMachine):
    """Performs the same ops on a store and on a new model; fails at the first reply that differs."""

    store: Store
    clock: ManualClock

    @initialize(theme=st.sampled_from(range(len(_THEMES))))
    def begin(self, theme: int) -> None:
        self.batches = st.lists(_THEMES[theme], min_size=1, max_size=8)
        self.model = MemoryStore(Memory(clock=self.clock))
        self.part = fresh("part")
        self.hit_at: dict[tuple[str, str], float] = {}
        self.fences: dict[str, list[tuple[int, int]]] = {}  # key → (the model's, the store's), in order
        self.ends: deque[float] = deque([0.0], maxlen=4)  # times at which something expires, by the last replies

    @rule(move=_moves, data=st.data())
    def perform(self, move: float | tuple[int, float], data: st.DataObject) -> None:
        self._advance(move)
        ops = [self._named(op) for op in data.draw(self.batches, "batch") if self._defined(op)]
        theirs = self.store.perform([self._fenced(op, 1) for op in ops])
        ours = self.model.perform([self._fenced(op, 0) for op in ops])
        assert len(theirs) == len(ours)
        for op, expected, got in zip(ops, ours, theirs, strict=True):
            self._same(op, expected, got)

    def _advance(self, move: float | tuple[int, float]) -> None:
        if isinstance(move, tuple):
            which, offset = move
            move = max(0.0, self.ends[which % len(self.ends)] + offset - self.clock())
        self.clock.advance(move)

    @rule(kind=_kinds, after=_keys, limit=st.integers(1, 9), paged=_flags)
    def scan(self, kind: str, after: str, limit: int, paged: bool) -> None:
        prefix = f"item/{self.part}" if kind == "item/" else f"{kind}{self.part}/"
        start = self._within(after) if paged else ""
        theirs, ours = self.store.scan(prefix, start, limit), self.model.scan(prefix, start, limit)
        assert [entry.key for entry in theirs] == [entry.key for entry in ours]
        for expected, got in zip(ours, theirs, strict=True):
            self._same(Read(expected.key), expected, got)

    def _defined(self, op: Op) -> bool:
        """False for the Unhit of a hit whose window is over: a store may or may not have evicted that hit."""
        moment = (op.key, op.owner) if isinstance(op, Hit | Unhit) else None
        if moment is not None and isinstance(op, Hit):
            self.hit_at.setdefault(moment, self.clock())
            if self.clock() - self.hit_at[moment] >= PER:
                self.hit_at[moment] = self.clock()
        return not isinstance(op, Unhit) or self.clock() - self.hit_at.get((op.key, op.owner), 0.0) < PER

    def _within(self, key: str) -> str:
        kind, _, name = key.partition("/")
        return f"{kind}/{self.part}{name}" if kind in ("item", "line") else f"{kind}/{self.part}/{name}"

    def _named(self, op: Any) -> Op:
        named: Op = (
            op._replace(queue=self.part + op.queue) if hasattr(op, "queue") else op._replace(key=self._within(op.key))
        )
        return named

    def _fenced(self, op: Op, side: int) -> Op:
        """Returns the op with the fence that this side (0: model, 1: store) issued to the entry that the admin saw."""
        if not isinstance(op, Clear):
            return op
        seen = self.fences.get(op.key)
        return op._replace(fence=seen[-1 - op.fence % len(seen)][side] if seen else 1)

    def _same(self, op: Op, expected: Reply | StoreError, got: Reply | StoreError) -> None:
        left = getattr(expected, "left", 0.0) or getattr(expected, "retry_after", 0.0)
        if 0 < left < float("inf"):
            self.ends.append(self.clock() + left)
        message = f"{op}: the model says {expected}, the store {got}"
        assert type(got) is type(expected), message
        match expected, got:
            case Entry(), Entry():
                self._same_fence(expected.key, expected.fence, got.fence, message)
                assert abs(expected.left - got.left) <= _TOLERANCE or expected.left == got.left, message
                assert expected._replace(fence=0, left=0.0) == got._replace(fence=0, left=0.0), message
            case LeasedItem(), LeasedItem():
                assert isinstance(op, Take)
                self._same_fence(item_key(op.queue, got.id), expected.fence, got.fence, message)
                assert abs(expected.left - got.left) <= _TOLERANCE, message
                assert expected._replace(fence=0, left=0.0) == got._replace(fence=0, left=0.0), message
            case NoItem(), NoItem():
                assert abs(expected.left - got.left) <= _TOLERANCE or expected.left == got.left, message
            case Allowance(), Allowance():
                assert abs(expected.retry_after - got.retry_after) <= _TOLERANCE, message
                assert expected[:2] == got[:2], message
            case _:
                assert got == expected, message

    def _same_fence(self, key: str, expected: int, got: int, message: str) -> None:
        """Fences may differ as numbers but must have the same order, and be equal where the model's are equal."""
        assert (expected == 0) == (got == 0), message
        seen = self.fences.setdefault(key, [])
        if expected == 0 or (expected, got) in seen:
            return
        assert all(expected > before and got > other for before, other in seen), message
        seen.append((expected, got))


def run_machine(
    store: Store, clock: ManualClock, *, examples: int = EXAMPLES, steps: int = STEPS, shrink: bool = True
) -> None:
    """Passes if the store, which was opened with this clock, replies as the model does; every run is the same.

    Raises AssertionError on a difference, by default with the shortest history that Hypothesis finds for it.
    """
    machine = type("Machine", (StoreMachine,), {"store": store, "clock": clock})
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )
    run_state_machine_as_test(machine, settings=how)
