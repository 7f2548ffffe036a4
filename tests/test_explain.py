"""explain says who has a name, since when, until when, and why a call would be refused; on every store."""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import solely
from solely import Client, State, StoreError, values
from solely.ops import Acquire, Finish, Op, Release, Reply
from solely.stores import open_store
from solely.stores.memory import Memory, MemoryStore
from solely.testing.clock import ManualClock
from tests.client_modes import refusing_client, result_of

DAY = 86_400.0


@pytest.fixture
def perform(store_url: str) -> Iterator[Callable[..., list[Any]]]:
    """Ops of nobody's client."""
    store = open_store(store_url)
    yield lambda *ops: store.perform(ops)
    store.close()


async def test_a_free_name_has_nothing_to_say(open_client: Callable[..., Any], store_url: str) -> None:
    found = await result_of(open_client(store_url).explain("a"))
    assert found.why == ()
    assert {side.state for side in found.sides} == {State.FREE}
    assert str(found) == "a\n  free: nothing is held, done or waited for under this name"
    with pytest.raises(KeyError):
        found["nosuch"]


async def test_a_lock_that_is_held_and_waited_for(
    open_client: Callable[..., Any], store_url: str, mode: str, perform: Callable[..., Any]
) -> None:
    once, other = open_client(store_url), open_client(store_url)
    lease = await result_of(once.lock("deploy", ttl=30, purpose="release 1.2"))
    wait = (lambda: asyncio.to_thread(once.lock, "deploy")) if mode == "blocking" else (lambda: once.lock("deploy"))
    waiters = [asyncio.ensure_future(_released(wait())) for _ in range(2)]
    perform(Acquire("lock/deploy", "elsewhere", 10, client="another process"))
    async with asyncio.timeout(10):
        while once._driver.waiters.waiting("lock/deploy") < 2:
            await asyncio.sleep(0.005)
    found = await result_of(once.explain("deploy"))
    side = found["lock"]
    assert (side.state, side.fence, side.attempts, side.here) == (State.HELD, lease.fence, 1, True)
    assert 25 < side.left <= 30
    assert abs(datetime.now(UTC) - side.since) < timedelta(seconds=10)
    assert "pid" in side.holder
    assert (side.waiting_here, side.waiters >= 1) == (2, True)
    text = str(found)
    for words in ("deploy", "(release 1.2)", "(this client)", f"fence {lease.fence}", "2 callers wait here"):
        assert words in text
    assert "lock() waits and try_lock() is refused" in found.why[0]
    abroad = (await result_of(other.explain("deploy")))["lock"]
    assert (abroad.here, abroad.waiting_here, abroad.fence) == (False, 0, lease.fence)
    perform(Release("lock/deploy", "elsewhere"))
    await result_of(lease.release())
    await asyncio.wait_for(asyncio.gather(*waiters), 20)


async def _released(pending: Any) -> None:
    lease = await pending
    await result_of(lease.release())


