"""The index of the Redis store: a listing costs what its answer costs, misses nothing, and keeps no dead names."""

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from solely.errors import ClientClosed, StoreFailed, StoreFull, StoreUnavailable
from solely.formats import write_watermark
from solely.model import Entry, Released, item_key
from solely.ops import (
    Ack,
    Acquire,
    Advance,
    Clear,
    Finish,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Return,
    Take,
)
from solely.stores import Store
from solely.stores import redis as redis_store
from solely.stores.memory import Memory, MemoryStore
from solely.stores.redis import open_async, open_blocking
from solely.stores.redis.codec import Codec
from solely.stores.redis.settings import parse
from solely.testing.clock import ManualClock
from tests.client_modes import MODES
from tests.conftest import isolated
from tests.servers import Valkey, ValkeyCluster, until
from tests.store_modes import opening_stores

ONE = write_watermark(1)
LASTS = 3_600.0

OpenStore = Callable[[str], Store]


@pytest.fixture(params=MODES)
def open_store(request: pytest.FixtureRequest) -> Iterator[OpenStore]:
    with opening_stores(request.param, redis_store, timeout=20) as opener:
        yield opener


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A server whose commands are counted: no other test may use it."""
    with Valkey() as valkey:
        yield valkey


def reserved(*names: str) -> list[Op]:
    return [Acquire(f"reservation/{name}", "me", LASTS, counted=True) for name in names]


def granted(store: Store, *names: str) -> None:
    for entry in store.perform(reserved(*names)):
        assert isinstance(entry, Entry)
        assert entry.owner == "me"


def keys(store: Store, prefix: str, after: str = "", limit: int = 1_000) -> list[str]:
    return [entry.key for entry in store.scan(prefix, after, limit)]


def indexed(server: Valkey, url: str, kind: str) -> list[str]:
    """The names in the index of one server."""
    found: list[str] = server.ask("ZRANGE", f"{parse(url).prefix}#list:{kind}", 0, -1)
    return found


def lose_index(server: Valkey, url: str) -> None:
    """Leaves what a version without an index would have left."""
    server.ask("DEL", *(f"{parse(url).prefix}#list{rest}" for rest in ("ed", ":item", ":reservation", ":watermark")))


def expire(server: Valkey, url: str, *stored: str) -> None:
    """Ends records as Redis does when their time is over."""
    names = [parse(url).prefix + key for key in stored]
    for name in names:
        server.ask("PEXPIRE", name, 1)
    until(lambda: not server.ask("EXISTS", *names), "the end of the records")


def calls(server: Valkey, command: str) -> int:
    """How often the server has performed this command since RESETSTAT, also inside of scripts."""
    return int(server.ask("INFO", "commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


# -- what a listing costs


@pytest.mark.parametrize("others", [10, 2_000])
def test_the_cost_of_a_listing_follows_its_answer(open_store: OpenStore, server: Valkey, others: int) -> None:
    url = isolated(server.url)
    store = open_store(url)
    beside: list[Op] = [
        op for n in range(others) for op in (Mark(f"mark/{n}", "me", LASTS), Push("other", f"{n}", b""))
    ]
    store.perform([*beside, *reserved(*(f"b/{n:04}" for n in range(others)))])
    names = [f"a/{n:02}" for n in range(50)]
    store.perform([*reserved(*names), *(Push("mine", name, b"payload") for name in names)])
    keys(store, "item/")
    server.ask("CONFIG", "RESETSTAT")
    assert keys(store, "reservation/a/") == [f"reservation/{name}" for name in names]
    assert keys(store, item_key("mine", "")) == [item_key("mine", name) for name in names]
    assert calls(server, "scan") == 0
    assert calls(server, "evalsha") == 2
    assert calls(server, "zrangebylex") == 2
    assert calls(server, "get") == 100


def test_locks_marks_and_claims_are_in_no_index(open_store: OpenStore, server: Valkey) -> None:
    url = isolated(server.url)
    store = open_store(url)
    ops: list[Op] = [
        Acquire("lock/a", "me", 30), Acquire("lock/a", "other", 30, "", "client"), Renew("lock/a", "me", 60),
        Mark("mark/a", "me", 30), Mark("mark/a", "me", 60, extend=True),
        Acquire("claim/a", "me", 30, fingerprint="f", value=True), Finish("claim/a", "me", b"b", 30),
        Acquire("replay/a", "me", 30), Release("lock/a", "me"),
    ]  # fmt: skip
    store.perform(ops)
    server.ask("CONFIG", "RESETSTAT")
    store.perform(ops)
    for command in ("zadd", "zrem", "zrandmember", "zrangebylex"):
        assert calls(server, command) == 0
    assert not server.ask("KEYS", f"{parse(url).prefix}#list*")


def test_one_call_looks_at_a_bounded_number_of_records(open_store: OpenStore, server: Valkey) -> None:
    url = isolated(server.url)
    store = open_store(url)
    keys(store, "reservation/")
    names = [f"{n:04}" for n in range(1_000)]
    server.ask("ZADD", f"{parse(url).prefix}#list:reservation", *(word for name in names for word in (0, name)))
    granted(store, "zzz")
    server.ask("CONFIG", "RESETSTAT")
    assert keys(store, "reservation/", limit=1) == ["reservation/zzz"]
    assert 1_000 / 128 <= calls(server, "evalsha") <= 9
    assert indexed(server, url, "reservation") == ["zzz"]


# -- order, prefix, after, limit


NAMES = (
    "",
    "a",
    "a*",
    "a/b",
    "aé",
    "b",
    "~x",
    "é",
    "é/ü",
    "ключ",
    "鍵🔑",
    "\uffff",
    "a\0b",
    "A",
    "a b",
    "{t}",
    "[b-d]?",
)


@pytest.mark.parametrize("kind", ["reservation", "watermark", "item/q"])
@pytest.mark.parametrize("servers", ["valkey", "cluster"])
def test_pages_are_those_of_the_reference(request: pytest.FixtureRequest, servers: str, kind: str) -> None:
    store = open_blocking(isolated(request.getfixturevalue(servers).url), clock=None, timeout=20)
    model = MemoryStore(Memory())
    draw = random.Random(7)
    names = sorted({draw.choice(NAMES) + draw.choice(NAMES) for _ in range(150)} - {""})
    stored = [f"{kind}/{name}" for name in names]
    for each in (store, model):
        if kind == "reservation":
            each.perform([Acquire(key, "me", LASTS) for key in stored])
        elif kind == "watermark":
            each.perform([Advance(key, ONE) for key in stored])
        else:
            each.perform([Push("q", name, b"") for name in names])
    for _ in range(150):
        prefix = f"{kind}/{draw.choice(NAMES)}"
        after = draw.choice(["", "a", "zzz", kind, prefix, draw.choice(stored), draw.choice(stored) + "0"])
        limit = draw.choice([0, 1, 2, 7, 50, 1_000])
        assert keys(store, prefix, after, limit) == [e.key for e in model.scan(prefix, after, limit)], (
            prefix,
            after,
            limit,
        )
    store.close()


def test_a_listing_across_the_cluster_is_in_order_and_asks_little(
    open_store: OpenStore, cluster: ValkeyCluster
) -> None:
    store = open_store(isolated(cluster.url))
    names = sorted(f"{random.Random(n).randrange(10**9):09}" for n in range(2_000))
    granted(store, *names)
    assert keys(store, "reservation/", limit=2_000) == [f"reservation/{name}" for name in names]
    for node in cluster.nodes:
        node.ask("CONFIG", "RESETSTAT")
    assert keys(store, "reservation/", limit=100) == [f"reservation/{name}" for name in names[:100]]
    assert sum(calls(node, "scan") for node in cluster.nodes) == 0
    assert sum(calls(node, "get") for node in cluster.nodes) < 1_000
    after = f"reservation/{names[99]}"
    assert keys(store, "reservation/", after, 100) == [f"reservation/{name}" for name in names[100:200]]


def test_a_queue_of_a_cluster_is_listed_by_one_call(open_store: OpenStore, cluster: ValkeyCluster) -> None:
    store = open_store(isolated(cluster.url))
    store.perform([Push(queue, f"{n:02}", b"payload") for queue in ("q/1", "q/2") for n in range(20)])
    assert len(keys(store, "item/")) == 40
    for node in cluster.nodes:
        node.ask("CONFIG", "RESETSTAT")
    assert keys(store, item_key("q/1", "")) == [item_key("q/1", f"{n:02}") for n in range(20)]
    assert sum(calls(node, "evalsha") for node in cluster.nodes) == 1


# -- every op keeps the index


def test_every_op_keeps_the_index_as_it_leaves_the_record(open_store: OpenStore, server: Valkey) -> None:
    url = isolated(server.url)
    store = open_store(url)

    def one(op: Op) -> Any:
        return store.perform([op])[0]

    def listed(kind: str = "reservation") -> list[str]:
        assert sorted(indexed(server, url, kind)) == [key.partition("/")[2] for key in keys(store, f"{kind}/")]
        return indexed(server, url, kind)

    granted(store, "released", "renewed", "cleared", "finished")
    one(Acquire("reservation/plain", "me", LASTS))
    one(Acquire("reservation/delayed", "me", LASTS, delay=5.0))
    for name in ("renewed", "plain"):
        assert one(Renew(f"reservation/{name}", "me", LASTS)).owner == "me"
    assert len(listed()) == 6
    for name in ("released", "renewed", "plain"):
        assert one(Release(f"reservation/{name}", "me")) is Released.RELEASED
    assert one(Clear("reservation/cleared", one(Read("reservation/cleared")).fence, "test")) is True
    assert listed() == ["delayed", "finished"]
    one(Finish("reservation/finished", "me", b"", LASTS))
    one(Release("reservation/delayed", "me", delay=LASTS))
    assert listed() == ["delayed", "finished"]
    one(Acquire("reservation/cleared", "again", LASTS, counted=True))  # its record still names whom it was taken from
    assert listed() == ["cleared", "delayed", "finished"]

    mark = one(Advance("watermark/a", ONE))
    one(Advance("watermark/b", ONE))
    assert one(Clear("watermark/a", mark.fence, "test")) is True
    assert listed("watermark") == ["b"]

    store.perform([Push("q", name, b"") for name in "abcd"])
    items = {item.id: item for item in store.perform([Take("q", f"o{n}", 30) for n in range(3)]) if item}  # type: ignore[union-attr]
    assert one(Ack("q", "a", "o0")) is True
    assert one(Return("q", "b", "o1")) is True
    assert one(Clear(item_key("q", "c"), items["c"].fence, "test")) is True  # type: ignore[union-attr]
    assert listed("item") == ["q/b", "q/d"]


def test_full_memory_lists_what_there_is_and_leaves_no_name_of_what_is_refused(open_store: OpenStore) -> None:
    with Valkey() as server:
        store = open_store(server.url)
        granted(store, "kept", "released", "renewed")
        store.perform([Push("q", "a", b"payload"), Take("q", "me", 30)])
        keys(store, "reservation/")
        server.ask("CONFIG", "SET", "maxmemory", "1")
        refused = store.perform([*reserved("new"), Advance("watermark/new", ONE), Push("q", "b", b"")])
        assert [type(error) for error in refused] == [StoreFull] * 3
        renewed, released, revoked = store.perform(
            [
                Renew("reservation/renewed", "me", LASTS * 2),
                Release("reservation/released", "me"),
                Release("reservation/gone", "me", revoke=True),
            ]
        )
        assert isinstance(renewed, Entry)
        assert (renewed.owner, released, revoked) == ("me", Released.RELEASED, Released.RELEASED)
        assert keys(store, "reservation/") == ["reservation/kept", "reservation/renewed"]
        assert store.perform([Ack("q", "a", "me")]) == [True]
        assert keys(store, "item/") == []
        assert indexed(server, server.url, "reservation") == ["kept", "renewed"]


def test_what_cannot_be_listed_is_not_granted(open_store: OpenStore, server: Valkey) -> None:
    url = isolated(server.url)
    store = open_store(url)
    server.ask("SET", f"{parse(url).prefix}#list:reservation", "not ours")
    (error,) = store.perform(reserved("a"))
    assert isinstance(error, StoreFailed)
    assert "WRONGTYPE" in str(error)
    server.ask("DEL", f"{parse(url).prefix}#list:reservation")
    granted(store, "a")


# -- records that expire


def test_a_listing_removes_the_names_of_expired_records_and_of_no_others(open_store: OpenStore, server: Valkey) -> None:
    url = isolated(server.url)
    store = open_store(url)
    names = [f"{n:03}" for n in range(300)]
    granted(store, *names)
    expire(server, url, *(f"reservation/{name}" for name in names if name[-1] != "7"))
    kept = [name for name in names if name[-1] == "7"]
    assert keys(store, "reservation/", limit=5) == [f"reservation/{name}" for name in kept[:5]]
    assert keys(store, "reservation/") == [f"reservation/{name}" for name in kept]
    assert indexed(server, url, "reservation") == kept


def test_a_hold_that_expired_can_still_be_finished_and_is_listed_again(valkey: Valkey) -> None:
    clock = ManualClock()
    store = open_blocking(isolated(valkey.url), clock=clock, timeout=20)
    store.perform([Acquire("reservation/a", "me", 10, counted=True)])
    clock.advance(11)
    assert keys(store, "reservation/") == []
    store.perform([Finish("reservation/a", "me", b"", 100)])
    assert keys(store, "reservation/") == ["reservation/a"]
    store.close()


def test_new_reservations_sweep_the_names_of_expired_ones(valkey: Valkey) -> None:
    url = isolated(valkey.url)
    store = open_blocking(url, clock=None, timeout=20)
    for batch in range(30):  # nobody ever lists them
        names = [f"{batch}/{n}" for n in range(100)]
        granted(store, *names)
        valkey.ask("DEL", *(f"{parse(url).prefix}reservation/{name}" for name in names))
    assert len(indexed(valkey, url, "reservation")) < 1_000
    store.close()


# -- data without an index


def write_all(store: Store) -> list[str]:
    """Writes some of every kind that is listed; returns their keys."""
    store.perform([*reserved("r/1", "r/2"), Advance("watermark/w", ONE), Push("q", "i", b"payload")])
    store.perform([Mark("mark/m", "me", LASTS), Acquire("lock/l", "me", LASTS), Acquire("replay/r", "me", LASTS)])
    return ["item/q/i", "reservation/r/1", "reservation/r/2", "watermark/w"]


def test_what_a_version_without_an_index_wrote_is_listed(open_store: OpenStore, server: Valkey) -> None:
    url = isolated(server.url)
    store = open_store(url)
    written = write_all(store)
    lose_index(server, url)
    assert [key for kind in ("item/", "reservation/", "watermark/") for key in keys(store, kind)] == written
    server.ask("CONFIG", "RESETSTAT")
    assert [key for kind in ("item/", "reservation/", "watermark/") for key in keys(store, kind)] == written
    assert calls(server, "scan") == 0
    assert sorted(indexed(server, url, "reservation")) == ["r/1", "r/2"]


def test_a_cluster_without_an_index_gets_one(open_store: OpenStore, cluster: ValkeyCluster) -> None:
    url = isolated(cluster.url)
    store = open_store(url)
    written = write_all(store)
    for node in cluster.nodes:
        for name in node.ask("KEYS", f"{parse(url).prefix}*#list*"):
            node.ask("DEL", name)
    assert keys(store, "item/q/") == written[:1]
    assert [key for kind in ("item/", "reservation/", "watermark/") for key in keys(store, kind)] == written


def test_what_an_older_version_writes_beside_is_found_when_the_age_of_the_index_has_doubled(valkey: Valkey) -> None:
    """During an upgrade, processes of both versions write."""
    clock, url = ManualClock(), isolated(valkey.url)
    store = open_blocking(url, clock=clock, timeout=20)
    for wait in (0, 61, 62, 124):
        clock.advance(wait)
        keys(store, "watermark/")
        store.perform([Advance(f"watermark/{wait}", ONE)])
        valkey.ask("ZREM", f"{parse(url).prefix}#list:watermark", str(wait))
    clock.advance(200)
    assert keys(store, "watermark/") == ["watermark/0", "watermark/61", "watermark/62"]
    clock.advance(49)
    assert keys(store, "watermark/") == ["watermark/0", "watermark/124", "watermark/61", "watermark/62"]
    store.close()


def test_after_all_data_was_lost_nothing_is_listed_and_new_entries_are(open_store: OpenStore) -> None:
    with Valkey() as server:
        store = open_store(server.url)
        write_all(store)
        assert len(keys(store, "reservation/")) == 2
        server.ask("FLUSHALL")
        assert keys(store, "reservation/") == []
        granted(store, "new")
        assert keys(store, "reservation/") == ["reservation/new"]


def test_a_promoted_replica_has_the_index(open_store: OpenStore) -> None:
    with Valkey(repl_diskless_sync_delay=0) as primary, Valkey(replicaof=f"127.0.0.1 {primary.port}") as replica:
        until(lambda: replica.ask("INFO", "replication")["master_link_status"] == "up", "replication")
        store = open_store(primary.url)
        written = write_all(store)
        keys(store, "item/")
        until(lambda: bool(primary.ask("WAIT", 1, 1_000)), "the replica's answer")
        replica.ask("REPLICAOF", "NO", "ONE")
        replica.ask("CONFIG", "RESETSTAT")
        promoted = open_store(replica.url)
        assert [key for kind in ("item/", "reservation/", "watermark/") for key in keys(promoted, kind)] == written
        assert calls(replica, "scan") == 0


async def test_the_index_is_completed_even_if_nobody_waits_for_it(server: Valkey) -> None:
    url = isolated(server.url)
    store = open_async(url, clock=None, timeout=20)
    await store.perform([Advance(f"watermark/{n}", ONE) for n in range(3_000)])
    lose_index(server, url)
    listing = asyncio.ensure_future(store.scan("watermark/", "", 10))
    while store._completing is None:
        await asyncio.sleep(0)
    listing.cancel()
    await asyncio.wait([listing])
    assert listing.cancelled()
    await asyncio.wait_for(store._completing, 60)
    server.ask("CONFIG", "RESETSTAT")
    assert len(await store.scan("watermark/", "", 5_000)) == 3_000
    assert calls(server, "scan") == 0
    await store.close()


async def test_a_close_while_the_index_is_completed_is_told_to_who_lists(server: Valkey) -> None:
    url = isolated(server.url)
    store = open_async(url, clock=None, timeout=20)
    await store.perform([Advance(f"watermark/{n}", ONE) for n in range(3_000)])
    lose_index(server, url)
    listing = asyncio.ensure_future(store.scan("watermark/", "", 10))
    while store._completing is None:
        await asyncio.sleep(0)
    await store.close()
    with pytest.raises(ClientClosed, match="closed"):
        await asyncio.wait_for(listing, 60)


# -- while others write, and while slots move


def test_a_listing_misses_nothing_that_stays_while_others_come_and_go(valkey: Valkey) -> None:
    url = isolated(valkey.url)
    store, other = (open_blocking(url, clock=None, timeout=20) for _ in range(2))
    stays = [f"{n:03}" for n in range(0, 400, 2)]
    granted(store, *stays)
    end = threading.Event()

    def come_and_go() -> None:
        for n in range(1, 10**9, 2):
            if end.is_set():
                return
            name = f"{n % 400:03}"
            other.perform([*reserved(name), Push("q", name, b""), Take("q", "me", 30), Ack("q", name, "me")])
            other.perform([Release(f"reservation/{name}", "me")])

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(30):
            found = set(keys(store, "reservation/"))
            assert found >= {f"reservation/{name}" for name in stays}
    finally:
        end.set()
        thread.join()
    assert keys(store, "reservation/") == [f"reservation/{name}" for name in stays]
    assert keys(store, "item/") == []
    store.close()
    other.close()


@pytest.mark.parametrize("records_last", [True, False])
def test_a_listing_follows_a_slot_that_moves(open_store: OpenStore, cluster: ValkeyCluster, records_last: bool) -> None:
    url = isolated(cluster.url)
    store = open_store(url)
    names = [os.urandom(4).hex() for _ in range(50)]
    granted(store, *names)
    expected = sorted(f"reservation/{name}" for name in names)
    assert keys(store, "reservation/") == expected
    codec = Codec(parse(url).prefix, None, cluster=True)
    number = cluster.nodes[0].ask("CLUSTER", "KEYSLOT", codec.bases[codec.bucket(Read(expected[0]))])
    ids = [node.ask("CLUSTER", "MYID") for node in cluster.nodes]
    home = next(n for n, node in enumerate(cluster.nodes) if node.ask("CLUSTER", "COUNTKEYSINSLOT", number))
    source, target = cluster.nodes[home], cluster.nodes[(home + 1) % 3]
    target.ask("CLUSTER", "SETSLOT", number, "IMPORTING", ids[home])
    source.ask("CLUSTER", "SETSLOT", number, "MIGRATING", ids[(home + 1) % 3])
    wrong: list[list[str]] = []
    try:
        moving = source.ask("CLUSTER", "GETKEYSINSLOT", number, 1_000)
        for key in sorted(moving, key=lambda key: ("reservation/" in key) == records_last):
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            with suppress(StoreUnavailable):  # a part of it has moved
                wrong += [found] if (found := keys(store, "reservation/")) != expected else []
    finally:
        for node in cluster.nodes:
            node.ask("CLUSTER", "SETSLOT", number, "NODE", ids[(home + 1) % 3])
    assert not wrong
    assert keys(store, "reservation/") == expected
