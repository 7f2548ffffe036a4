"""The memory store's own promises: bounds, what makes room for what, what it costs, and who shares it."""

import logging
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from solely.errors import InvalidInput, StoreError, StoreFull
from solely.formats import write_watermark
from solely.model import Entry, State
from solely.ops import Ack, Acquire, Advance, Clear, Finish, Hit, Mark, Push, Read, Release, Take, Unhit
from solely.stores import open_store
from solely.stores.memory import Memory, MemoryStore
from solely.testing.clock import ManualClock
from solely.testing.harness import Harness


@pytest.fixture
def small(clock: ManualClock) -> Harness:
    return Harness(MemoryStore(Memory(clock=clock, max_size=3)))


def states(store: Harness, *keys: str) -> list[str]:
    return [store.one(Read(key)).state for key in keys]


def test_the_oldest_finished_entry_makes_room(small: Harness) -> None:
    small.perform(Mark("mark/1", "o", 100), Acquire("claim/2", "o", 9), Mark("mark/3", "o", 100))
    small.one(Finish("claim/2", "o", b"b", 100))
    small.one(Mark("mark/4", "o", 100))
    assert states(small, "mark/1", "claim/2", "mark/3", "mark/4") == ["free", "done", "done", "done"]
    small.one(Mark("mark/5", "o", 100))
    assert states(small, "claim/2", "mark/3", "mark/4", "mark/5") == ["done", "free", "done", "done"]


def test_a_refused_mark_does_not_make_an_entry_younger(small: Harness) -> None:
    small.perform(*(Mark(f"mark/{n}", "o", 100) for n in (1, 2, 3)), Mark("mark/1", "p", 100), Mark("mark/4", "o", 100))
    assert states(small, "mark/1", "mark/2") == ["free", "done"]


def test_a_mark_made_again_after_its_expiry_is_young(small: Harness, clock: ManualClock) -> None:
    small.perform(Mark("mark/1", "o", 1), Mark("mark/2", "o", 100), Mark("mark/3", "o", 100))
    clock.advance(1)
    small.perform(Mark("mark/1", "p", 100), Mark("mark/4", "o", 100))
    assert states(small, "mark/1", "mark/2") == ["done", "free"]


def test_what_may_not_be_evicted_is_not_and_the_store_says_that_it_is_full(small: Harness) -> None:
    small.perform(Acquire("lock/held", "o", 9), Push("queue", "job", b""), Advance("watermark/w", write_watermark(1)))
    for op in (
        Acquire("lock/new", "o", 9),
        Mark("mark/new", "o", 9),
        Advance("watermark/new", write_watermark(1)),
        Push("queue", "new", b""),
        Hit("limit/new", "o", 1, 9),
    ):
        (reply,) = small.perform(op)
        assert isinstance(reply, StoreFull), op
        assert "max_size=3" in str(reply)
        assert reply.key
    assert states(small, "lock/held", "watermark/w") == ["held", "done"]
    assert small.one(Take("queue", "taker", 9)) is not None


def test_a_limit_is_not_evicted(clock: ManualClock) -> None:
    store = Harness(MemoryStore(Memory(clock=clock, max_size=1)))
    assert store.one(Hit("limit/a", "o", 1, 9)).allowed
    with pytest.raises(StoreFull):
        store.one(Mark("mark/a", "o", 9))
    assert not store.one(Hit("limit/a", "p", 1, 9)).allowed
    assert store.one(Unhit("limit/a", "o"))
    assert store.one(Mark("mark/a", "o", 9))


def test_a_full_store_still_performs_what_needs_no_room(small: Harness) -> None:
    small.perform(*(Acquire(f"lock/{n}", "o", 9) for n in (1, 2, 3)))
    replies = small.perform(
        Acquire("lock/4", "o", 9), Acquire("lock/1", "p", 9), Release("lock/2", "o"), Acquire("lock/5", "o", 9)
    )
    full, refused, released, granted = replies
    assert isinstance(full, StoreError)  # and its neighbours do not suffer from it
    assert isinstance(refused, Entry)
    assert refused.state is State.HELD
    assert released == "released"
    assert isinstance(granted, Entry)
    assert granted.owner == "o"


def test_room_comes_back_when_things_end(small: Harness, clock: ManualClock) -> None:
    """Ends of every kind, far more than the bound: none leaves anything behind for longer than a minute."""
    year = 366 * 86_400.0
    for n in range(50):
        small.one(Acquire("lock/revoked", f"{n}", year))
        small.one(Release("lock/revoked", f"{n}", revoke=True))
        small.one(Mark(f"mark/{n}", "o", year))
        small.one(Clear(f"mark/{n}", small.one(Read(f"mark/{n}")).fence, "forget"))
        clock.advance(60)
        small.perform(Push("queue", f"{n}", b""), Take("queue", f"{n}", 1), Ack("queue", f"{n}", f"{n}"))
        small.one(Acquire(f"lock/kept/{n}", "o", year))
        small.one(Release(f"lock/kept/{n}", "o", keep=30))
        small.one(Hit(f"limit/{n}", "o", 1, 60))
        clock.advance(60)


