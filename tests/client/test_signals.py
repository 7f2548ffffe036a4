"""A signal handler may raise anywhere, also inside the code that decides: even then nothing stays held or queued."""

from collections.abc import Callable
from typing import Any

import pytest

from solely import Client, State
from solely.model import line_key
from solely.ops import Hit, Read
from solely.stores.memory import Memory, MemoryStore

HANDLERS_RAISE = [KeyboardInterrupt, SystemExit, RuntimeError]  # Ctrl-C, an exit on SIGTERM, a soft time limit


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def once(memory: Memory) -> Any:
    with Client(store=MemoryStore(memory)) as client:
        yield client


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def handler(*args: object, **options: object) -> Any:
        raise error

    return handler


def entry(memory: Memory, key: str) -> Any:
    return memory.perform([Read(key)])[0]


@pytest.mark.parametrize("error", HANDLERS_RAISE)
def test_a_waiter_leaves_the_queue(
    once: Client, memory: Memory, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    with Client(store=MemoryStore(memory)) as other, other.lock("a"):
        monkeypatch.setattr("solely.leases.flow.look_again", raising(error))
        with pytest.raises(error):
            once.lock("a", wait=60)
        assert entry(memory, "lock/a").waiters == 0


@pytest.mark.parametrize("error", HANDLERS_RAISE)
@pytest.mark.parametrize(
    ("where", "key", "call"),
    [
        ("solely.leases.flow.Hold", "lock/a", lambda once: once.lock("a")),
        ("solely.locks.flow.deadline", "lock/a", lambda once: once.lock_all(["a", "b"])),
        ("solely.marks.flow.replies_or_raise", "mark/a", lambda once: once.first_many(["a", "b"])),
        ("solely.claims.flow.Hold", "claim/a", lambda once: once.claim("a")),
        ("solely.claims.flow.refuse_other", "claim/a", lambda once: once.claim_many(["a", "b"])),
        ("solely.reservations.flow.Hold", "reservation/a", lambda once: once.reserve("a")),
    ],
    ids=["lock", "lock_all", "first_many", "claim", "claim_many", "reserve"],
)
def test_what_was_granted_is_released(
    once: Client,
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    key: str,
    call: Callable[[Client], object],
    error: type[BaseException],
) -> None:
    monkeypatch.setattr(where, raising(error))
    with pytest.raises(error):
        call(once)
    monkeypatch.undo()
    assert entry(memory, key).state is State.FREE
    call(once)
    assert entry(memory, key).state is not State.FREE


@pytest.mark.parametrize("error", HANDLERS_RAISE)
def test_a_limit_gets_its_hit_back(
    once: Client, memory: Memory, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr("solely.reservations.flow.replies_or_raise", raising(error))
    with pytest.raises(error):
        once.reserve("a", limit=1, per=60)
    monkeypatch.undo()
    (allowance,) = memory.perform([Hit("hits/a", "other", 1, 60)])
    assert allowance.allowed  # type: ignore[union-attr]


@pytest.mark.parametrize("error", HANDLERS_RAISE)
def test_a_taken_item_is_returned(once: Client, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    queue = once.queue("jobs")
    queue.push("1", {"n": 1})
    monkeypatch.setattr("solely.queues.flow.TakenItem", raising(error))
    with pytest.raises(error):
        queue.take(ttl=60)
    monkeypatch.undo()
    assert queue.take(ttl=60) is not None


@pytest.mark.parametrize("error", HANDLERS_RAISE)
def test_a_taker_that_waits_leaves_the_line(
    once: Client, memory: Memory, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr("solely.queues.waiting._look_again", raising(error))
    with pytest.raises(error):
        once.queue("jobs").take(ttl=60, wait=60)
    monkeypatch.undo()
    (line,) = memory.perform([Read(line_key("queue:jobs"))])
    assert line.waiters == 0  # type: ignore[union-attr]
    assert len(once._driver.waiters) == 0
