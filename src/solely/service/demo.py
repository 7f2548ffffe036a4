"""`solely serve --demo`: simulated traffic on a temporary store, so that the dashboard has something to show.

It simulates a small company's deployments, webhooks, payments, backups, alerts, imports and mails, each of which uses
one primitive of Solely. Every key begins with `demo:`; the dashboard can replay the dead letters of `demo-charges`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from ..client import AsyncClient
from ..errors import Busy, SolelyError
from ..leases.lease import AsyncLease
from ..queues.item import AsyncItem
from ..queues.performing import Postpone
from ..queues.worker import QueueWorker
from ..schedules.calls import Tick
from .service import Mounted, Service
from .settings import Loaded, Settings

log = structlog.get_logger("solely.demo")

KEEP = 600.0  # seconds that marks and results are kept: long enough to look at them
MANY_LETTERS = 8  # dead letters after which they are replayed: a list to look at, that does not grow without end
GROUP = "demo-charges"  # the group of dead letters
MAILS = "demo:mails"  # the queue
Scene = Callable[[AsyncClient, random.Random], Awaitable[None]]


@contextmanager
def demo_settings(loaded: Loaded) -> Iterator[Settings]:
    """The settings of a demo: its store and database are files in a temporary folder, which is removed at the end.

    Only a URL that was given as a flag is used instead: SOLELY_URL and the file may name a store that others use.
    """
    with TemporaryDirectory(prefix="solely-demo-") as folder:
        files = {"url": "demo.db", "data_url": "demo-data.db"}
        own = {name: f"sqlite:///{quote(folder)}/{file}" for name, file in files.items()}
        given = {name for name in files if loaded.sources.get(name) == "flag"}
        yield msgspec.structs.replace(loaded.settings, **{name: own[name] for name in own.keys() - given})


async def deployments(once: AsyncClient, chance: random.Random) -> None:
    """Several pipelines deploy the same few services: one at a time; the others wait or give up."""
    target = chance.choice(("web", "api", "billing"))
    try:
        async with once.lock(f"demo:deploy:{target}", ttl=15, wait=4, purpose=f"release {chance.randrange(100, 999)}"):
            await asyncio.sleep(chance.uniform(1.0, 5.0))
    except Busy:
        await asyncio.sleep(chance.uniform(0.5, 2.0))


async def webhooks(once: AsyncClient, chance: random.Random) -> None:
    """A code host sends its webhooks, some of them twice or three times."""
    event = f"demo:review:{chance.randrange(1, 40)}:{chance.randrange(1, 12)}"
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        await once.first(event, ttl=KEEP)
    await asyncio.sleep(chance.uniform(0.1, 0.8))


async def payments(once: AsyncClient, chance: random.Random) -> None:
    """Each order is charged once, however often the request is repeated; a charge that fails becomes a dead letter."""
    order = f"demo:charge:order-{int(time.time() / 2) % 100_000 + chance.randrange(30)}"  # a new one every two seconds
    claim = await once.claim(order, ttl=10, wait=2, keep=KEEP, purpose="charge")
    if claim.won:
        await asyncio.sleep(chance.uniform(0.05, 1.0))
        if chance.random() < 0.05:
            error = chance.choice(("TimeoutError: the bank did not answer", "CardDeclined: insufficient funds"))
            payload = {"order": order, "amount": round(chance.uniform(5, 500), 2), "currency": "EUR"}
            await once.dead_letters(GROUP).push(payload, error=error, key=order)
            await claim.release()
        else:
            await claim.publish({"charge": f"ch_{chance.getrandbits(32):08x}"})
    await asyncio.sleep(chance.uniform(0.1, 0.6))


async def alerts(once: AsyncClient, chance: random.Random) -> None:
    """Monitors fire all the time; an alert is sent once, and not again during its quiet period."""
    alert = f"demo:alert:{chance.choice(('cpu-high', 'disk-full', 'latency'))}:{chance.choice(('web', 'api'))}"
    hold = await once.reserve(alert, hold=5, quiet=20, limit=10, per=KEEP)
    if hold:
        async with hold:
            await asyncio.sleep(chance.uniform(0.05, 0.3))
    await asyncio.sleep(chance.uniform(0.2, 1.5))


async def tenants(once: AsyncClient, chance: random.Random) -> None:
    """Tenants call an API that limits the rate of each tenant."""
    await once.limit(f"demo:tenant-{chance.randrange(1, 4)}", limit=10, per=30.0)
    await asyncio.sleep(chance.uniform(0.05, 0.4))


async def mails(once: AsyncClient, chance: random.Random) -> None:
    """A shop pushes mails to a queue, some of them for later."""
    mail = {"to": f"customer-{chance.randrange(1, 500)}@example.org", "template": chance.choice(("welcome", "invoice"))}
    delay = chance.choice((0.0, 0.0, 0.0, 30.0))
    await once.queue(MAILS).push(f"mail-{time.time_ns()}", mail, delay=delay)
    await asyncio.sleep(chance.uniform(0.3, 1.5))


async def mail_workers(once: AsyncClient, chance: random.Random) -> None:
    """A worker sends the mails; now and then the mail server is busy, and a mail is sent later."""
    await QueueWorker(once.queue(MAILS), _send, dead_letters=once.dead_letters(MAILS), at_once=2).run()


async def _send(item: AsyncItem) -> None:
    await asyncio.sleep(random.uniform(0.2, 2.0))
    if random.random() < 0.1:
        raise Postpone("the mail server is busy", after=15)


async def imports(once: AsyncClient, chance: random.Random) -> None:
    """Imports continue where the last one ended; one of them is always some minutes behind."""
    now = datetime.now(UTC)
    await once.watermark("demo:import:orders").advance(now)
    await once.watermark("demo:import:customers").advance(now - timedelta(minutes=4))
    await once.watermark("demo:ledger:last-id").advance(int(now.timestamp()))
    await asyncio.sleep(chance.uniform(1.0, 3.0))


async def backups(once: AsyncClient, chance: random.Random) -> None:
    """A long job holds its lock for minutes and renews it; two hosts want to run it."""
    try:
        async with once.lock("demo:backup:db", ttl=10, wait=20, purpose="nightly backup"):
            await asyncio.sleep(chance.uniform(30.0, 90.0))
    except Busy:
        await asyncio.sleep(chance.uniform(5.0, 20.0))


async def reports(once: AsyncClient, chance: random.Random) -> None:
    """Two hosts have the same schedule, and one of them runs each report; now and then a report fails."""
    await once.every("demo:report:minute", "* * * * *").run(_report)


async def clean_ups(once: AsyncClient, chance: random.Random) -> None:
    """Every ten seconds one of two hosts removes old files."""
    await once.every("demo:clean-up", 10.0, jitter=2.0).run(_report)


async def _report(tick: Tick[AsyncLease]) -> None:
    await asyncio.sleep(random.uniform(0.5, 3.0))
    if random.random() < 0.1:
        raise RuntimeError("the disk is full")


async def late_workers(once: AsyncClient, chance: random.Random) -> None:
    """Now and then a worker takes too long: its lease expires, and the worker is notified."""
    await asyncio.sleep(chance.uniform(60.0, 180.0))
    lease = await once.try_lock("demo:report:weekly", ttl=2, renew=False, on_lost="flag", purpose="weekly report")
    if lease is not None:
        await asyncio.sleep(3.0)
        await lease.release()


async def replays(once: AsyncClient, chance: random.Random) -> None:
    """Somebody replays the dead letters when there are many."""
    await asyncio.sleep(30.0)
    letters = await once.dead_letters(GROUP).list(limit=MANY_LETTERS)
    if len(letters) == MANY_LETTERS:
        await once.dead_letters(GROUP).replay_all(charge_again)


async def charge_again(payload: dict[str, Any]) -> dict[str, Any]:
    """Replays a failed charge; it succeeds most of the time."""
    await asyncio.sleep(0.3)
    if random.random() < 0.2:
        raise RuntimeError("the bank declined again")
    return {"charge": f"ch_{random.getrandbits(32):08x}", "order": payload["order"]}


# How many of each run at once: enough that the first minute shows every primitive, and that locks are contended.
SCENES: tuple[tuple[Scene, int], ...] = (
    (deployments, 6), (webhooks, 2), (payments, 3), (alerts, 3), (tenants, 2), (mails, 1), (mail_workers, 1),
    (imports, 1), (backups, 2), (reports, 2), (clean_ups, 2), (late_workers, 1), (replays, 1),
)  # fmt: skip


async def demo(service: Service) -> None:
    """Runs all scenes until the service stops."""
    service.dashboard.replays[GROUP] = charge_again
    async with asyncio.TaskGroup() as tasks:
        for scene, count in SCENES:
            for _ in range(count):
                tasks.create_task(_repeat(scene, service))
        for name, app in service.apps.items():
            tasks.create_task(_demo_of(name, app))


async def _demo_of(name: str, app: Mounted) -> None:
    try:
        await app.demo()
    except Exception:  # the other scenes continue
        log.exception("demo_failed", app=name)


async def _repeat(scene: Scene, service: Service) -> None:
    chance = random.Random()
    while not service.stopping.is_set():
        try:
            await scene(service.once, chance)
        except SolelyError:  # an unreachable store: the dashboard shows it, and the demo continues when it is back
            await asyncio.sleep(1.0)
