"""Workers that repeat one thing for a while: threads or tasks of this process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from time import perf_counter, sleep
from typing import Any, Self, TypeVar

T = TypeVar("T")

TTL = 30.0  # seconds: the ttl on every side of every comparison
HOLD = 0.001  # seconds that a turn of a handoff lasts: short, so that mostly the handoff is measured


class Loop:
    """An event loop for the asyncio sides of a case; it exits the context managers that were entered in it."""

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._entered = AsyncExitStack()
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        return self.run(self._entered.enter_async_context(manager))

    def __exit__(self, *_: object) -> None:
        self.run(self._entered.aclose())
        self._runner.close()


def thread_rate(work: Callable[[str], object], workers: int, seconds: float) -> float:
    """Returns the calls of `work` per second by that many threads (one is the caller's), each with its own key."""
    counts = [0] * workers

    def loop(number: int) -> None:
        key, count, end = f"key-{number}", 0, perf_counter() + seconds
        while perf_counter() < end:
            work(key)
            count += 1
        counts[number] = count

    begun = perf_counter()
    threads = [threading.Thread(target=loop, args=(number,)) for number in range(1, workers)]
    for thread in threads:
        thread.start()
    loop(0)
    for thread in threads:
        thread.join()
    return sum(counts) / (perf_counter() - begun)


async def task_rate(work: Callable[[str], Awaitable[object]], workers: int, seconds: float) -> float:
    """Returns the calls of `work` per second by that many tasks, each with its own key."""
    counts = [0] * workers

    async def loop(number: int) -> None:
        key, count, end = f"key-{number}", 0, perf_counter() + seconds
        while perf_counter() < end:
            await work(key)
            count += 1
        counts[number] = count

    begun = perf_counter()
    await asyncio.gather(*map(loop, range(workers)))
    return sum(counts) / (perf_counter() - begun)


Turn = Callable[[Callable[[], object]], object]  # acquires the key, calls its argument, and releases the key


def thread_turns(turn: Turn, workers: int, begin: float, seconds: float) -> list[int]:
    """Returns how many turns each thread had from `begin` on (a time of perf_counter, which all processes share)."""
    counts = [0] * workers
    end = begin + seconds

    def loop(number: int) -> None:
        def hold() -> None:
            sleep(HOLD)
            counts[number] += perf_counter() < end

        sleep(max(0.0, begin - perf_counter()))
        while perf_counter() < end:
            turn(hold)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


AsyncTurn = Callable[[int, Callable[[], Awaitable[object]]], Awaitable[object]]  # the same, by worker number


async def task_turns(turn: AsyncTurn, workers: int, seconds: float) -> list[int]:
    """Returns how many turns each of the tasks had."""
    counts = [0] * workers
    end = perf_counter() + seconds

    async def loop(number: int) -> None:
        async def hold() -> None:
            await asyncio.sleep(HOLD)
            counts[number] += perf_counter() < end

        while perf_counter() < end:
            await turn(number, hold)

    await asyncio.gather(*map(loop, range(workers)))
    return counts


def fairness(turns: list[int]) -> float:
    """Returns the fewest turns divided by the most: 1 if all workers had equally many."""
    return min(turns) / max(max(turns), 1)