def test_a_limit_in_use_is_not_taken_for_a_quiet_one(small: Harness, clock: ManualClock) -> None:
    small.one(Hit("limit/a", "1", 2, 10))
    clock.advance(9)
    small.one(Hit("limit/a", "2", 2, 10))
    clock.advance(2)
    small.one(Mark("mark/purges", "o", 1))
    assert small.one(Hit("limit/a", "3", 2, 10)).hits == 2
    assert not small.one(Hit("limit/a", "4", 2, 10)).allowed


def test_evictions_are_logged_early_and_without_a_flood(small: Harness, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "solely"):
        small.perform(*(Mark(f"mark/{n}", "o", 100) for n in range(3 + 1_000)))
    records = [record for record in caplog.records if record.getMessage().startswith("store_eviction: ")]
    assert [vars(record)["count"] for record in records] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert {vars(record)["max_size"] for record in records} == {3}
    assert all(vars(record)["current_size"] <= 3 for record in records)
    assert {record.levelname for record in records} == {"WARNING"}


def calls_made_by(work: Callable[[], object]) -> int:
    """How many Python and C functions are called: the cost of work, without a stopwatch."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("ttl", [1_000.0, 0.5])
def test_the_cost_of_an_op_does_not_grow_with_the_store(clock: ManualClock, ttl: float) -> None:
    """Evicting (a long ttl) and forgetting (a short one) cost the same in a store ten times the size."""

    def cost(size: int) -> float:
        store = MemoryStore(Memory(clock=clock, max_size=size))

        def churn() -> None:
            for n in range(5 * size):
                if n % 100 == 0:
                    clock.advance(0.1)
                store.perform([Mark(f"mark/{n}", "o", ttl)])

        return calls_made_by(churn) / (5 * size)

    assert cost(5_000) < 1.2 * cost(500)


def test_holds_that_were_released_leave_no_work_behind(clock: ManualClock) -> None:
    store = MemoryStore(Memory(clock=clock))

    def pairs() -> None:
        for n in range(1_000):
            store.perform([Acquire("lock/a", f"{n}", 100)])
            store.perform([Release("lock/a", f"{n}")])

    first = calls_made_by(pairs)
    assert calls_made_by(pairs) < 1.1 * first
    assert store.memory.size() == 0


def test_a_named_memory_is_shared_and_an_unnamed_one_is_not(clock: ManualClock) -> None:
    here, there = (Harness(open_store("memory://shared-by-two", clock=clock)) for _ in range(2))
    alone = Harness(open_store("memory://", clock=clock))
    here.one(Acquire("lock/a", "o", 9))
    assert there.one(Read("lock/a")).state is State.HELD
    assert alone.one(Read("lock/a")).state is State.FREE
    ear = there.listen()
    there.one(Acquire("lock/a", "p", 9, client=there.client))
    here.one(Release("lock/a", "o"))
    assert ear.received("lock/a")
    here.close()
    assert there.one(Acquire("lock/a", "p", 9, client=there.client)).owner == "p"


def test_a_closed_client_is_told_nothing_more(clock: ManualClock) -> None:
    here, there = (Harness(open_store("memory://one-leaves", clock=clock)) for _ in range(2))
    ear = there.listen()
    here.perform(Acquire("lock/a", "o", 9), Acquire("lock/a", "p", 9, client=there.client))
    there.close()
    here.one(Release("lock/a", "o"))
    assert "lock/a" not in ear.hints


@pytest.mark.parametrize("query", ["max_size=0", "max_size=-1", "max_size=many", "max_size=", "colour=blue"])
def test_an_option_that_cannot_be_is_named(query: str) -> None:
    with pytest.raises(InvalidInput, match="max_size=<entries"):
        open_store(f"memory://?{query}")


def test_max_size_is_taken_from_the_url() -> None:
    store = Harness(open_store("memory://?max_size=1"))
    store.one(Acquire("lock/a", "o", 9))
    with pytest.raises(StoreFull):
        store.one(Acquire("lock/b", "o", 9))
    assert "1 of at most 1" in store.check()[0].text


def test_a_real_clock_expires_too() -> None:
    store = Harness(open_store("memory://"))
    assert 8.9 < store.one(Acquire("lock/a", "o", 9)).left <= 9.0
    assert store.one(Mark("mark/a", "o", 9))
    assert 8.9 < store.one(Read("mark/a")).left <= 9.0
