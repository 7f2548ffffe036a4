"""Dead letters are parked once, replayed by one at a time under their own key, and never lost; on every store."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

import solely
from solely import LetterOutcome, StoreError, events, values
from solely.dead_letters import flow as deadletter
from solely.dead_letters import replay
from solely.errors import Interrupted, Unanswered
from solely.flow import Ask
from solely.model import State
from solely.ops import Acquire, Clear, Finish, Op, Push, Read, Release, Reply
from solely.rules import local_clock
from solely.stores import open_store
from solely.stores.memory import AsyncMemoryStore, Memory, MemoryStore
from solely.testing.clock import ManualClock
from tests.client_modes import refusing_client, result_of
from tests.lateness import measured_lateness

DAY = 86_400.0
PARKED = values.failure(ValueError("parked"))


@pytest.fixture
def once(open_client: Callable[..., Any], store_url: str) -> Any:
    return open_client(store_url)


@pytest.fixture
def perform(store_url: str) -> Iterator[Callable[..., list[Any]]]:
    """Ops of nobody's client."""
    store = open_store(store_url)
    yield lambda *ops: store.perform(ops)
    store.close()


class Handler:
    """Remembers what it was given; fails as long as it is told to. A coroutine function where that is wanted."""

    def __init__(self, mode: str, *, failing: bool = False) -> None:
        self.mode, self.failing, self.given = mode, failing, list[Any]()

    def __call__(self, payload: Any) -> Any:
        return self._awaited(payload) if self.mode == "asyncio" else self._run(payload)

    def _run(self, payload: Any) -> Any:
        self.given.append(payload)
        if self.failing:
            raise RuntimeError(f"cannot handle {payload}")
        return {"handled": payload}

    async def _awaited(self, payload: Any) -> Any:
        await asyncio.sleep(0)
        return self._run(payload)


# -- parking


async def test_a_letter_says_what_failed_and_how(once: Any) -> None:
    box = once.dead_letters("signals")
    before = datetime.now(UTC)
    pushed = await result_of(
        box.push({"id": 7, "ü": [None, 1.5]}, error=ValueError("bad"), key="signal:7", origin="h0und")
    )
    raw = await result_of(box.push(b"\0\xff", error="it said no", attempts=4))
    assert pushed == await result_of(box.inspect("signal:7"))
    assert (pushed.id, pushed.group, pushed.key, pushed.attempts) == ("signal:7", "signals", "signal:7", 1)
    assert pushed.payload == {"id": 7, "ü": [None, 1.5]}
    assert (pushed.first_error, pushed.last_error, pushed.origin) == ("ValueError: bad", "ValueError: bad", "h0und")
    assert before <= pushed.first_at == pushed.last_at <= datetime.now(UTC)
    assert (raw.payload, raw.attempts, raw.key, raw.last_error) == (b"\0\xff", 4, "", "it said no")
    assert "pid" in raw.origin
    assert sorted(await result_of(box.list()), key=lambda letter: letter.id) == sorted(
        [pushed, raw], key=lambda x: x.id
    )
    assert await result_of(box.count()) == 2
    assert await result_of(once.dead_letters("others").count()) == 0
    assert await result_of(box.inspect("nobody")) is None


async def test_the_same_item_that_fails_again_is_one_letter(once: Any, open_client: Any, store_url: str) -> None:
    box, other = once.dead_letters("g"), open_client(store_url).dead_letters("g")
    for key, id in (("k", "k"), ("", None)):
        first = await result_of(box.push([1, 2], error="first", key=key, attempts=2))
        again = await result_of(other.push([1, 2], error=KeyError("second"), key=key, attempts=3))
        third = await result_of(box.push([1, 2], error="third", key=key))
        assert first.id == again.id == third.id == (id or first.id)
        assert (again.attempts, third.attempts) == (5, 6)
        assert (third.first_error, third.last_error) == ("first", "third")
        assert third.first_at == first.first_at <= again.last_at <= third.last_at
        assert third == await result_of(other.inspect(third.id))
    assert await result_of(box.count()) == 2
    named = await result_of(box.push([1, 2], error="e", key="k", id="apart"))
    assert (named.id, named.attempts) == ("apart", 1)


