"""Processes of a curve: each acquires and releases on request, and reports its calls and its CPU time."""

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, ClassVar, Self

import solely

from .grounds import Ground
from .harness import pin
from .metering import Spent, cpu_seconds
from .workers import TTL

HEAD_START = 0.1  # seconds between the request to the processes and its begin: enough to reach all of them
WAIT = 300.0  # seconds that a waiter waits: longer than a run
ENDS_WITHIN = 10.0  # seconds that a process may take to close its client; one that is stuck is then killed

_spawning = multiprocessing.get_context("spawn")
Report = tuple[int, float]  # calls, seconds of CPU


class Processes:
    """Running processes, pinned in turn to the cores, whose work is `serve`."""

    serve: ClassVar[Any]

    def __init__(self, ground: Ground, processes: int, workers: int) -> None:
        self._ground = ground
        self._pipes = [_spawning.Pipe() for _ in range(processes)]
        shares = [workers // processes + (number < workers % processes) for number in range(processes)]
        self._processes = [
            _spawning.Process(target=type(self).serve, args=(theirs, ground.url, share, number), daemon=True)
            for number, ((_, theirs), share) in enumerate(zip(self._pipes, shares, strict=True))
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        for ours, theirs in self._pipes:
            theirs.close()
            ours.recv()  # its client is open
        for number, process in enumerate(self._processes):
            assert process.pid
            pin(process.pid, number)
        return self

    def measure(self, seconds: float, repetitions: int) -> Spent:
        """Returns the median cost of a call and the calls of all processes per second; the first round is a warm-up."""
        rounds = [self._round(seconds) for _ in range(repetitions + 1)]
        return Spent(*(median(column) for column in zip(*rounds[1:], strict=True)))

    def _round(self, seconds: float) -> Spent:
        begin = time.perf_counter() + HEAD_START
        store = cpu_seconds(self._ground.pids())
        for ours, _ in self._pipes:
            ours.send((begin, seconds))
        reports: list[Report] = [ours.recv() for ours, _ in self._pipes]
        store = cpu_seconds(self._ground.pids()) - store
        calls = max(sum(report[0] for report in reports), 1)
        client = sum(report[1] for report in reports)
        return Spent(client / calls * 1e6, store / calls * 1e6, calls / seconds)

    def __exit__(self, *_: object) -> None:
        for ours, _theirs in self._pipes:
            ours.close()
        for process in self._processes:
            process.join(ENDS_WITHIN)
            process.kill()


def _serve_pairs(pipe: "Connection[Any, Any]", url: str, _: int, number: int) -> None:
    with solely.Client(url) as once:

        def work(end: float) -> int:
            calls = 0
            while time.perf_counter() < end:
                with once.lock(f"key-{number}", ttl=TTL):
                    calls += 1
            return calls

        work(0.0)
        pipe.send("open")
        while (request := _next(pipe)) is not None:
            begin, seconds = request
            time.sleep(max(0.0, begin - time.perf_counter()))
            cpu = time.process_time()
            calls = work(begin + seconds)
            pipe.send((calls, time.process_time() - cpu))


def _next(pipe: "Connection[Any, Any]") -> tuple[float, float] | None:
    try:
        request: tuple[float, float] = pipe.recv()
    except EOFError:
        return None
    return request


def _serve_waiters(pipe: "Connection[Any, Any]", url: str, tasks: int, number: int) -> None:
    asyncio.run(_wait(pipe, url, tasks))


async def _wait(pipe: "Connection[Any, Any]", url: str, tasks: int) -> None:
    """The tasks pass the key on all the time, also between two rounds: a round counts the turns while it lasts."""
    async with solely.AsyncClient(url) as once:
        turns, stopped = 0, False

        async def take_turns() -> None:
            nonlocal turns
            while not stopped:
                async with once.lock("key", ttl=TTL, wait=WAIT):
                    turns += 1

        await once.first("open")
        running = [asyncio.create_task(take_turns()) for _ in range(tasks)]
        pipe.send("open")
        while (request := await asyncio.to_thread(_next, pipe)) is not None:
            begin, seconds = request
            await asyncio.sleep(max(0.0, begin - time.perf_counter()))
            cpu, before = time.process_time(), turns
            await asyncio.sleep(max(0.0, begin + seconds - time.perf_counter()))
            pipe.send((turns - before, time.process_time() - cpu))
        stopped = True
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Pairs(Processes):
    """Processes that acquire and release, one key each."""

    serve = staticmethod(_serve_pairs)

    def __init__(self, ground: Ground, processes: int) -> None:
        super().__init__(ground, processes, processes)


class Waiters(Processes):
    """Processes whose tasks pass one key on."""

    serve = staticmethod(_serve_waiters)
