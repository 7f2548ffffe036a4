"""What each process of a burst does: many callers that ask for the same reservation at the same moment."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from solely import AsyncClient, Client
from tests.conftest import PATIENT

SENDING = 0.01  # seconds, as long as a quick pager takes


def burst(mode: str, url: str, keys: list[str], **terms: Any) -> list[str]:
    """How the call for each of the keys was answered; who is granted it sends, and records that it did.

    What counts is who wins, not how fast the machine is: so their timeout is generous.
    """
    return _threads(url, keys, terms) if mode == "blocking" else asyncio.run(_tasks(url, keys, terms))


def _threads(url: str, keys: list[str], terms: dict[str, Any]) -> list[str]:
    begin = threading.Barrier(len(keys))
    with Client(url, timeout=PATIENT) as once, ThreadPoolExecutor(len(keys)) as threads:

        def send(key: str) -> str:
            begin.wait(60)
            reservation = once.reserve(key, **terms)
            if not reservation:
                return reservation.reason
            with reservation:
                time.sleep(SENDING)
            return "sent"

        return list(threads.map(send, keys))


async def _tasks(url: str, keys: list[str], terms: dict[str, Any]) -> list[str]:
    async with AsyncClient(url, timeout=PATIENT) as once:

        async def send(key: str) -> str:
            reservation = await once.reserve(key, **terms)
            if not reservation:
                return reservation.reason
            async with reservation:
                await asyncio.sleep(SENDING)
            return "sent"

        return await asyncio.gather(*map(send, keys))