async def test_long_and_strange_names_are_kept(once: Any) -> None:
    for group, id in (("g" * 512, "i" * 512), ("/%:" * 100, "ключ/ %2F\n🔑")):
        box = once.dead_letters(group)
        await result_of(box.push("x", error="e", id=id))
        again = await result_of(box.push("x", error="f", id=id))
        assert await result_of(box.list()) == [again]
        assert (again.id, again.group, again.attempts) == (id, group, 2)
        assert await result_of(box.purge(id)) == 1


async def test_pages_and_filters(once: Any, perform: Any) -> None:
    at = datetime.now(UTC)
    perform(*(deadletter.letter("g", n, error="odd" if n % 2 else "even", at=at, id=f"{n:03}") for n in range(130)))
    box = once.dead_letters("g")
    assert [x.payload for x in await result_of(box.list())] == list(range(100))
    assert [x.payload for x in await result_of(box.list(after="099"))] == list(range(100, 130))
    assert [x.payload for x in await result_of(box.list(limit=3, where=lambda x: x.last_error == "odd"))] == [1, 3, 5]
    assert await result_of(box.count()) == 130
    assert await result_of(box.count(lambda x: x.payload >= 120)) == 10
    assert await result_of(box.purge(where=lambda x: x.last_error == "odd")) == 65
    assert await result_of(box.purge("000")) == 1
    assert await result_of(box.purge("000")) == 0
    assert await result_of(box.purge(all=True, reason="test")) == 64
    assert await result_of(box.count()) == 0


# -- replaying


async def test_a_replay_that_succeeds_ends_the_letter_and_its_key(once: Any, mode: str, perform: Any) -> None:
    box, handler = once.dead_letters("g"), Handler(mode)
    for key in ("k", ""):
        letter = await result_of(box.push([key], error="first", key=key))
        await result_of(box.push([key], error="second", key=key))
        report = await result_of(box.replay(letter.id, handler))
        assert (report.outcome, report.value, report.error) == (LetterOutcome.REPLAYED, {"handled": [key]}, None)
        assert await result_of(box.inspect(letter.id)) is None
        assert (await result_of(box.replay(letter.id, handler))).outcome is LetterOutcome.GONE
    assert handler.given == [["k"], [""]]
    assert await result_of(once.seen("k"))
    assert await result_of(box.count()) == 0
    claim, beside = perform(Read("claim/k"), Read("letter/dead%3Ag/k"))
    assert (claim.state, values.decode(claim.value, "k")) == (State.DONE, {"handled": ["k"]})
    assert beside.state is State.FREE
    again = await result_of(box.push([""], error="anew"))  # without a key nothing is deduplicated
    assert (await result_of(box.replay(again.id, handler))).outcome is LetterOutcome.REPLAYED


async def test_a_replay_that_fails_keeps_the_letter_with_one_more_attempt(once: Any, mode: str, perform: Any) -> None:
    box, handler = once.dead_letters("g"), Handler(mode, failing=True)
    await result_of(box.push("p", error="first", key="k", attempts=3))
    for attempts in (4, 5):
        report = await result_of(box.replay("k", handler))
        assert report.outcome is LetterOutcome.FAILED
        assert isinstance(report.error, RuntimeError)
        letter = await result_of(box.inspect("k"))
        assert (letter.attempts, letter.first_error) == (attempts, "first")
        assert letter.last_error == "RuntimeError: cannot handle p"
    assert perform(Read("claim/k"))[0].state is State.FREE
    assert not await result_of(once.seen("k"))
    handler.failing = False
    assert (await result_of(box.replay("k", handler))).outcome is LetterOutcome.REPLAYED


