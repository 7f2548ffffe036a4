"""The length of each queue over time: sampled by one worker at a time, and kept like the lines of charts."""

from __future__ import annotations

import asyncio
import time

import structlog

from ...client import AsyncClient
from ...errors import SolelyError
from ...stores import AsyncStore
from ..api.queue_lists import queue_names
from .rollup import Rollup

log = structlog.get_logger("solely.charts")

EVERY = 30  # seconds between samples: a sparkline has a point per minute
MOST = 50  # queues that are sampled, in the order of their names: each costs two short requests


def queue_series(queue: str) -> str:
    """The name of the series of this queue."""
    return f"queue/{queue}"


async def keep_sampling(once: AsyncClient, store: AsyncStore, rollup: Rollup) -> None:
    """Samples the lengths until cancelled, each time in one worker of all."""
    while True:
        await asyncio.sleep(EVERY - time.time() % EVERY)
        try:
            if await rollup.is_first("queues", EVERY):
                for name in await queue_names(store, "", "", MOST):
                    rollup.gauge(queue_series(name), float(await once.queue(name).count()))
        except SolelyError as error:
            log.warning("queues_not_sampled", error=str(error))
