"""A service with all applications and something of every kind, for tests that walk over all pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from solely import AsyncClient, AsyncLease, Tick
from solely.ops import Acquire
from solely.owner import fresh_owner
from solely.service.demo import demo
from tests.service.serving import TOKENS, Running, bearer, until

MANY = 5  # entries of each kind, of which a list shows two at a time
OTHER_HOST = "web-7"  # a host that has died

# Lists with more than two rows, in the order in which they are listed.
LISTS = {
    "/locks?prefix=paged:": "Locks",
    "/locks?prefix=paged:&sort=key": "Locks",
    "/claims?prefix=paged:": "Claims",
    "/reservations?prefix=paged:": "Reservations",
    "/dedup?prefix=paged:": "Dedup",
    "/limits?prefix=paged:": "Limits",
    "/watermarks?prefix=paged:": "Watermarks",
    "/schedules?prefix=paged:&sort=key": "Schedules",
    "/queues?prefix=paged:": "Queues",
    "/queues?queue=paged:0": "Queues",
    "/dead-letters?group=paged": "Dead letters",
    "/audit": "Audit log",
}
# Lists of applications, which the demo fills: new rows come while they are read.
APP_LISTS = {
    "/alerts": "Alerts",
    "/alerts/history": "Notifications",
    "/repos/jobs": "Jobs",
    "/triggers": "Triggers",
    "/probes/results?target={target}": "Results",
}
PAGES = {
    "/": "Overview",
    "/health": "Health",
    "/events": "Events",
    "/search?q=paged": "Search",
    "/search?q=nothing-like-this": "Search",
    "/locks": "Locks",
    f"/locks?holder={OTHER_HOST}": "Locks",
    "/claims": "Claims",
    "/reservations": "Reservations",
    "/dedup": "Dedup",
    "/dedup?key=paged:0": "Dedup",
    "/keys/lock/paged:0": "",
    "/keys/claim/paged:0": "",
    "/limits": "Limits",
    "/queues": "Queues",
    "/queues?queue=paged:0": "Queues",
    "/queues/item?queue=paged:0&id=item-0": "item-0",
    "/schedules": "Schedules",
    "/dead-letters": "Dead letters",
    "/dead-letters?group=paged": "Dead letters",
    "/dead-letters/letter?group=paged&id={letter}": "{letter}",
    "/watermarks": "Watermarks",
    "/audit": "Audit log",
    "/applications": "Applications",
    "/alerts": "Alerts",
    "/alerts/history": "Notifications",
    "/alerts/why?fingerprint={fingerprint}": "",
    "/alerts/silences": "Silence alerts?",
    "/probes": "Probes",
    "/probes/target?name={target}": "",
    "/probes/results?target={target}": "Results",
    "/probes/add": "",
    "/status": "Status",
    "/signals": "Signals",
    "/repos": "Repositories",
    "/repos/jobs": "Jobs",
    "/triggers": "Triggers",
    "/triggers/run?id={run}": "",
    f"/locks/release-host?host={OTHER_HOST}": f"Release {MANY} keys that {OTHER_HOST} holds?",
    "/policy": "Idempotency policy",
    "/login": "",
    "/no-such-page": "Not found",
}


async def _nothing(tick: Tick[AsyncLease]) -> None: ...


async def _fill(once: AsyncClient, it: Running) -> None:
    for number in range(MANY):
        key = f"paged:{number}"
        await once.lock(key, ttl=3000, renew=False, purpose="a migration")
        await once.first(key, ttl=3000)
        claim = await once.claim(key, ttl=3000)
        await claim.publish({"number": number})
        async with await once.reserve(key, quiet=3000):
            pass
        for _ in range(2):
            await once.limit(key, limit=1, per=3000)
        await once.watermark(key).advance(number + 1)
        await once.every(key, 3000.0).run_due(_nothing)
        await once.queue(key).push("item-0", {"number": number})
        await once.queue("paged:0").push(f"item-{number}", {"number": number})
        await once.dead_letters("paged").push({"number": number}, error="Timeout: slow", key=f"letter-{number}")
        async with it.service.audit.acting("ann", "locks.release", key, "its host is gone") as record:
            record.outcome = "done"
    info = f'{{"host":"{OTHER_HOST}","pid":7,"since":1700000000}}'
    await it.service.perform(*(Acquire(f"lock/dead:{number}", fresh_owner(), 3000.0, info) for number in range(MANY)))


def demonstrate(it: Running) -> None:
    """Fills the lists, and runs the demo until every application has something to show."""
    it.run(_fill(it.service.once, it))
    it.service.dashboard.replays["paged"] = lambda payload: None
    with traffic(it):
        until(lambda: all(known(it).values()) and all(_rows(it, path) > 4 for path in ("alerts/history", "repos/jobs")))


@contextmanager
def traffic(it: Running) -> Iterator[None]:
    """Runs the demo meanwhile; it has ended afterwards."""

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(demo(it.service))

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    task = it.run(begin())
    try:
        yield
    finally:
        it.run(end())


def _rows(it: Running, path: str) -> int:
    answer = it.get(f"/api/{path}", headers=bearer(TOKENS["read"]))
    return len(next(iter(answer.json().values())))


def known(it: Running) -> dict[str, str]:
    """Names of things that the demo has made, for addresses of their pages; empty while there are none."""
    asked: dict[str, Any] = {
        "letter": ("/dead-letters?group=paged", lambda view: view["letters"][0]["id"]),
        "fingerprint": ("/alerts", lambda view: view["firing"][1]["alert"]["fingerprint"]),
        "target": ("/probes", lambda view: next(row for row in view["rows"] if len(row["bars"]) > 4)["target"]["name"]),
        "run": ("/triggers", lambda view: view["runs"][4]["id"]),
    }
    found = dict[str, str]()
    for name, (path, pick) in asked.items():
        try:
            found[name] = pick(it.get(path, headers={"accept": "application/json", **bearer(TOKENS["read"])}).json())
        except (LookupError, ValueError, StopIteration):
            found[name] = ""
    return found


def addresses(it: Running, pages: dict[str, str] = PAGES) -> dict[str, str]:
    """The addresses of these pages, with their headings; an empty one is not compared."""
    names = known(it)
    safe = {name: urlencode({"": text})[1:] for name, text in names.items()}
    return {path.format_map(safe): title.format_map(names) for path, title in pages.items()}
