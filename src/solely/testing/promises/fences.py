"""Promises about fences: each is max(last + 1, the store's clock in µs), whichever op issues it."""

from __future__ import annotations

from ...errors import StoreError
from ...formats import write_watermark
from ...model import item_key
from ...ops import Acquire, Advance, Mark, Op, Push, Read, Release
from ..clock import ManualClock
from ..harness import Harness, fresh

Issues = Acquire | Mark | Advance | Push

# How far (in fences, one per µs) a store may be ahead of that maximum: batches reserve some, less than one second's
# worth. Fences further ahead would go back when a key moves to another store, or when all data is lost.
_AHEAD = 1_000_000


class FencePromises:
    """Every op that issues a fence."""

    def test_fences_follow_the_clock_of_a_store_in_use(self, store: Harness, clock: ManualClock) -> None:
        keys, marks = ([fresh(f"{kind}/clocked") for _ in range(9)] for kind in ("lock", "mark"))
        watermark, queue = fresh("watermark/clocked"), fresh("clocked")
        self._check(store, clock, *(Acquire(key, "together", ttl=10) for key in keys))
        self._check(store, clock, *(Acquire(key, "with more", ttl=10, fingerprint="abc") for key in keys))
        self._check(store, clock, Acquire(fresh("lock/clocked"), "alone", ttl=10))
        self._check(store, clock, Acquire(keys[0], "after one that expired", ttl=10_000))
        self._check(
            store, clock, Acquire(keys[0], "passed on", ttl=10), before=[Release(keys[0], "after one that expired")]
        )
        self._check(store, clock, *(Mark(mark, "together", 10) for mark in marks))
        self._check(store, clock, Mark(fresh("mark/clocked"), "alone", 10))
        self._check(store, clock, Mark(marks[0], "after one that expired", 10))
        self._check(store, clock, Advance(watermark, write_watermark(1)))
        self._check(store, clock, Advance(watermark, write_watermark(2)))
        self._check(store, clock, Push(queue, "item", b"payload"))

    def _check(self, store: Harness, clock: ManualClock, *ops: Issues, before: list[Op] | None = None) -> None:
        """Fences that these ops issue, an hour after all earlier ones, are neither behind the clock nor far ahead."""
        last = store.one(Acquire(fresh("lock/last"), "me", ttl=10)).fence
        clock.advance(3_600)
        now = round(clock() * 1_000_000)
        replies = store.perform(*(before or []), *ops)
        assert not [reply for reply in replies if isinstance(reply, StoreError)], replies
        for op in ops:
            key = item_key(op.queue, op.id) if isinstance(op, Push) else op.key
            fence = store.one(Read(key)).fence
            assert now <= fence <= max(last, now) + _AHEAD, f"{op}: {(fence - now) / 1e6:+.6f} s from the clock"
