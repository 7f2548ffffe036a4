"""The soak: all primitives on 50 keys, at a steady pace, for half an hour. What a process and its server use must not
grow; `chaos.soak` measures it. Nothing is logged, since the log would grow."""

from collections.abc import Awaitable, Callable
from typing import Any

from solely import AsyncClient, Busy, StoreUnavailable

from ..worker import Worker, answer

KEYS = 50
TTL = 5.0  # seconds: every entry is forgotten within a minute or two, so that a steady state is soon reached
PACE = 0.02  # seconds between two steps: about as much work as a busy service has


async def work(me: Worker) -> None:
    """One primitive after the other, each on a random key, until told to stop."""
    turn = 0
    while not me.stopped:
        step, key = STEPS[turn % len(STEPS)], f"key-{me.chance.randrange(KEYS)}"
        try:
            await step(me.once, key, turn)
        except (Busy, StoreUnavailable) as error:
            me.log.note("error", key, type(error).__name__)
        turn += 1
        await me.rest(PACE)


async def _lock(once: Any, key: str, turn: int) -> None:
    lease = await answer(once.lock(key, ttl=TTL, wait=2.0, on_lost="flag"))
    await answer(lease.renew())
    await answer(lease.release())


async def _try_lock(once: Any, key: str, turn: int) -> None:
    lease = await answer(once.try_lock(key, ttl=TTL, renew=False))
    if lease is not None and turn % 7:  # some holds expire
        await answer(lease.release())


async def _lock_all(once: Any, key: str, turn: int) -> None:
    leases = await answer(once.lock_all([key, "key-0", "key-1"], ttl=TTL, wait=2.0, on_lost="flag"))
    await answer(leases.release())


async def _mark(once: Any, key: str, turn: int) -> None:
    await answer(once.first(key, ttl=TTL))
    await answer(once.first_many([f"key-{(turn + step) % KEYS}" for step in range(5)], ttl=TTL))


async def _claim(once: Any, key: str, turn: int) -> None:
    claim = await answer(once.claim(key, ttl=TTL, wait=1.0, keep=TTL))
    if claim.won:
        await answer(claim.publish({"turn": turn}))


async def _reserve(once: Any, key: str, turn: int) -> None:
    reserved = await answer(once.reserve(key, hold=TTL, quiet=1.0, limit=20, per=TTL))
    if reserved:
        await answer(reserved.record() if turn % 3 else reserved.release())


async def _limit(once: Any, key: str, turn: int) -> None:
    await answer(once.limit(key, limit=5, per=TTL))


async def _watermark(once: Any, key: str, turn: int) -> None:
    await answer(once.watermark(key).advance(turn))


async def _queue(once: Any, key: str, turn: int) -> None:
    queue = once.queue("work")
    await answer(queue.push(key, {"turn": turn}))
    for _ in range(2):
        item = await answer(queue.take(ttl=TTL))
        if item is not None:
            await answer(item.ack())


async def _letter(once: Any, key: str, turn: int) -> None:
    letters = once.dead_letters("failed")
    await answer(letters.push({"turn": turn}, error=ValueError("soak"), key=f"letter-{key}"))
    for letter in await answer(letters.list(limit=20)):
        await answer(letters.replay(letter.id, _later if isinstance(once, AsyncClient) else str))


async def _later(payload: Any) -> str:
    return str(payload)


async def _schedule(once: Any, key: str, turn: int) -> None:
    await answer(once.every("soak", 1.0, ttl=TTL).run_due(_later if isinstance(once, AsyncClient) else str))


async def _breaker(once: Any, key: str, turn: int) -> None:
    await answer(once.breaker(key).state())


async def _explain(once: Any, key: str, turn: int) -> None:
    await answer(once.explain(key))


STEPS: tuple[Callable[[Any, str, int], Awaitable[None]], ...] = (
    _lock, _try_lock, _lock_all, _mark, _claim, _reserve, _limit, _watermark, _queue, _letter, _schedule,
    _breaker, _explain,
)  # fmt: skip