async def test_what_meanwhile_succeeded_is_not_run_again(once: Any, mode: str, perform: Any) -> None:
    box, handler = once.dead_letters("g"), Handler(mode)
    outcomes = {"marked": None, "claimed": values.encode(42), "not kept": values.tombstone("large")}
    for key, kept in outcomes.items():
        await result_of(box.push("p", error="e", key=key))
        await result_of(box.push("p", error="f", key=key))
        if kept is None:
            await result_of(once.mark(key))
        else:
            perform(Acquire(f"claim/{key}", "o", 30), Finish(f"claim/{key}", "o", kept, DAY))
        assert (await result_of(box.replay(key, handler))).outcome is LetterOutcome.SKIPPED
        assert await result_of(box.inspect(key)) is None
    assert handler.given == []
    assert perform(Read("claim/claimed"))[0].value == values.encode(42)
    assert perform(Read("claim/marked"))[0].state is State.FREE


async def test_a_mark_from_before_the_failure_says_begun_not_done(once: Any, mode: str) -> None:
    box, handler = once.dead_letters("g"), Handler(mode)
    assert await result_of(once.first("k"))
    await result_of(box.push("p", error="e", key="k"))
    assert (await result_of(box.replay("k", handler))).outcome is LetterOutcome.REPLAYED
    await result_of(once.forget("again"))
    assert await result_of(once.first("again"))
    await result_of(box.push("p", error="e", key="again"))
    await result_of(once.forget("again"))
    assert await result_of(once.first("again"))  # began, and fails, once more
    await result_of(box.push("p", error="e", key="again"))
    assert (await result_of(box.replay("again", handler))).outcome is LetterOutcome.REPLAYED


async def test_a_parked_claim_is_told_the_result_of_the_replay(once: Any, mode: str, perform: Any) -> None:
    box, handler = once.dead_letters("g"), Handler(mode, failing=True)
    perform(Acquire("claim/k", "o", 30, fingerprint="f"), Finish("claim/k", "o", PARKED, DAY))
    await result_of(box.push("p", error="e", key="k"))
    assert (await result_of(box.replay("k", handler))).outcome is LetterOutcome.FAILED
    (parked,) = perform(Read("claim/k"))
    assert (parked.state, parked.value, parked.fingerprint) == (State.DONE, PARKED, "f")
    assert DAY - 60 < parked.left <= DAY
    handler.failing = False
    assert (await result_of(box.replay("k", handler))).outcome is LetterOutcome.REPLAYED
    (done,) = perform(Read("claim/k"))
    assert (values.decode(done.value, "k"), done.fingerprint) == ({"handled": "p"}, "f")


async def test_what_somebody_runs_right_now_is_left_alone(once: Any, mode: str, perform: Any) -> None:
    box, handler = once.dead_letters("g"), Handler(mode)
    await result_of(box.push("p", error="e", key="k"))
    perform(Acquire("claim/k", "live", 30))
    assert (await result_of(box.replay("k", handler))).outcome is LetterOutcome.BUSY
    assert handler.given == []
    assert (await result_of(box.inspect("k"))).attempts == 1
    perform(Release("claim/k", "live"))
    assert (await result_of(box.replay("k", handler))).outcome is LetterOutcome.REPLAYED


async def test_the_letter_of_a_replayer_that_died_comes_back(
    open_client: Callable[..., Any], store_url: str, mode: str
) -> None:
    clock = ManualClock()
    if store_url.startswith("memory"):
        memory = Memory(clock=clock)
        stores = [MemoryStore(memory) if mode == "blocking" else AsyncMemoryStore(memory) for _ in range(2)]
        dying, alive = (open_client(store=store) for store in stores)
    else:
        dying, alive = (open_client(store_url, clock=clock) for _ in range(2))
    box, handler = alive.dead_letters("g"), Handler(mode)
    for key in ("k", ""):
        letter = await result_of(box.push([key], error="e", key=key))
        taken = await result_of(dying._run(replay.take("g", letter.id, "dies")))
        assert isinstance(taken, replay.LetterHold)
        clock.advance(replay.TTL - 0.01)
        assert (await result_of(box.replay(letter.id, handler))).outcome is LetterOutcome.BUSY
        clock.advance(0.02)
        assert (await result_of(box.replay(letter.id, handler))).outcome is LetterOutcome.REPLAYED
    assert handler.given == [["k"], [""]]


