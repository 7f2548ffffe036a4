"""Sample producers and a consumer, so that a newcomer sees a live page. All houses begin with `demo-`."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from ... import SolelyError
from .model import SignalGroup
from .runtime import PostedSignal

if TYPE_CHECKING:
    from .runtime import SignalsRuntime

_GROUPS = tuple(
    SignalGroup(f"demo-{house}", game) for house in ("north", "south") for game in ("poker", "slots", "keno")
)
_CREDENTIALS = 20  # of a group, as usual
_PRODUCERS = (1, 1, 1, 2, 3)  # how many poll the same data at once
_READ = 0.3  # seconds between two signals that the consumer processes


async def demo(app: SignalsRuntime) -> None:
    """Posts and consumes signals until it is cancelled."""
    await asyncio.gather(_produce(app), _consume(app))


async def _produce(app: SignalsRuntime) -> None:
    chance = random.Random()
    while True:
        group = chance.choice(_GROUPS)
        names = chance.sample(range(_CREDENTIALS), 5)
        batch = [_posted(group, f"player-{number}", chance.randint(1, 4)) for number in names]
        try:
            await asyncio.gather(*(app.receive(batch, group) for _ in range(chance.choice(_PRODUCERS))))
        except SolelyError:  # the store is unreachable: the page shows it, and the demo continues later
            await asyncio.sleep(1.0)
        await asyncio.sleep(chance.uniform(0.5, 2.0))


def _posted(group: SignalGroup, username: str, priority: int) -> PostedSignal:
    return PostedSignal(group, username, {"username": username, "priority": priority, "jackpot": "grand"})


async def _consume(app: SignalsRuntime) -> None:
    while True:
        try:
            for signal in await app.table.waiting():
                await app.table.acknowledge(signal.id)
        except SolelyError:
            await asyncio.sleep(1.0)
        await asyncio.sleep(_READ)
