"""A worker that runs for the length of a block, and what tests wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

from solely import AsyncClient, QueueWorker
from solely.resilience import Backoff

PATIENCE = 60.0  # seconds: everything here takes some tenths, but a test machine can be very busy
AT_ONCE = Backoff((0.0,))  # retries without a pause


@asynccontextmanager
async def running(worker: QueueWorker) -> AsyncIterator[QueueWorker]:
    """Runs the worker until the block ends, then waits for what is in flight."""
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.stop(PATIENCE)
        await task


def jobs(once: AsyncClient, perform: Callable[[Any], Awaitable[object]], **options: Any) -> QueueWorker:
    """A worker of the queue `jobs` that parks in the group `jobs`."""
    options = {"backoff": AT_ONCE, **options}
    return QueueWorker(once.queue("jobs"), perform, dead_letters=once.dead_letters("jobs"), **options)


async def until(condition: Callable[[], Any], what: str) -> Any:
    """What the condition returns, or its awaitable, as soon as that is true."""
    ends = time.monotonic() + PATIENCE
    while True:
        found = condition()
        found = await found if isawaitable(found) else found
        if found:
            return found
        assert time.monotonic() < ends, f"{what}: not within {PATIENCE:g} s"
        await asyncio.sleep(0.01)