async def test_two_who_replay_all_run_each_letter_once(
    open_client: Callable[..., Any], store_url: str, mode: str, perform: Any
) -> None:
    at = datetime.now(UTC)
    perform(*(deadletter.letter("g", n, error="e", at=at, key=f"k{n}" if n % 2 else "") for n in range(8)))
    handlers = [Handler(mode) for _ in range(2)]
    boxes = [open_client(store_url).dead_letters("g") for _ in range(2)]
    seen: list[tuple[int, int]] = []

    async def replay_all(place: int) -> Any:
        call = boxes[place].replay_all
        progress = (lambda done, total: seen.append((done, total))) if place == 0 else None
        if mode == "blocking":
            return await asyncio.to_thread(call, handlers[place], progress=progress)
        return await call(handlers[place], progress=progress)

    one, other = await asyncio.gather(replay_all(0), replay_all(1))
    assert sorted(handlers[0].given + handlers[1].given) == list(range(8))
    assert (one + other)[LetterOutcome.REPLAYED] == 8
    assert seen == [(done, one.total()) for done in range(1, one.total() + 1)]
    assert await result_of(boxes[0].count()) == 0


async def test_what_another_has_run_and_failed_since_it_was_listed_is_not_run_again(
    open_client: Callable[..., Any], store_url: str, mode: str, perform: Any
) -> None:
    at = datetime.now(UTC)
    perform(*(deadletter.letter("g", n, error="e", at=at, key=f"k{n}" if n % 2 else "") for n in range(6)))
    slow, quick = (open_client(store_url).dead_letters("g") for _ in range(2))
    failing = Handler(mode, failing=True)
    others: list[Any] = []

    def while_another_does_all(payload: Any) -> Any:
        if not others:
            others.append(quick.replay_all(failing))
        return failing(payload)

    async def awaited(payload: Any) -> Any:
        if not others:
            others.append(await quick.replay_all(failing))
        return await failing(payload)

    mine = await result_of(slow.replay_all(while_another_does_all if mode == "blocking" else awaited))
    assert dict(mine) == {LetterOutcome.FAILED: 1, LetterOutcome.BUSY: 5}
    assert dict(others[0]) == {LetterOutcome.FAILED: 5, LetterOutcome.BUSY: 1}
    assert sorted(failing.given) == list(range(6))
    assert [letter.attempts for letter in await result_of(slow.list())] == [2] * 6


async def test_replay_all_takes_only_what_is_asked_for(once: Any, mode: str) -> None:
    box, handler = once.dead_letters("g"), Handler(mode)
    for n in range(4):
        await result_of(box.push(n, error="timeout" if n % 2 else "bug", key=f"k{n}"))
    told_of = await result_of(box.replay_all(handler, where=lambda letter: letter.last_error == "timeout"))
    assert (handler.given, dict(told_of)) == ([1, 3], {LetterOutcome.REPLAYED: 2})
    assert [letter.payload for letter in await result_of(box.list())] == [0, 2]


async def test_a_replay_whose_caller_is_cancelled_leaves_the_letter_as_it_was(
    open_client: Callable[..., Any], store_url: str, mode: str, perform: Any
) -> None:
    box, handler = open_client(store_url).dead_letters("g"), Handler(mode)
    perform(Acquire("claim/k", "o", 30), Finish("claim/k", "o", PARKED, DAY))
    for key in ("k", ""):
        before = await result_of(box.push([key], error="e", key=key))
        if mode == "blocking":

            def interrupted(payload: Any) -> None:
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                box.replay(before.id, interrupted)
        else:
            begun = asyncio.Event()

            async def hangs(payload: Any, begun: asyncio.Event = begun) -> None:
                begun.set()
                await asyncio.sleep(60)

            task = asyncio.ensure_future(box.replay(before.id, hangs))
            await asyncio.wait_for(begun.wait(), 100)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await result_of(box.inspect(before.id)) == before
        if key:
            assert perform(Read("claim/k"))[0].value == PARKED
        assert (await result_of(box.replay(before.id, handler))).outcome is LetterOutcome.REPLAYED


