"""Faults of MongoDB and of the way to it, and what a caller sees of them: on both faces, on real servers."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Literal

import pytest
from pymongo import AsyncMongoClient, MongoClient

from solely import AsyncClient, Client
from solely.errors import StoreDenied, Unanswered
from solely.fencing import StaleFence, fenced_update, fenced_update_async
from solely.model import Entry, State
from solely.ops import Acquire, Mark, Op, Read
from solely.stores import Store
from solely.stores import mongo as mongo_store
from solely.stores.mongo import open_async, open_blocking
from solely.testing.harness import fresh
from solely.testing.promises.reading import cut_text
from solely.testing.proxy import FaultProxy
from tests.client.wire import about, before, through
from tests.client_modes import MODES
from tests.conftest import in_collection
from tests.mongo_server import Mongod
from tests.store_modes import opening_stores, underlying

TIMEOUT = 10.0  # seconds: a busy test machine is no outage


@pytest.fixture
def set_url(replica_set: Mongod) -> str:
    return in_collection(replica_set.url_of("solely"))


@pytest.fixture(params=MODES)
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    with opening_stores(request.param, mongo_store, timeout=TIMEOUT) as opener:
        yield opener


# -- the server quotes a key in its message on a duplicate, cut off in the middle of a letter

SIZES = range(1, 508)  # bytes; with "lock/" before it, up to the longest stored key
OFFSETS = range(4)  # of letters that have four bytes each: wherever the server cuts, it cuts each of their bytes


def long_keys(stem: str, offset: int) -> list[str]:
    return [f"{stem}/{cut_text(size, offset)}" for size in SIZES]


def in_batches(ops: Sequence[Op], size: int = 100) -> Iterator[Sequence[Op]]:
    for start in range(0, len(ops), size):
        yield ops[start : start + size]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "open_store", ["blocking", pytest.param("asyncio", marks=pytest.mark.only_with_all)], indirect=True
)
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_held_key_of_any_letters_and_length_is_refused_and_does_not_fail(
    set_url: str, open_store: Callable[[str], Store], offset: int
) -> None:
    store = open_store(set_url)
    keys = long_keys("lock", offset)
    for ops in in_batches([Acquire(key, "holder", 1_000) for key in keys]):
        store.perform(ops)
    for many in (False, True):  # alone each is a findAndModify, together they are an update command
        for ops in in_batches([Acquire(key, "other", 1_000) for key in keys], 100 if many else 1):
            for op, reply in zip(ops, store.perform(ops), strict=True):
                assert isinstance(reply, Entry), (op, reply)
                assert (reply.state, reply.owner) == (State.HELD, "")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_marked_key_of_any_letters_and_length_is_seen_also_in_a_transaction(
    set_url: str, replica_set: Mongod, offset: int
) -> None:
    keys = long_keys("mark", offset)

    def again(n: int) -> list[Op]:
        return [Mark(key, f"again {n}", 1_000) for key in keys]

    async def within_async() -> list[Any]:
        store = open_async(set_url, clock=None, timeout=TIMEOUT)
        async with AsyncMongoClient[dict[str, Any]](replica_set.url) as mongo, mongo.start_session() as session:
            await session.start_transaction()
            try:
                return list(await store.perform_within(session, again(1)))
            finally:
                await session.abort_transaction()
                await store.close()

    with (
        closing(open_blocking(set_url, clock=None, timeout=TIMEOUT)) as store,
        MongoClient[dict[str, Any]](replica_set.url) as mongo,
        mongo.start_session() as session,
    ):
        assert store.perform([Mark(key, "first", 1_000) for key in keys]) == [True] * len(keys)
        assert [reply for ops in in_batches(again(2), 1) for reply in store.perform(ops)] == [False] * len(keys)
        with session.start_transaction():
            assert store.perform_within(session, again(3)) == [False] * len(keys)
    assert asyncio.run(within_async()) == [False] * len(keys)


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_stale_holder_is_refused_whatever_the_id_of_the_document(replica_set: Mongod, offset: int) -> None:
    name = fresh("orders")

    async def refused(id: str) -> None:
        async with AsyncMongoClient[dict[str, Any]](replica_set.url) as mongo:
            with pytest.raises(StaleFence):
                await fenced_update_async(mongo.solely[name], {"_id": id}, {"$set": {"n": 1}}, fence=6, upsert=True)

    with MongoClient[dict[str, Any]](replica_set.url) as mongo:
        orders = mongo.solely[name]
        for size in (100, 160, 161, 162, 163, 164, 165, 166, 167, 168, 200, 300, 400, 500):
            id = cut_text(size, offset)
            fenced_update(orders, {"_id": id}, {"$set": {"n": 7}}, fence=7, upsert=True)
            with pytest.raises(StaleFence):
                fenced_update(orders, {"_id": id}, {"$set": {"n": 1}}, fence=6, upsert=True)
            asyncio.run(refused(id))
            assert orders.find_one({"_id": id}) == {"_id": id, "n": 7, "fence": 7}


# -- a lost connection


def knows_the_primary(store: Any) -> bool:
    """True if the driver of this store would send to a primary now, without looking for one first."""
    return bool(underlying(store)._opened.client.topology_description.has_writable_server())


@pytest.fixture
def proxy(set_url: str) -> Iterator[FaultProxy]:
    with before(set_url) as running:
        yield running


@pytest.mark.parametrize("then", ["reset", "close"])
def test_a_lost_reply_stops_nobody_else(
    proxy: FaultProxy, set_url: str, open_store: Callable[[str], Store], then: Literal["reset", "close"]
) -> None:
    """pymongo would take the server for unknown and let all threads wait for its monitor, which looks every 0.5 s."""
    store = open_store(through(proxy, set_url))
    for n in range(3):
        store.perform([Read("lock/a")])
        fault = proxy.drop_replies(answering=about(f"mark/{n}"), then=then)
        with pytest.raises(Unanswered):
            store.perform([Mark(f"mark/{n}", "me", 100)])
        assert fault.hits == 1
        assert knows_the_primary(store)
        assert store.perform([Mark(f"mark/{n}", "me", 100)]) == [True]


def test_the_loss_of_one_connection_ends_those_that_lie_idle_and_not_those_in_use(
    proxy: FaultProxy, set_url: str
) -> None:
    with closing(open_blocking(through(proxy, set_url), clock=None, timeout=TIMEOUT)) as store:
        store.perform([Read("lock/a")])
        held = proxy.delay("to_server", None, n=1, where=about("mark/slow"))
        with ThreadPoolExecutor(1) as beside:
            slow = beside.submit(store.perform, [Mark("mark/slow", "me", 100)])
            assert held.wait()
            lost = proxy.drop_replies(answering=about("mark/lost"), then="reset")
            with pytest.raises(Unanswered):
                store.perform([Mark("mark/lost", "me", 100)])
            assert lost.hits == 1
            proxy.heal()
            assert slow.result(TIMEOUT) == [True]
        assert store.perform([Mark("mark/lost", "me", 100)]) == [True]


# -- a transaction that is to be run again, by pymongo's own loop

ABORTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "conflict": (("findAndModify", "update"), {"errorCode": 112, "errorLabels": ["TransientTransactionError"]}),
    "no such transaction": (("findAndModify", "update"), {"errorCode": 251}),
    "lost connection": (("findAndModify", "update"), {"closeConnection": True}),
    "stepped down": (("findAndModify", "update"), {"errorCode": 189}),
    "too slow": (("findAndModify", "update"), {"errorCode": 50}),
    "not prepared yet": (("createIndexes",), {"closeConnection": True}),
}


def run_repeatedly(url: str, server: Mongod, face: str, work: Callable[[Any], Any]) -> None:
    """Calls `work(within)` in pymongo's with_transaction; what it returns is awaited in asyncio."""
    if face == "blocking":
        with (
            Client(url, timeout=TIMEOUT) as once,
            MongoClient[dict[str, Any]](server.url) as mongo,
            mongo.start_session() as session,
        ):
            session.with_transaction(lambda session: work(once.within(session)))
        return

    async def main() -> None:
        async with (
            AsyncClient(url, timeout=TIMEOUT) as once,
            AsyncMongoClient[dict[str, Any]](server.url) as mongo,
            mongo.start_session() as session,
        ):

            async def callback(session: Any) -> Any:
                return await work(once.within(session))

            await session.with_transaction(callback)

    asyncio.run(main())


