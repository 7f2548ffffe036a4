"""Sample runs, so that a newcomer sees live pages: triggers with and without keys, bursts that trip the gate, and a
worker whose attempts fail now and then. All tasks begin with `demo-`."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from ... import SolelyError
from .api.options import trigger_of
from .runtime import TriggersRuntime

_TASKS = ("demo-send-mail", "demo-resize-image", "demo-charge-card")
_ERRORS = ("the mail server is busy (451)", "connection reset by peer", "the card was declined")
_BURST = 0.04  # of the rounds are bursts: one or two in a minute
_DIVERTED = 30  # triggers of a burst that the gate diverts
_FAILS = 0.2  # of the attempts fail, so that some runs use up all of theirs
_DIES = 0.03  # of the attempts are left to their lease, as by a worker that was killed
_WORKERS = 4  # enough to catch up with a burst within a minute
_LEASE = 5.0  # seconds: so a newcomer sees the take-over


async def demo(app: TriggersRuntime) -> None:
    """Triggers runs and works on them until it is cancelled."""
    await asyncio.gather(_trigger(app), *(_work(app, f"demo-worker-{number}") for number in range(1, _WORKERS + 1)))


async def _trigger(app: TriggersRuntime) -> None:
    chance = random.Random()
    while True:
        burst = chance.random() < _BURST
        triggers = (_one(app, chance) for _ in range(app.settings.trip_threshold + _DIVERTED if burst else 1))
        await asyncio.gather(*triggers, return_exceptions=True)  # the pages show an outage; the demo goes on
        await asyncio.sleep(chance.uniform(0.3, 2.0))


async def _one(app: TriggersRuntime, chance: random.Random) -> None:
    order = chance.randrange(1000)
    options: dict[str, Any] = {"tags": [f"customer-{order % 7}"], "metadata": {"source": "demo"}}
    if chance.random() < 0.5:
        options["idempotencyKey"] = f"order-{order % 50}"
    payload = msgspec.Raw(msgspec.json.encode({"order": order, "total": round(chance.uniform(5, 200), 2)}))
    made = trigger_of(app.settings, app.settings.environment, chance.choice(_TASKS), payload, options)
    await app.pipeline.trigger(made.run, waits=made.waits)


async def _work(app: TriggersRuntime, name: str) -> None:
    chance = random.Random()
    while True:
        try:
            taken = await app.leases.take(app.settings.environment, list(_TASKS), lease=_LEASE, worker=name)
            if taken is not None and taken.leased:
                await _perform(app, taken.row["id"], taken.row["lease_owner"], chance)
            elif taken is None:
                await app.arrivals.wait(1.0)
        except SolelyError:  # unreachable, or the lease was lost
            await asyncio.sleep(1.0)


async def _perform(app: TriggersRuntime, id: str, token: str, chance: random.Random) -> None:
    environment = app.settings.environment
    await asyncio.sleep(chance.uniform(0.05, 0.6))
    if chance.random() < _DIES:
        return
    if chance.random() < _FAILS:
        await app.leases.fail(environment, id, token, error=chance.choice(_ERRORS))
    else:
        await app.leases.complete(environment, id, token, {"ok": True})