async def test_a_long_replay_is_renewed(
    open_client: Callable[..., Any], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ttl = 2.0  # seconds: a renewal may be late by half of it
    monkeypatch.setattr(replay, "TTL", ttl)
    boxes = [open_client("memory://renewed-" + mode).dead_letters("g") for _ in range(2)]
    await result_of(boxes[0].push("p", error="e", key="k"))
    begun, ending, ran = asyncio.Event(), threading.Event(), Handler(mode)
    loop = asyncio.get_running_loop()

    def slow(payload: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert ending.wait(30)

    async def slowly(payload: Any) -> None:
        begun.set()
        assert await asyncio.to_thread(ending.wait, 30)

    call = boxes[0].replay
    task = asyncio.ensure_future(asyncio.to_thread(call, "k", slow) if mode == "blocking" else call("k", slowly))
    await asyncio.wait_for(begun.wait(), 100)
    await asyncio.sleep(1.2 * ttl)
    assert (await result_of(boxes[1].replay("k", ran))).outcome is LetterOutcome.BUSY
    ending.set()
    assert (await task).outcome is LetterOutcome.REPLAYED
    assert ran.given == []


async def test_a_result_that_cannot_be_kept_leaves_a_tombstone(open_client: Callable[..., Any]) -> None:
    once = open_client("memory://")
    box = once.dead_letters("g")
    results = {"no json": object(), "too large": "x" * 300_000}
    for key, result in results.items():
        await result_of(box.push("p", error="e", key=key))
        report = await result_of(box.replay(key, lambda payload, result=result: result))
        assert (report.outcome, report.value) == (LetterOutcome.REPLAYED, result)
        claim = once._store.memory.perform([Read(f"claim/{key}")])[0]
        assert values.is_tombstone(claim.value)


async def test_a_replay_that_lost_its_hold_is_told(
    open_client: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    once = open_client("memory://")
    box, memory = once.dead_letters("g"), once._store.memory
    await result_of(box.push("p", error="e", key="k"))

    def overtaken(payload: Any) -> str:
        fence = memory.perform([Read("claim/k")])[0].fence
        memory.perform([Clear("claim/k", fence, "test"), Acquire("claim/k", "other", 30)])
        return "late"

    with caplog.at_level(logging.WARNING, logger="solely"):
        assert (await result_of(box.replay("k", overtaken))).outcome is LetterOutcome.REPLAYED
    assert any(record.message.startswith("replay_superseded: ") for record in caplog.records)
    assert memory.perform([Read("claim/k")])[0].state is State.HELD


@pytest.mark.parametrize("parked", [False, True], ids=["free", "parked"])
@pytest.mark.parametrize("answered", [False, True], ids=["unperformed", "performed"])
def test_a_take_that_is_interrupted_anywhere_leaves_all_as_it_was(parked: bool, answered: bool) -> None:
    for steps in range(1, 20):
        memory = Memory()
        memory.perform([deadletter.letter("g", "p", error="e", at=datetime.now(UTC), key="k")])
        if parked:
            memory.perform([Acquire("claim/k", "o", 30), Finish("claim/k", "o", PARKED, DAY)])
        if not _interrupted_after(steps, replay.take("g", "k", ""), memory, answered):
            assert steps == (6 if parked else 4)
            break
        (claim,) = memory.perform([Read("claim/k")])
        assert claim.state is (State.DONE if parked else State.FREE)  # type: ignore[union-attr]
        assert claim.value == (PARKED if parked else None)  # type: ignore[union-attr]
        assert len(memory.scan("item/", "", 10)) == 1
    else:
        raise AssertionError("the flow never ended")


def _interrupted_after(steps: int, flow: Any, memory: Memory, answered: bool) -> bool:
    """Runs the flow, interrupts it at that step, performs what it undoes; False if it had ended before."""
    request, seen = next(flow), 0
    while True:
        is_op = request not in (Ask.OWNER, Ask.RUN)
        seen += is_op
        if seen == steps:
            if answered:
                _reply(request, memory)
            with pytest.raises(Interrupted):
                request = flow.throw(Interrupted(KeyboardInterrupt(), unanswered=True))
                for _ in range(5):
                    request = flow.send(_reply(request, memory))
            return True
        try:
            request = flow.send(_reply(request, memory))
        except StopIteration:
            return False


def _reply(request: Any, memory: Memory) -> Any:
    if isinstance(request, list):
        return memory.perform(request)
    if request is Ask.RUN:
        return SimpleNamespace(sent=local_clock(), doubtful=False, now=local_clock)
    return "replayer" if request is Ask.OWNER else memory.perform([request])[0]


@pytest.mark.parametrize("key", ["k", ""])
def test_what_is_purged_while_it_is_taken_is_not_run(key: str) -> None:
    memory = Memory()
    op = deadletter.letter("g", "p", error="e", at=datetime.now(UTC), key=key)
    memory.perform([op])
    (item,) = memory.scan("item/", "", 10)
    flow = replay.take("g", op.id, "")
    request: Any = next(flow)
    with pytest.raises(StopIteration) as end:
        for _ in range(20):
            answer = _reply(request, memory)
            if isinstance(request, Acquire):
                memory.perform([Clear(item.key, item.fence, "purge")])
            request = flow.send(answer)
    assert end.value.value is LetterOutcome.GONE
    assert not memory.scan("", "", 10)


async def test_what_a_crash_left_of_an_old_letter_is_not_told_of_a_new_one(open_client: Callable[..., Any]) -> None:
    once = open_client("memory://")
    box, memory = once.dead_letters("g"), once._store.memory
    for _ in range(3):
        await result_of(box.push("p", error="old", key="k"))
    (item,) = memory.scan("item/", "", 10)
    memory.perform([Clear(item.key, item.fence, "and then the process died")])
    anew = await result_of(box.push("q", error="new", key="k"))
    assert (anew.payload, anew.attempts, anew.last_error) == ("q", 1, "new")
    again = await result_of(box.push("q", error="newer", key="k"))
    assert (again.attempts, again.last_error) == (2, "newer")
    assert await result_of(box.purge(all=True)) == 1
    assert not memory.scan("", "", 10)


# -- claims and dead letters together


async def test_a_claim_that_parks_leaves_a_letter_whose_replay_answers_it(once: Any, mode: str) -> None:
    policy = solely.Policy(default=solely.Park(after=1, group="charges"))
    claim = await result_of(once.claim("charge:1", policy=policy, wait=0))
    await result_of(claim.fail(ValueError("card refused")))
    box, handler = once.dead_letters("charges"), Handler(mode)
    (letter,) = await result_of(box.list())
    assert (letter.key, letter.attempts, letter.last_error) == ("charge:1", 1, "ValueError: card refused")
    assert (await result_of(box.replay(letter.id, handler))).outcome is LetterOutcome.REPLAYED
    again = await result_of(once.claim("charge:1", wait=0))
    assert (again.cached, again.value) == (True, {"handled": letter.payload})


async def test_a_cached_failure_is_forgotten_once_its_letter_was_replayed(open_client: Callable[..., Any]) -> None:
    once = open_client("memory://", cache=True)
    claim = await result_of(once.claim("k", policy=solely.Policy(default=solely.Park(after=1, group="g")), wait=0))
    await result_of(claim.fail(ValueError("no")))
    assert (await result_of(once.claim("k", wait=0))).failed is not None
    await result_of(once.dead_letters("g").replay("k", lambda payload: 42))
    assert (await result_of(once.claim("k", wait=0))).value == 42


async def test_who_waits_for_the_claim_meanwhile_gets_the_result_of_the_replay(
    open_client: Callable[..., Any], store_url: str, mode: str
) -> None:
    clients = [open_client(store_url, cache=True) for _ in range(2)]
    box, begun, waiting = clients[0].dead_letters("g"), asyncio.Event(), list[Any]()
    loop = asyncio.get_running_loop()
    await result_of(box.push("p", error="e", key="k"))

    def wait() -> None:
        for client in clients:
            call = client.claim
            pending = asyncio.to_thread(call, "k", wait=20) if mode == "blocking" else call("k", wait=20)
            waiting.append(asyncio.ensure_future(pending))
        begun.set()

    def slow(payload: Any) -> str:
        loop.call_soon_threadsafe(wait)
        time.sleep(0.1)
        return "result"

    async def slowly(payload: Any) -> str:
        wait()
        await asyncio.sleep(0.1)
        return "result"

    call = box.replay
    report = await (asyncio.to_thread(call, "k", slow) if mode == "blocking" else call("k", slowly))
    ended = loop.time()
    assert report.outcome is LetterOutcome.REPLAYED
    with measured_lateness() as lateness:
        claims = await asyncio.wait_for(asyncio.gather(*waiting), 100)
    assert [(claim.cached, claim.value) for claim in claims] == [(True, "result")] * 2
    if store_url.startswith("memory"):  # told, not found by looking again after a second
        assert loop.time() - ended < 0.9 + lateness.seconds


# -- the edge


class Deaf(MemoryStore):
    """Performs each Push and does not say so the first time."""

    unheard = 1

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        replies = super().perform(ops)
        if any(type(op) is Push for op in ops) and self.unheard:
            self.unheard = 0
            raise Unanswered("lost")
        return replies


def test_a_push_whose_answer_was_lost_counts_once() -> None:
    with solely.Client(store=Deaf(Memory())) as once:
        letter = once.dead_letters("g").push("p", error="e")
        assert letter.attempts == 1
        assert once.dead_letters("g").count() == 1


class Away(MemoryStore):
    """A store that does not answer."""

    def perform(self, ops: Sequence[Op]) -> Any:
        raise solely.StoreUnavailable("away")

    def scan(self, prefix: str, after: str, limit: int) -> Any:
        raise solely.StoreUnavailable("away")


def test_a_push_may_proceed_without_its_store_and_nothing_else_does() -> None:
    with solely.Client(store=Away(Memory()), timeout=0.05, on_outage="proceed") as once:
        box = once.dead_letters("g")
        assert box.push("p", error="e").payload == "p"
        assert once.failed_open == 1
        for call in (box.list, box.count, lambda: box.replay("k", str), lambda: box.purge(all=True)):
            with pytest.raises(solely.StoreUnavailable):
                call()


async def test_pushes_are_told_and_purges_are_logged(
    open_client: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[events.Event] = []
    box = open_client("memory://", hooks=[heard.append]).dead_letters("a b")
    with caplog.at_level(logging.WARNING, logger="solely"):
        await result_of(box.push("p", error="e", key="k"))
        await result_of(box.push("p", error="e", key="k"))
        await result_of(box.purge(all=True, reason="tidy"))
    key = "item/dead%3Aa%20b/k"
    assert [e for e in heard if isinstance(e, events.DeadLettered)] == [
        events.DeadLettered(key, "a b", 1),
        events.DeadLettered(key, "a b", 2),
    ]
    lines = [(r.message, getattr(r, "count", None), getattr(r, "reason", None)) for r in caplog.records]
    words = [line[0].partition(":")[0] for line in lines]
    assert words == ["dead_lettered", "dead_lettered", "dead_letters_purged"]
    assert lines[-1][1:] == (1, "tidy")


async def test_input_that_cannot_be_is_refused_before_anything_is_sent(mode: str) -> None:
    once = refusing_client(mode)
    box = once.dead_letters("g")
    for group in ("", 7, "g" * 513, "a\0"):
        with pytest.raises(solely.InvalidInput, match="group"):
            once.dead_letters(group)
    calls: dict[str, list[Callable[[], Any]]] = {
        "payload": [lambda: box.push(object(), error="e"), lambda: box.push(float("nan"), error="e")],
        "bytes": [lambda: box.push("x" * 300_000, error="e")],
        "key": [lambda: box.push(1, error="e", key="k" * 513), lambda: box.push(1, error="e", key=7)],
        "id": [lambda: box.push(1, error="e", id=""), lambda: box.inspect(""), lambda: box.replay(7, str)],
        "attempts": [lambda: box.push(1, error="e", attempts=0), lambda: box.push(1, error="e", attempts=True)],
        "error": [lambda: box.push(1, error=None)],
        "limit": [lambda: box.list(limit=0)],
        "purge": [lambda: box.purge(), lambda: box.purge("a", all=True)],
    }
    for word, refused in calls.items():
        for call in refused:
            with pytest.raises(solely.InvalidInput, match=word):
                await result_of(call())