@pytest.mark.parametrize("face", MODES)
@pytest.mark.parametrize("fault", ABORTS)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_with_transaction_runs_again_what_was_aborted(
    replica_set: Mongod, set_url: str, face: str, fault: str, many: bool
) -> None:
    commands, data = ABORTS[fault]
    runs: list[str] = []

    def work(within: Any) -> Any:
        runs.append("run")
        return within.first_many(["a", "b"]) if many else within.first("a")

    if fault != "not prepared yet":
        with Client(set_url) as once:
            once.seen("a")
    with replica_set.failing(*commands, **data):
        run_repeatedly(set_url, replica_set, face, work)
    assert len(runs) == 2
    with Client(set_url) as once:
        assert once.seen("a")
        assert once.seen("b") is many


@pytest.mark.parametrize("face", MODES)
def test_with_transaction_runs_again_who_met_another_transaction(replica_set: Mongod, set_url: str, face: str) -> None:
    with (
        Client(set_url, timeout=TIMEOUT) as once,
        MongoClient[dict[str, Any]](replica_set.url) as mongo,
        mongo.start_session() as session,
    ):
        session.start_transaction()
        assert once.within(session).first("a")
        runs: list[str] = []

        def work(within: Any) -> Any:
            runs.append("run")
            if len(runs) == 2:
                session.commit_transaction()
            return within.first("a")

        run_repeatedly(set_url, replica_set, face, work)
        assert len(runs) == 2
        assert once.seen("a")


@pytest.mark.parametrize("face", MODES)
def test_with_transaction_does_not_run_again_what_cannot_succeed(replica_set: Mongod, set_url: str, face: str) -> None:
    runs: list[str] = []

    def work(within: Any) -> Any:
        runs.append("run")
        return within.first("a")

    with Client(set_url) as once:
        once.seen("a")
    denied = replica_set.failing("findAndModify", "update", errorCode=13)
    with denied, pytest.raises(StoreDenied):
        run_repeatedly(set_url, replica_set, face, work)
    assert len(runs) == 1
