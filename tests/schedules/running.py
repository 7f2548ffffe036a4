"""A process that runs the schedule `job` until SIGTERM, and appends to a file what it does, one line each.

python -m tests.schedules.running URL FILE '{"mode": "asyncio", "every": 0.25, "ttl": 60, "hangs": false}'
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from tests.forked import Forked


class Line(NamedTuple):
    """What a process wrote: `looked` when it has asked for a tick, `began` and `done` of each tick that it ran."""

    word: str
    pid: int
    tick: int = 0  # µs since 1970
    fence: int = 0
    attempt: int = 0


class RunningReplica:
    """Starts at once. If it `hangs`, its first job never ends."""

    def __init__(self, url: str, file: Path, **options: Any) -> None:
        self._process = Forked("tests.schedules.running", url, str(file), json.dumps(options))
        self.pid = self._process.pid

    def leave(self) -> None:
        """SIGTERM, and waits until it has ended the tick that it is at."""
        os.kill(self.pid, signal.SIGTERM)
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL, and waits for its end."""
        self._process.kill()
        self._process.wait()


def written(file: Path) -> list[Line]:
    """All lines, in the order in which they were written."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [Line(word, *map(int, numbers)) for word, *numbers in map(str.split, lines)]


def main(url: str, file: str, mode: str, every: float, ttl: float, hangs: bool = False) -> None:
    from solely.schedules.timetable import microseconds

    lines = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(word: str, *numbers: int) -> None:
        os.write(lines, f"{' '.join(map(str, (word, os.getpid(), *numbers)))}\n".encode())

    def work(tick: Any) -> None:
        facts = (microseconds(tick.at), tick.fence, tick.attempt)
        write("began", *facts)
        if hangs:
            threading.Event().wait()
        write("done", *facts)

    options = {"misfire": "all", "ttl": ttl}
    if mode == "blocking":
        _run_blocking(url, every, options, work, lambda: write("looked"))
    else:
        asyncio.run(_run_async(url, every, options, work, lambda: write("looked")))


def _run_blocking(url: str, every: float, options: Any, work: Any, looked: Any) -> None:
    from solely import Client

    with Client(url, timeout=30) as once:
        schedule = once.every("job", every, **options)
        signal.signal(signal.SIGTERM, lambda *_: schedule.stop())
        schedule.run_due(work)
        looked()
        schedule.run(work)


async def _run_async(url: str, every: float, options: Any, work: Any, looked: Any) -> None:
    from solely import AsyncClient

    async def job(tick: Any) -> None:
        work(tick)

    async with AsyncClient(url, timeout=30) as once:
        schedule = once.every("job", every, **options)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, schedule.stop)
        await schedule.run_due(job)
        looked()
        await schedule.run(job)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
