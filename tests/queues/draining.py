"""A process that drains the queue `jobs` until it is killed, and writes to a file what it does, one line each.

python -m tests.queues.draining URL FILE '{"ttl": 1, "pace": 0.1}'
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.forked import Forked

PATIENCE = 90.0  # seconds: some tenths are enough, but a test machine can be very busy


class Drainer:
    """Starts at once: performs items, each for `pace` seconds, and writes `began ID`, `done ID` or `cancelled ID`."""

    def __init__(self, url: str, file: Path, **options: Any) -> None:
        self._process = Forked("tests.queues.draining", url, str(file), json.dumps(options))

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL, and waits for its end."""
        self._process.kill()
        self._process.wait()


def written(file: Path, word: str) -> Counter[str]:
    """How often the processes wrote this word for each id."""
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter(line.partition(" ")[2] for line in lines if line.startswith(f"{word} "))


def until(condition: Any, what: str) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.02)


async def _drain(url: str, file: str, pace: float = 0.0, **options: Any) -> None:
    from solely import AsyncClient, AsyncItem, QueueWorker

    lines = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(word: str, item: AsyncItem) -> None:
        os.write(lines, f"{word} {item.id}\n".encode())

    async def perform(item: AsyncItem) -> None:
        write("began", item)
        try:
            await asyncio.sleep(pace)
        except asyncio.CancelledError:
            write("cancelled", item)
            raise
        write("done", item)

    async with AsyncClient(url, timeout=5) as once:
        worker = QueueWorker(once.queue("jobs"), perform, dead_letters=once.dead_letters("jobs"), **options)
        stops = list[asyncio.Future[None]]()
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, lambda: stops.append(asyncio.ensure_future(worker.stop(PATIENCE)))
        )
        await worker.run()


if __name__ == "__main__":
    asyncio.run(_drain(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3])))
