"""Workers that do one thing again and again for a while: threads or tasks of this process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from time import perf_counter, sleep
from typing import Any, Self, TypeVar

T = TypeVar("T")

HOLD = 0.001  # seconds that a turn of a handoff lasts: short, so that passing the key on is what is measured


class Loop:
    """An event loop for the asyncio sides of a case, which closes what was entered in it."""

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
    """Calls of `work` per second by that many threads, each with a key of its own; one works in the caller's thread."""
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
    """Calls of `work` per second by that many tasks, each with a key of its own."""
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


Turn = Callable[[Callable[[], object]], object]  # takes the key, calls what it is given, and lets the key go


def thread_turns(turn: Turn, workers: int, begin: float, seconds: float) -> list[int]:
    """How many turns each of the threads had from `begin` on (of perf_counter, which processes share)."""
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
    """How many turns each of the tasks had."""
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
    """Fewest turns to most: 1 if all workers had as many."""
    return min(turns) / max(turns)
