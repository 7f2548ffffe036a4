"""Random sequences of posted batches, failing writes, frozen and dying replicas, replays and consumption, against a
model: one document for each credential in each window, and nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from solely import AsyncClient, Cache, StoreError
from solely.apps.signals import AsyncIdempotentSignalGenerator, AsyncMongoSignals, SignalOptions, deciding
from solely.apps.signals.deciding import SignalGeneratorBase
from solely.apps.signals.model import fresh_id
from solely.apps.signals.table import SignalTable
from solely.stores.memory import Memory
from solely.testing.clock import ManualClock
from tests.apps.replicas import Replica, ReplicaStore, Started
from tests.mongo_server import Mongod

TTL, WINDOW = 30.0, 300.0
LONGEST_FREEZE = 200.0  # seconds: the id of a signal outlives that by far
LEASE = 3600.0  # seconds: no lease of a consumer ends during a test
GROUP = ("north", "slots")
NAMES = ("ann", "bob", "eve")

replicas = st.sampled_from(["a", "b"])
batches = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
moods = st.sampled_from(["writes", "writes", "fails", "writes but fails", "hangs", "writes and hangs"])


class Writer:
    """How the writes of one replica go; the test sets its mood."""

    def __init__(self, store: ReplicaStore) -> None:
        self._store = store
        self.mood = "writes"
        self.go_on = asyncio.Event()

    async def write(self, write: Callable[[], Any]) -> Any:
        mood = self.mood
        if mood == "fails":
            raise OSError("it cannot be written")
        if mood == "hangs":
            await self._hang()
        written = await write()
        if mood == "writes but fails":
            raise OSError("no answer")
        if mood == "writes and hangs":
            await self._hang()
        return written

    async def _hang(self) -> None:
        await self._store.elsewhere_until(self.go_on.wait())
        await self._store.alive()


@dataclass
class Posted:
    """What became of a batch. `outcome` is empty if nobody knows."""

    outcome: str
    generated: int = 0
    deduplicated: int = 0
    dead_lettered: int = 0


class HttpProducers:
    """A replica of the service, and its table in a database."""

    def __init__(self, memory: Memory, data_url: str) -> None:
        self._replica = Replica(memory, apps=("signals",), data_url=data_url)
        self.store, self.start = self._replica.store, self._replica.start
        self.settle, self.kill, self.close = self._replica.settle, self._replica.kill, self._replica.close
        self.writer = Writer(self.store)

    async def open(self, clock: ManualClock) -> None:
        await self._replica.open()
        app: Any = self._replica.service.apps["signals"]
        self.generator, write = app.generator, app.table.write
        app.table.write = lambda *about: self.writer.write(lambda: write(*about))

    async def post(self, signals: list[dict[str, Any]]) -> Posted:
        answer = await self._replica.http.post("/api/signals/north/slots", json={"signals": signals})
        assert answer.status_code in (200, 409, 500, 502, 503), answer.text
        if answer.status_code == 409:
            return Posted("contended")
        return Posted(**answer.json()) if answer.status_code == 200 else Posted("")

    async def waiting(self) -> list[dict[str, Any]]:
        answer = await self._replica.http.get("/api/signals/waiting?limit=1000")
        return [{**each["signal"], "id": each["id"]} for each in answer.json()["signals"]]

    async def next(self) -> dict[str, Any] | None:
        answer = await self._replica.http.get("/api/signals/next")
        return {**answer.json()["signal"], "id": answer.json()["id"]} if answer.status_code == 200 else None

    async def take(self) -> dict[str, Any] | None:
        answer = await self._replica.http.post("/api/signals/north/slots/next", json={"lease": LEASE})
        return {**answer.json()["signal"], "id": answer.json()["id"]} if answer.status_code == 200 else None

    async def acknowledge(self, signal: dict[str, Any]) -> bool:
        answer = await self._replica.http.post("/api/signals/acknowledge", json={"id": signal["id"]})
        return bool(answer.json()["acknowledged"])

    async def letters(self) -> set[str]:
        answer = await self._replica.http.get("/api/signals/dead-letters")
        return {each["username"] for each in answer.json()["dead_letters"]}

    async def replay(self) -> bool:
        answer = await self._replica.http.post("/api/signals/replay", json={"reason": "a test wants it"})
        return answer.status_code == 200


class MongoPollers:
    """A process with the library's generator, whose signals are in a collection of MongoDB."""

    def __init__(self, memory: Memory, collection: Any) -> None:
        self.store = ReplicaStore(memory)
        started = Started(self.store)
        self.start, self.settle = started.start, started.settle
        self._started = started
        self.writer = Writer(self.store)
        self._signals, self._collection = AsyncMongoSignals(collection), collection

    async def open(self, clock: ManualClock) -> None:
        self._once = AsyncClient(store=self.store, timeout=60.0)
        options = SignalOptions(report_every=0.0)
        self.generator = AsyncIdempotentSignalGenerator(
            lambda group, signals: signals, self._write, self._once, options=options
        )

    async def _write(self, signal: dict[str, Any], id: str) -> Any:
        return await self.writer.write(lambda: self._signals.write(signal, id))

    async def post(self, signals: list[dict[str, Any]]) -> Posted:
        priced = [{**each, "Priority": each["priority"]} for each in signals]
        try:
            found = await self.generator.generate_group(GROUP, priced)
        except StoreError:
            return Posted("")
        return Posted(found.outcome, found.generated, found.deduplicated, found.dead_lettered)

    async def waiting(self) -> list[dict[str, Any]]:
        return [self._known(each) async for each in self._collection.find({"Acknowledged": {"$ne": True}})]

    async def next(self) -> dict[str, Any] | None:
        found = await self._signals.get_next()
        return None if found is None else self._known(found)

    async def take(self) -> dict[str, Any] | None:
        found = await self._signals.take(LEASE)
        return None if found is None else self._known(found)

    async def acknowledge(self, signal: dict[str, Any]) -> bool:
        from bson import ObjectId

        return await self._signals.acknowledge({"_id": ObjectId(signal["id"])})

    async def letters(self) -> set[str]:
        return {each.payload["username"] for each in await self._once.dead_letters("signals").list()}

    async def replay(self) -> bool:
        await self.generator.replay_all()
        return True

    async def kill(self) -> None:
        self.store.die()
        await self.close()

    async def close(self) -> None:
        await self._started.all_ended()
        await self._once.close()

    @staticmethod
    def _known(document: dict[str, Any]) -> dict[str, Any]:
        return {"username": document["username"], "priority": document["priority"], "id": str(document["_id"])}


