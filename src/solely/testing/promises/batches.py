"""Promises about batches: ops run in order, each gets its own reply, and a batch is not a transaction."""

from __future__ import annotations

from ...formats import write_watermark
from ...model import Allowance, Entry, Released, State
from ...ops import (
    OPS,
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
from ..harness import Harness, fresh


class BatchPromises:
    """Many ops in one call of perform()."""

    def test_an_empty_batch_returns_no_replies(self, store: Harness) -> None:
        assert store.perform() == []

    def test_a_batch_can_contain_every_op_and_each_sees_the_effect_of_those_before(self, store: Harness) -> None:
        lock, claim, part = fresh("lock/batch"), fresh("claim/batch"), fresh("batch")
        expected: list[tuple[Op, Reply | State]] = [
            (Acquire(lock, "a", 10), State.HELD),
            (Renew(lock, "a", 20), State.HELD),
            (Read(lock), State.HELD),
            (Clear(lock, 1, "not this"), False),
            (Resume(lock, "a", "b", 20), State.HELD),
            (Release(lock, "a"), Released.RESUMED),
            (Release(lock, "b"), Released.RELEASED),
            (Read(lock), State.FREE),
            (Acquire(claim, "a", 10), State.HELD),
            (Finish(claim, "a", b"bv", 10), State.DONE),
            (Acquire(claim, "b", 10), State.DONE),
            (Mark(f"mark/{part}", "a", 10), True),
            (Mark(f"mark/{part}", "b", 10), False),
            (Advance(f"watermark/{part}", write_watermark(1)), State.DONE),
            (Unhit(f"limit/{part}", "a"), False),
            (Hit(f"limit/{part}", "a", 1, 10), Allowance(True, 1)),
            (Unhit(f"limit/{part}", "a"), True),
            (Take(part, "t", 10), None),
            (Push(part, "job", b"p"), True),
            (Push(part, "job", b"q"), False),
            (Return(part, "job", "t"), False),
            (Ack(part, "job", "t"), False),
            (Amend(part, "job", b"q", b"p"), True),
            (Amend(part, "job", None, b"p"), False),
            (Count(part), 1),
            (Amend(part, "job", None, b"q"), True),
            (Count(part), 0),
        ]
        assert {type(op) for op, _ in expected} == set(OPS)
        replies = store.perform(*(op for op, _ in expected))
        assert [r.state if isinstance(r, Entry) else r for r in replies] == [answer for _, answer in expected]

    def test_a_refused_op_does_not_affect_the_others(self, store: Harness) -> None:
        keys = [fresh("lock/neighbour") for _ in range(3)]
        store.one(Acquire(keys[1], "holder", 10))
        replies = store.perform(*(Acquire(key, "me", 10) for key in keys))
        assert [isinstance(r, Entry) and r.owner for r in replies] == ["me", "", "me"]

    def test_a_thousand_ops_are_answered_in_order(self, store: Harness) -> None:
        part = fresh("thousand")
        keys = [f"mark/{part}/{n:04}" for n in range(500)]
        replies = store.perform(*(Mark(key, "a", 10) for key in keys), *(Read(key) for key in keys))
        assert replies[:500] == [True] * 500
        assert [r.key for r in replies[500:] if isinstance(r, Entry) and r.state is State.DONE] == keys

    def test_a_batch_of_large_values_is_performed_completely(self, store: Harness) -> None:
        keys = [fresh("claim/large") for _ in range(8)]
        value = b"b" + bytes(range(256)) * 1_000
        store.perform(*(Acquire(key, "a", 10) for key in keys))
        replies = store.perform(*(Finish(key, "a", value, 10) for key in keys), *(Read(key) for key in keys))
        assert [isinstance(r, Entry) and r.value == value for r in replies] == [True] * 16

    def test_the_same_batch_sent_again_returns_the_same_replies(self, store: Harness) -> None:
        lock, part = fresh("lock/again"), fresh("again")
        batch = (Acquire(lock, "a", 10), Mark(f"mark/{part}", "a", 10), Hit(f"limit/{part}", "a", 1, 10))
        assert store.perform(*batch) == store.perform(*batch)