async def test_every_side_of_a_name_is_told(open_client: Callable[..., Any], store_url: str, perform: Any) -> None:
    once = open_client(store_url)
    who = '{"host":"web-3","pid":4711,"since":1800000000,"purpose":"charge"}'
    perform(
        Acquire("claim/a", "o", 30, who),
        Acquire("reservation/a", "o", 30, who),
        Acquire("reservation/a", "p", 30, counted=True),
        Acquire("lock/a", "o", 30),
        Release("lock/a", "o", delay=1_800),
    )
    await result_of(once.mark("a", ttl=3 * DAY))
    await result_of(once.watermark("a").advance(-7))
    found = await result_of(once.explain("a"))
    states = {side.kind: side.state for side in found.sides}
    assert states == {
        "lock": State.CLOSED, "mark": State.DONE, "claim": State.HELD, "reservation": State.HELD,
        "watermark": State.DONE, "breaker": State.FREE, "limit": State.FREE, "schedule": State.FREE,
        "queue": State.FREE,
    }  # fmt: skip
    assert found["claim"].holder == "web-3 pid 4711 (charge) since 08:00:00 UTC"
    assert found["claim"].since == datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert found["reservation"].refused == 1
    assert found["watermark"].left == float("inf")
    text = str(found)
    for words in (
        "it is closed for another 30 min", "first() returns False", "expires in 3 days", "claim() waits for",
        "reserve() is suppressed (reserved)", "1 refused", "its value is -7", "kept for ever",
    ):  # fmt: skip
        assert words in text, words
    assert "breaker" not in text
    assert len(found.why) == 4


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (values.encode({"id": 1}), "its result is kept: 8 bytes"),
        (values.failure(ValueError("no funds")), "failed and is not run again: ValueError: no funds"),
        (values.tombstone("too large"), "was not kept: too large"),
        (b"?", "claim 'a'"),
    ],
    ids=["result", "failure", "tombstone", "foreign"],
)
async def test_what_is_kept_of_a_claim_is_told(
    open_client: Callable[..., Any], kept: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = open_client("memory://")
    monkeypatch.setattr("solely.stores.memory.data.check_ops", lambda ops: None)  # a newer version's kinds
    once._store.memory.perform([Acquire("claim/a", "o", 30), Finish("claim/a", "o", kept, 600)])
    once._store.memory.perform([Acquire("reservation/a", "o", 30), Finish("reservation/a", "o", b"", 0.5)])
    found = await result_of(once.explain("a"))
    assert words in str(found)
    assert found["claim"].size == len(kept)
    assert "does not run the work again: it is finished, and its outcome expires in 10 min" in found["claim"].why
    assert "suppressed (quiet) for another 0." in found["reservation"].why


async def test_an_open_breaker_is_told(open_client: Callable[..., Any], mode: str) -> None:
    once = open_client("memory://")
    breaker = once.breaker("gitlab", threshold=1)
    with pytest.raises(RuntimeError):
        if mode == "blocking":
            with breaker:
                raise RuntimeError("down")
        async with breaker:
            raise RuntimeError("down")
    found = await result_of(once.explain("gitlab"))
    assert "open, or half-open" in str(found)
    assert "the breaker is not closed" in found.why[0]


class Counting(MemoryStore):
    """Counts the round trips."""

    trips = 0

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        self.trips += 1
        return super().perform(ops)


async def test_a_limit_that_refuses_calls_is_told_with_its_hits_and_the_time_of_the_next(
    open_client: Callable[..., Any], store_url: str, clock: ManualClock
) -> None:
    once, other = open_client(store_url, clock=clock), open_client(store_url, clock=clock)
    for _ in range(2):
        assert await result_of(once.limit("api", limit=2, per=600))
    assert (await result_of(once.explain("api"))).why == ()
    refused = await result_of(once.limit("api", limit=2, per=600))
    assert not refused
    found = await result_of(other.explain("api"))
    side = found["limit"]
    assert side.left == pytest.approx(refused.retry_after, abs=0.01)
    assert side.value == "2 hits, of at most 2 in any 10 min"
    assert found.why == ("limit() refuses calls: the next one is allowed in 10 min",)
    assert "limit        reached" in str(found)
    clock.advance(601)
    assert (await result_of(other.explain("api"))).why == ()


async def test_a_limit_that_a_hit_was_given_back_to_is_free_again(
    open_client: Callable[..., Any], store_url: str
) -> None:
    once = open_client(store_url)
    allowed = await result_of(once.limit("api", limit=1, per=600))
    assert not await result_of(once.limit("api", limit=1, per=600))
    assert [info.key for info in await result_of(once.limits())] == ["api"]
    assert await result_of(allowed.undo())
    assert (await result_of(once.explain("api"))).why == ()
    assert await result_of(once.limits()) == []


async def test_a_queue_and_its_items_are_told(
    open_client: Callable[..., Any], store_url: str, clock: ManualClock
) -> None:
    once = open_client(store_url, clock=clock)
    queue = once.queue("mail")
    for id in ("a", "b", "c"):
        await result_of(queue.push(id, {"to": id}))
    await result_of(queue.push("later", {}, delay=600))
    assert (await result_of(queue.take(ttl=60))).id == "a"
    found = await result_of(once.explain("mail"))
    assert found["queue"].value == "4 items: 2 wait, 1 taken, 1 delayed"
    assert found.why == ()
    for id in ("b", "c"):
        assert (await result_of(queue.take(ttl=60))).id == id
    found = await result_of(once.explain("mail"))
    assert (found["queue"].state, found["queue"].left) == (State.HELD, pytest.approx(60, abs=0.01))
    assert found.why == ("take() returns None: the next item is available in 60.0 s",)
    taken = (await result_of(once.explain("mail/a")))["item"]
    assert (taken.state, taken.attempts) == (State.HELD, 1)
    assert taken.why == "take() does not return it: another caller has it, for 60.0 s unless renewed"
    later = (await result_of(once.explain("mail/later")))["item"]
    assert later.why == "take() does not return it: it is delayed for another 10 min"
    assert "item" not in str(await result_of(once.explain("mail/none")))


def test_it_changes_nothing_and_reads_all_entries_in_one_round_trip() -> None:
    store = Counting(Memory())
    with Client(store=store) as once, once.lock("a"):
        before = store.trips
        assert once.explain("a")["lock"].here
        assert store.trips == before + 1
        assert [entry.key for entry in store.scan("", "", 100)] == ["lock/a"]


@pytest.mark.parametrize("key", ["", "k" * 513, 7, "a\0", None], ids=repr)
async def test_names_that_cannot_be(mode: str, key: Any) -> None:
    with pytest.raises(solely.InvalidInput, match="key"):
        await result_of(refusing_client(mode).explain(key))


async def test_a_schedule_says_when_it_is_due_and_how_it_ended(open_client: Callable[..., Any], mode: str) -> None:
    once = open_client(f"memory://{secrets.token_hex(8)}")

    async def nothing(tick: Any) -> None: ...

    await result_of(once.every("report", "0 3 * * *").run_due(nothing if mode == "asyncio" else print))
    side = (await result_of(once.explain("report")))["schedule"]
    assert side.value == "it has not run yet"
    assert side.why.startswith("run_due() runs nothing: the next tick is due in ")