@dataclass
class Documents:
    """The documents of a credential: id → when the test first saw it."""

    seen: dict[str, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)


class SignalsMachine(RuleBasedStateMachine):
    mongo: Mongod | None = None

    @initialize()
    def begin(self) -> None:
        self.runner, self.ending = asyncio.Runner(), ExitStack()
        self.clock = ManualClock()
        self.memory = Memory(clock=self.clock)
        folder = self.ending.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        self.data_url = f"sqlite:///{folder}/data.db"
        self.ending.enter_context(mock.patch.object(AsyncIdempotentSignalGenerator, "_sleep", _at_once))
        self.documents = {name: Documents() for name in NAMES}
        self.acknowledged: set[str] = set()
        self.leased: set[str] = set()
        self.kept: set[str] = set()  # credentials with dead letters
        self.knows_kept = True  # False if all replicas were frozen when they were last asked
        self.posting: dict[asyncio.Task[Posted], tuple[str, list[str]]] = {}
        self.undecided = -TTL  # when a replica was last killed, whose lock may still be held
        self.frozen_for = 0.0
        self.number = itertools.count()
        self.replicas: dict[str, Any] = {}
        self.runner.run(self._open_all())

    async def _open_all(self) -> None:
        if self.mongo is not None:
            from pymongo import AsyncMongoClient

            self.client: Any = AsyncMongoClient(self.mongo.url)
            self.collection = self.client[f"machine_{secrets.token_hex(6)}"]["SIGN4L"]
        for name in ("a", "b"):
            await self._start(name)

    async def _start(self, name: str) -> None:
        replica = (
            HttpProducers(self.memory, self.data_url)
            if self.mongo is None
            else MongoPollers(self.memory, self.collection)
        )
        await replica.open(self.clock)
        cache = replica.generator.cache
        replica.generator.cache = Cache(size=cache.size, ttl=cache.ttl, clock=self.clock)
        self.replicas[name] = replica

    # -- producers

    @rule(names=batches, replica=replicas)
    def batch_is_posted(self, names: list[str], replica: str) -> None:
        self.runner.run(self._post(names, replica))

    @rule(names=batches)
    def batch_is_posted_to_both(self, names: list[str]) -> None:
        for replica in self.replicas:
            self.runner.run(self._post(names, replica))

    async def _post(self, names: list[str], replica: str) -> None:
        it = self.replicas[replica]
        signals = [{"username": name, "priority": next(self.number) % 3} for name in names]
        fresh = not self.posting and not self._is_held_up(replica) and it.writer.mood == "writes"
        free = fresh and self.clock() >= self.undecided + TTL
        if self._is_held_up(replica):
            self.undecided = self.clock()  # the store may fail when the lock is released
        task = await it.start(it.post(signals))
        if task.done():
            await self._decided(task.result(), names, free)
        else:
            self.posting[task] = replica, names

    async def _decided(self, posted: Posted, names: list[str], free: bool) -> None:
        await self._look()
        if free:
            assert posted.outcome == "generated", posted
            assert posted.dead_lettered == 0, posted
        if posted.outcome == "generated":
            counts = (posted.generated, posted.deduplicated, posted.dead_lettered)
            assert sum(counts) == len(names), counts
            recent = {name for name in names if self._has_recent(name)}
            if self.knows_kept:
                assert recent | self.kept >= set(names), "a signal is lost"
                assert len(self.kept & set(names)) >= posted.dead_lettered, "a dead letter is lost"
            if free:
                assert recent == set(names), "a signal that was written is not read"

    def _has_recent(self, name: str) -> bool:
        """True if it got a signal in the window, which begins when a frozen replica goes on."""
        since = self.clock() - WINDOW - LONGEST_FREEZE
        return any(at >= since for at in self.documents[name].times)

    # -- consumers

    @rule(replica=replicas)
    def next_is_read(self, replica: str) -> None:
        self.runner.run(self._read(replica))

    @rule(replica=replicas)
    def next_is_acknowledged(self, replica: str) -> None:
        async def acknowledge() -> None:
            found = await self._read(replica)
            if found is not None:
                assert await self.replicas[replica].acknowledge(found)
                self.acknowledged.add(found["id"])
                for other in self.replicas.values():
                    assert not await other.acknowledge(found), "it was acknowledged twice"

        self.runner.run(acknowledge())

    async def _read(self, replica: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self.replicas[replica].next()
        waiting = await self._look()
        assert (found is None) == (not waiting)
        if found is not None:
            assert found["priority"] == max(each["priority"] for each in waiting), "another one is more urgent"
        return found

    @rule(replica=replicas)
    def next_is_leased(self, replica: str) -> None:
        async def lease() -> None:
            found = await self.replicas[replica].take()
            waiting = {each["id"] for each in await self._look()} - self.leased
            assert (found is None) == (not waiting)
            if found is not None:
                assert found["id"] in waiting, "it was leased twice"
                self.leased.add(found["id"])

        self.runner.run(lease())

    # -- operators

    @rule(replica=replicas)
    def letters_are_replayed(self, replica: str) -> None:
        async def replay() -> None:
            it = self.replicas[replica]
            if self._is_held_up(replica) or it.writer.mood not in ("writes", "fails"):
                return
            before = set(self.kept)
            await it.replay()
            await self._look(replayed=True)
            assert all(self._has_recent(name) for name in before - self.kept), "a dead letter is lost"
            if it.writer.mood == "writes" and not self.posting:
                assert not self.kept, "a dead letter was not replayed"

        self.runner.run(replay())

    # -- replicas

    @rule(replica=replicas, mood=moods)
    def writes_change(self, replica: str, mood: str) -> None:
        self.replicas[replica].writer.mood = mood

    @rule(replica=replicas, requests=st.integers(0, 10))
    def replica_freezes(self, replica: str, requests: int) -> None:
        """Before so many more requests to the store."""
        self.replicas[replica].store.freeze_after(requests)

    @rule(replica=replicas, requests=st.integers(0, 10), performed=st.booleans())
    def store_fails_once(self, replica: str, requests: int, performed: bool) -> None:
        """At one of the next requests, before or after it is performed."""
        self.replicas[replica].store.fail_after(requests, performed=performed)

    @rule(replica=replicas)
    def replica_goes_on(self, replica: str) -> None:
        self.runner.run(self._go_on(replica))

    async def _go_on(self, replica: str) -> None:
        it = self.replicas[replica]
        it.store.go_on()
        it.writer.go_on.set()
        await it.settle()
        it.writer.go_on.clear()
        for task in [each for each in self.posting if each.done()]:
            _, names = self.posting.pop(task)
            await self._decided(task.result(), names, free=False)

    @rule(replica=replicas)
    def replica_dies(self, replica: str) -> None:
        self.runner.run(self._die(replica))

    async def _die(self, replica: str) -> None:
        it = self.replicas[replica]
        it.store.die()
        it.writer.go_on.set()
        await it.kill()
        self.posting = {task: about for task, about in self.posting.items() if about[0] != replica}
        self.undecided = self.clock()
        await self._start(replica)
        await self._look()

    @rule(names=batches, replica=replicas, requests=st.integers(3, 10))
    def replica_dies_while_it_posts(self, names: list[str], replica: str, requests: int) -> None:
        """The next process takes over as soon as the lock has expired."""
        if not self._is_held_up(replica):
            self.replica_freezes(replica, requests)
            self.batch_is_posted(names, replica)
            self.replica_dies(replica)
            self.clock.advance(TTL + 1.0)
            self.batch_is_posted(names, replica)

    @rule(seconds=st.sampled_from([1.0, TTL + 1.0, WINDOW / 2, WINDOW + 1.0]))
    def time_passes(self, seconds: float) -> None:
        """A replica that is frozen for longer than its lock lasts is not told so here; for much longer, it dies."""

        async def passing() -> None:
            held_up = [name for name in self.replicas if self._is_held_up(name)]
            self.frozen_for = self.frozen_for + seconds if held_up else 0.0
            if self.frozen_for > LONGEST_FREEZE:
                for name in held_up:
                    await self._die(name)
            self.clock.advance(seconds)

        self.runner.run(passing())

    # -- what holds at any moment

    async def _look(self, *, replayed: bool = False) -> list[dict[str, Any]]:
        """The signals that wait, which all replicas see alike; new ones are noted."""
        lists = [await each.waiting() for each in self.replicas.values()]
        waiting, other = ({each["id"]: each for each in found} for found in lists)
        assert waiting.keys() == other.keys(), "replicas read different signals"
        assert not waiting.keys() & self.acknowledged, "an acknowledged signal waits"
        now = self.clock()
        for id, signal in waiting.items():
            known = self.documents[signal["username"]]
            if id not in known.seen:
                assert all(now >= at + WINDOW for at in known.times), f"{signal['username']} has two in a window"
                known.seen[id] = now
                known.times.append(now)
        ids = {id for known in self.documents.values() for id in known.seen}
        assert ids - self.acknowledged == waiting.keys(), "a signal that was written is gone"
        asked = next((each for each in self.replicas.values() if not each.store.holds_up), None)
        self.knows_kept = asked is not None
        if asked is not None:
            with asked.store.undisturbed():
                found = await asked.letters()
            assert replayed or found >= self.kept, "a dead letter is lost"
            self.kept = found
        return list(waiting.values())

    def _is_held_up(self, replica: str) -> bool:
        store = self.replicas[replica].store
        return bool(store.holds_up or store.disturbed)

    def teardown(self) -> None:
        async def end() -> None:
            try:
                for name, it in self.replicas.items():
                    it.writer.mood = "writes"
                    await self._go_on(name)
                self.clock.advance(TTL + 1.0)
                for replica in self.replicas:
                    await self._post(list(NAMES), replica)
            finally:
                for it in self.replicas.values():
                    it.store.go_on()
                    it.writer.go_on.set()
                    await it.close()
                if self.mongo is not None:
                    await self.client.drop_database(self.collection.database.name)
                    await self.client.close()

        if hasattr(self, "runner"):
            try:
                self.runner.run(end())
            finally:
                self.runner.close()
                self.ending.close()


async def _at_once(generator: object, seconds: float) -> None:
    await asyncio.sleep(0)


def run_machine(examples: int, steps: int = 25, *, mongo: Mongod | None = None, shrink: bool = True) -> None:
    machine = type("Machine", (SignalsMachine,), {"mongo": mongo})
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, derandomize=True, database=None, deadline=None,
            phases=phases, suppress_health_check=list(HealthCheck), print_blob=False,
        ),
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_each_credential_gets_one_document_per_window(thorough: bool) -> None:
    run_machine(300 if thorough else 10)


@pytest.mark.timeout(600)
def test_each_credential_gets_one_document_per_window_in_mongodb(replica_set: Mongod, thorough: bool) -> None:
    run_machine(100 if thorough else 10, mongo=replica_set)


def _another_id(key: str, fence: int) -> str:
    """An id that the next process does not find."""
    return fresh_id()


def _not_kept(self: SignalGeneratorBase, failed: object, error: BaseException) -> Any:
    yield partial(asyncio.sleep, 0)


async def _unwritten(self: SignalTable, *about: Any) -> bool:
    return False  # as if it were there


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "name", "broken"),
    [
        (deciding, "signal_id", _another_id),
        (SignalGeneratorBase, "_park", _not_kept),
        (SignalTable, "write", _unwritten),
    ],
)
def test_the_machine_finds_a_planted_bug(place: Any, name: str, broken: Callable[..., Any]) -> None:
    with mock.patch.object(place, name, broken), pytest.raises((AssertionError, ExceptionGroup)):
        run_machine(40, shrink=False)
