"""Example traffic, so that the dashboard has something to show: a small company's deployments, webhooks, payments,
backups, alerts and imports, each with the primitive that fits it. Every key begins with `demo:`. The dead letters of
`demo-charges` can be replayed from the dashboard."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from ..apps.app import Application
from ..client import AsyncClient
from ..errors import Busy, SolelyError
from .service import Service

log = structlog.get_logger("solely.demo")

KEEP = 600.0  # seconds that the demo's marks and results are kept: long enough to look at them
MANY = 8  # dead letters: a list to look at that stays bounded
PARKED = "demo-charges"  # the group of dead letters
Scene = Callable[[AsyncClient, random.Random], Awaitable[None]]


async def deployments(once: AsyncClient, chance: random.Random) -> None:
    """Several pipelines deploy the same few services: one at a time, the others wait or give up."""
    target = chance.choice(("web", "api", "billing"))
    try:
        async with once.lock(f"demo:deploy:{target}", ttl=15, wait=4, purpose=f"release {chance.randrange(100, 999)}"):
            await asyncio.sleep(chance.uniform(1.0, 5.0))
    except Busy:
        await asyncio.sleep(chance.uniform(0.5, 2.0))


async def webhooks(once: AsyncClient, chance: random.Random) -> None:
    """A forge sends its webhooks, some of them twice or three times."""
    event = f"demo:review:{chance.randrange(1, 40)}:{chance.randrange(1, 12)}"
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        await once.first(event, ttl=KEEP)
    await asyncio.sleep(chance.uniform(0.1, 0.8))


async def payments(once: AsyncClient, chance: random.Random) -> None:
    """Orders are charged once, however often their request is repeated; a charge that fails is parked."""
    order = f"demo:charge:order-{int(time.time() / 2) % 100_000 + chance.randrange(30)}"  # a new one every two seconds
    claim = await once.claim(order, ttl=10, wait=2, keep=KEEP, purpose="charge")
    if claim.won:
        await asyncio.sleep(chance.uniform(0.05, 1.0))
        if chance.random() < 0.05:
            error = chance.choice(("TimeoutError: the bank did not answer", "CardDeclined: insufficient funds"))
            payload = {"order": order, "amount": round(chance.uniform(5, 500), 2), "currency": "EUR"}
            await once.dead_letters(PARKED).push(payload, error=error, key=order)
            await claim.release()
        else:
            await claim.publish({"charge": f"ch_{chance.getrandbits(32):08x}"})
    await asyncio.sleep(chance.uniform(0.1, 0.6))


async def alerts(once: AsyncClient, chance: random.Random) -> None:
    """Monitors fire all the time; a notification is sent once per quiet window."""
    alert = f"demo:alert:{chance.choice(('cpu-high', 'disk-full', 'latency'))}:{chance.choice(('web', 'api'))}"
    hold = await once.reserve(alert, hold=5, quiet=20, limit=10, per=KEEP)
    if hold:
        async with hold:
            await asyncio.sleep(chance.uniform(0.05, 0.3))
    await asyncio.sleep(chance.uniform(0.2, 1.5))


async def tenants(once: AsyncClient, chance: random.Random) -> None:
    """Tenants call an API with a limit per tenant."""
    await once.limit(f"demo:tenant-{chance.randrange(1, 4)}", limit=5, per=1.0)
    await asyncio.sleep(chance.uniform(0.05, 0.4))


async def imports(once: AsyncClient, chance: random.Random) -> None:
    """Imports continue where the last one ended; one of them is always some minutes behind."""
    now = datetime.now(UTC)
    await once.watermark("demo:import:orders").advance(now)
    await once.watermark("demo:import:customers").advance(now - timedelta(minutes=4))
    await once.watermark("demo:ledger:last-id").advance(int(now.timestamp()))
    await asyncio.sleep(chance.uniform(1.0, 3.0))


async def backups(once: AsyncClient, chance: random.Random) -> None:
    """A long job renews its lock for minutes; two hosts want to run it."""
    try:
        async with once.lock("demo:backup:db", ttl=10, wait=20, purpose="nightly backup"):
            await asyncio.sleep(chance.uniform(30.0, 90.0))
    except Busy:
        await asyncio.sleep(chance.uniform(5.0, 20.0))


async def sleepers(once: AsyncClient, chance: random.Random) -> None:
    """Now and then a worker does not renew in time and loses its lease."""
    await asyncio.sleep(chance.uniform(60.0, 180.0))
    lease = await once.try_lock("demo:report:weekly", ttl=2, renew=False, on_lost="flag", purpose="weekly report")
    if lease is not None:
        await asyncio.sleep(3.0)
        await lease.release()


async def support(once: AsyncClient, chance: random.Random) -> None:
    """Somebody replays the dead letters, but only when there are many."""
    await asyncio.sleep(30.0)
    letters = await once.dead_letters(PARKED).list(limit=MANY)
    if len(letters) == MANY:
        await once.dead_letters(PARKED).replay_all(charge_again)


async def charge_again(payload: dict[str, Any]) -> dict[str, Any]:
    """Replays a parked charge: it succeeds most of the time."""
    await asyncio.sleep(0.3)
    if random.random() < 0.2:
        raise RuntimeError("the bank declined again")
    return {"charge": f"ch_{random.getrandbits(32):08x}", "order": payload["order"]}


# How many tasks run each scene: enough that the first minute shows everything, and that locks are contended.
SCENES: tuple[tuple[Scene, int], ...] = (
    (deployments, 6), (webhooks, 2), (payments, 3), (alerts, 3), (tenants, 2), (imports, 1), (backups, 2),
    (sleepers, 1), (support, 1),
)  # fmt: skip


async def demo(service: Service) -> None:
    """Runs all scenes until the service stops."""
    service.dashboard.replays[PARKED] = charge_again
    async with asyncio.TaskGroup() as scenes:
        for scene, tasks in SCENES:
            for _ in range(tasks):
                scenes.create_task(_repeat(scene, service))
        for app in service.apps.values():
            scenes.create_task(_demo_of(app))


async def _demo_of(app: Application[Any]) -> None:
    try:
        await app.demo()
    except Exception:  # the other scenes go on
        log.exception("demo_failed", app=app.name)


async def _repeat(scene: Scene, service: Service) -> None:
    chance = random.Random()
    while not service.stopping.is_set():
        try:
            await scene(service.once, chance)
        except SolelyError:  # such as an unavailable store: the demo continues when it is back
            await asyncio.sleep(1.0)
