"""What waits for the thread of the asyncio SQLite store: renewals and releases first, lists apart, nothing for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from solely import AsyncClient, StoreUnavailable
from solely.errors import Unanswered
from solely.model import Entry, Released, State
from solely.ops import Acquire, Mark, Read, Release, Renew
from solely.stores import open_async_store
from solely.stores.sqlite.session import Session

LONG = 30.0  # seconds: no test waits so long unless it fails


class Gate:
    """A method of every session that stops at a gate while that is shut, and what went through it, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.passed: list[tuple[Any, ...]] = []
        through = getattr(Session, name)

        def guarded(session: Session, *given: Any) -> Any:
            self.reached.set()
            assert self.open.wait(LONG)
            self.passed.append(given)
            return through(session, *given)

        monkeypatch.setattr(Session, name, guarded)

    async def shut(self) -> None:
        self.reached.clear()
        self.open.clear()

    async def arrival(self) -> None:
        """Returns once somebody stands before it."""
        assert await asyncio.to_thread(self.reached.wait, LONG)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch, "scan")
    yield gate
    gate.open.set()


@pytest.fixture
def performs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch, "perform")
    yield gate
    gate.open.set()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'queue.sqlite3'}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[Any]:
    store = open_async_store(url, timeout=LONG)
    yield store
    await store.close()


async def test_leases_are_renewed_while_lists_take_for_ever(url: str, scans: Gate) -> None:
    once = AsyncClient(url, timeout=LONG)
    store = once._store
    await scans.shut()
    async with asyncio.timeout(LONG), once.lock("a", ttl=60) as lease:
        lists = [asyncio.ensure_future(store.scan("lock/", "", 10)) for _ in range(100)]
        await scans.arrival()
        for _ in range(3):
            await lease.renew()
        assert await once.first("b")
        assert await lease.release() is Released.RELEASED
        assert not scans.passed, "no list was read before that"
        scans.open.set()
        await asyncio.gather(*lists)
    await once.close()


async def test_renewals_and_releases_overtake_what_waits_in_the_queue(store: Any, performs: Gate) -> None:
    await store.perform([Acquire("lock/mine", "me", 60.0), Acquire("lock/other", "me", 60.0)])
    await performs.shut()
    first = store.perform([Read("lock/first")])
    await performs.arrival()
    others = [store.perform([Read(f"lock/{n}"), Mark(f"mark/{n}", "me", 60.0)]) for n in range(20)]
    urgent = store.perform([Renew("lock/mine", "me", 60.0)]), store.perform([Release("lock/other", "me")])
    performs.open.set()
    async with asyncio.timeout(LONG):
        await asyncio.gather(first, *urgent, *others)
    performed = [ops for (ops,) in performs.passed]
    following = performed[performed.index([Read("lock/first")]) + 1]
    assert following[:2] == [Renew("lock/mine", "me", 60.0), Release("lock/other", "me")]


async def test_nobody_is_overtaken_for_ever(store: Any, performs: Gate) -> None:
    """However much is to be renewed, each transaction also takes some of what else waits."""
    await performs.shut()
    first = store.perform([Read("lock/first")])
    await performs.arrival()
    patient = store.perform([Mark("mark/patient", "me", 60.0)])
    urgent = [store.perform([Renew(f"lock/{n}.{k}", "me", 60.0) for k in range(100)]) for n in range(40)]
    performs.open.set()
    async with asyncio.timeout(LONG):
        assert await patient == [True]
        await asyncio.gather(first, *urgent)
    assert Mark("mark/patient", "me", 60.0) in performs.passed[1][0]


async def test_what_waits_too_long_in_the_queue_is_not_performed_and_its_asker_is_told(
    url: str, performs: Gate
) -> None:
    store = open_async_store(url, timeout=0.2)
    await performs.shut()
    first = store.perform([Mark("mark/first", "me", 60.0)])
    await performs.arrival()
    late = store.perform([Mark("mark/late", "me", 60.0)]), store.perform([Release("lock/late", "me")])
    async with asyncio.timeout(LONG):
        for each in late:
            with pytest.raises(StoreUnavailable, match="nothing was done") as told:
                await each
            assert not isinstance(told.value, Unanswered)
        performs.open.set()
        assert await first == [True]
        (entry,) = await store.perform([Read("mark/late")])
    assert isinstance(entry, Entry)
    assert entry.state is State.FREE
    assert [ops for (ops,) in performs.passed] == [[Mark("mark/first", "me", 60.0)], [Read("mark/late")]]
    await store.close()


async def test_a_list_that_nobody_waits_for_any_more_is_not_read(store: Any, scans: Gate) -> None:
    await scans.shut()
    lists = [asyncio.ensure_future(store.scan("lock/", "", limit)) for limit in (1, 2, 3)]
    await scans.arrival()
    lists[1].cancel()
    await asyncio.sleep(0)
    scans.open.set()
    async with asyncio.timeout(LONG):
        await asyncio.gather(lists[0], lists[2])
    assert [limit for *_, limit in scans.passed] == [1, 3]


async def test_closing_performs_what_was_handed_in_on_both_threads(url: str, scans: Gate, performs: Gate) -> None:
    store = open_async_store(url, timeout=LONG)
    await scans.shut()
    await performs.shut()
    asked = asyncio.gather(store.perform([Mark("mark/a", "me", 60.0)]), store.scan("mark/", "", 10))
    await scans.arrival()
    await performs.arrival()
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    scans.open.set()
    performs.open.set()
    async with asyncio.timeout(LONG):
        await closing
        await asked
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("solely-sqlite")]
