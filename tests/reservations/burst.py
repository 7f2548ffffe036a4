"""What each process of a burst does: many tasks that ask for the same reservation at the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

from solely import AsyncClient


def burst(url: str, calls: int, **terms: Any) -> list[str]:
    """How each of the calls was answered; who is granted it sends, and records that it did."""
    return asyncio.run(_burst(url, calls, terms))


async def _burst(url: str, calls: int, terms: dict[str, Any]) -> list[str]:
    async with AsyncClient(url, timeout=60) as once:  # what counts is who wins, not how fast the machine is
        return await asyncio.gather(*(_send(once, terms) for _ in range(calls)))


async def _send(once: AsyncClient, terms: dict[str, Any]) -> str:
    reservation = await once.reserve("cpu-high:critical", **terms)
    if not reservation:
        return reservation.reason
    async with reservation:
        await asyncio.sleep(0.01)  # as long as a quick pager takes
    return "sent"
