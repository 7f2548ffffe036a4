"""What is specific to the Redis store: the same answers as the reference, and its own servers' troubles."""

import asyncio
import logging
import os
import random
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis

from solely import AsyncClient
from solely.errors import InvalidInput, StoreFailed, StoreFull, StoreMisconfigured, StoreUnavailable, Unanswered
from solely.formats import write_watermark
from solely.model import Allowance, Entry, LeasedItem, NoItem, Released, State, item_key, line_key
from solely.ops import (
    Ack,
    Acquire,
    Advance,
    Amend,
    Clear,
    Count,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Return,
    Take,
    Unhit,
)
from solely.stores import listener as loop
from solely.stores.memory import Memory, MemoryStore
from solely.stores.redis import open_async, open_blocking
from solely.stores.redis.settings import ServerAddress, parse
from solely.testing.proxy import FaultProxy
from tests.certificates import make_certificate, server_side
from tests.client_modes import result_of
from tests.conftest import isolated
from tests.servers import Valkey, ValkeyCluster, ValkeySentinel, until


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


# -- the same answers as the reference, from seeds


class Twins:
    """The reference and the Redis store on one clock, given the same ops: their answers must be the same.

    Fences need not be equal in number: the two sides' fences are paired when first seen, and grow alike for each key.
    """

    def __init__(self, url: str, seed: int) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(Memory(clock=self.clock))
        self.redis = open_blocking(url, clock=self.clock, timeout=5)
        self.memory.memory._quiet.due = lambda now: iter(())  # type: ignore[method-assign]  # else Unhit depends on the purge
        self.random = random.Random(seed)
        self.fences: dict[int, int] = {0: 0}  # the reference's → ours
        self.by_key: dict[str, set[tuple[int, int]]] = {}

    def paired(self, key: str, ours: int, theirs: int) -> bool:
        self.by_key.setdefault(key, set()).add((ours, theirs))
        return self.fences.setdefault(ours, theirs) == theirs

    def same(self, ours: Any, theirs: Any) -> bool:
        if isinstance(ours, Entry | LeasedItem):
            return (
                type(ours) is type(theirs)
                and self.paired(ours[0], ours.fence, theirs.fence)
                and (abs(ours.left - theirs.left) < 0.001 or ours.left == theirs.left)
            ) and ours._replace(left=0.0, fence=0) == theirs._replace(left=0.0, fence=0)
        if isinstance(ours, Allowance):
            return bool(ours[:2] == theirs[:2] and abs(ours.retry_after - theirs.retry_after) < 0.001)
        return type(ours) is type(theirs) and bool(ours == theirs)

    def step(self) -> None:
        if self.random.random() < 0.5:
            self.clock.now += self.random.choice([0.0001, 0.01, 0.019, 0.021, 0.5, 1.0, 5.0, 30.0, 61.0, 3600.0])
        batch = [self.op() for _ in range(self.random.choice([1, 1, 1, 2, 5]))]
        pairs = [self.fenced(op) for op in batch]
        ours = self.memory.perform([one for one, _ in pairs])
        theirs = self.redis.perform([other for _, other in pairs])
        for op, one, other in zip(batch, ours, theirs, strict=True):
            assert self.same(one, other), f"{op}\n reference {one}\n redis     {other}"
        if self.random.random() < 0.2:
            self.list_the_same(self.random.choice(["reservation/", "watermark/", "item/", "item/q/", "item/r%2Fs/i"]))

    def list_the_same(self, prefix: str) -> None:
        after, limit = self.random.choice(["", prefix, "item/q/i1", "reservation/e"]), self.random.choice([1, 2, 100])
        pages = [store.scan(prefix, after, limit) for store in (self.memory, self.redis)]
        assert [entry.key for entry in pages[0]] == [entry.key for entry in pages[1]]
        assert all(self.same(*pair) for pair in zip(*pages, strict=True))

    def fenced(self, op: Op) -> tuple[Op, Op]:
        """The same op for both sides: a Clear names each side's own fence."""
        return (op, op._replace(fence=self.fences[op.fence])) if isinstance(op, Clear) else (op, op)

    def op(self) -> Op:
        draw = self.random.choice
        key, owner, ttl = draw(["claim/a", "claim/ü"]), draw(["o1", "o2", "o3", "o4"]), draw([0.01, 1.0, 20.0])
        mark, kept = draw(["mark/b", "mark/ü"]), draw([b"b", b"b\x00value\xff"])
        if draw([True, False]):
            key, kept = draw(["reservation/e", "reservation/ü"]), b""
        queue, id = draw(["q", "r/s"]), draw(["i1", "i2", "i3"])
        client, delay, value = draw(["", "c1", "c2", "c3"]), draw([0.0, 0.0, 2.0]), draw([True, False])
        some_key = draw([key, key, mark, item_key(queue, id)])
        ops: list[Op] = [
            Acquire(key, owner, ttl, draw(["", "who"])),
            Acquire(key, owner, ttl, "who", client),
            Acquire(key, owner, ttl, "who", client, delay, draw(["", "print"]), counted=value, value=value),
            Renew(key, owner, ttl),
            Finish(key, owner, kept, ttl),
            Release(key, owner),
            Release(key, owner, draw([True, False]), delay, draw([0.0, 3.0])),
            Mark(mark, owner, ttl),
            Mark(mark, owner, ttl),
            Release(mark, owner, draw([True, False])),
            Read(some_key),
            Clear(some_key, draw(list(self.fences)[-6:]), "test"),
            Hit("limit/h", owner, draw([1, 2]), draw([1.0, 10.0])),
            Unhit("limit/h", owner),
            Advance("watermark/w", write_watermark(draw([-(2**63), -1, 9, 10, 2**63 - 1]))),
            Push(queue, id, draw([b"", b"payload"]), delay),
            Take(queue, owner, ttl, draw(["", "", id]), client),
            Release(line_key(queue), owner),
            Read(line_key(queue)),
            Ack(queue, id, owner),
            Return(queue, id, owner, delay, value),
            Renew(item_key(queue, id), owner, ttl),
            Count(queue),
            Amend(queue, id, draw([None, b"payload"]), draw([b"", b"payload"])),
        ]
        return draw(ops)


@pytest.mark.parametrize("seed", range(20))
def test_answers_what_the_reference_answers(valkey_url: str, seed: int) -> None:
    twins = Twins(isolated(valkey_url), seed)
    for _ in range(250):
        twins.step()
    for pairs in twins.by_key.values():
        assert [theirs for _, theirs in sorted(pairs)] == sorted({theirs for _, theirs in pairs})
    scans = [store.scan("", "", 100) for store in (twins.memory, twins.redis)]
    assert [entry.key for entry in scans[0]] == [entry.key for entry in scans[1]]
    assert all(twins.same(*pair) for pair in zip(*scans, strict=True))
    twins.redis.close()


# -- both faces, through one pair of eyes


class Face:
    """A blocking or an asyncio store behind one blocking interface, so that each test below is written once."""

    def __init__(self, url: str, *, asynchronous: bool, timeout: float = 2.0) -> None:
        self.loop = asyncio.new_event_loop() if asynchronous else None
        opener: Callable[..., Any] = open_async if asynchronous else open_blocking
        self.store: Any = opener(url, clock=None, timeout=timeout)

    def run(self, name: str, *args: Any) -> Any:
        if self.loop is None:
            return getattr(self.store, name)(*args)

        async def call() -> Any:
            return await getattr(self.store, name)(*args)

        return self.loop.run_until_complete(asyncio.wait_for(call(), 100))

    def perform(self, *ops: Op) -> list[Any]:
        return list(self.run("perform", list(ops)))

    def one(self, op: Op) -> Any:
        (reply,) = self.perform(op)
        return reply

    def tick(self) -> None:
        """Lets what is on its way arrive."""
        if self.loop is not None:
            self.loop.run_until_complete(asyncio.sleep(0.01))
        else:
            time.sleep(0.01)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Lets things happen until the condition holds."""

        def holds() -> bool:
            self.tick()
            return condition()

        until(holds, what)

    def close(self) -> None:
        self.run("close")
        if self.loop is not None:
            self.loop.close()


@pytest.fixture(params=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Callable[..., Face]]:
    """Opens faces that are closed after the test."""
    opened: list[Face] = []

    def opener(url: str, timeout: float = 2.0) -> Face:
        opened.append(Face(url, asynchronous=request.param == "asyncio", timeout=timeout))
        return opened[-1]

    yield opener
    for each in opened:
        each.close()


Opener = Callable[..., Face]


def test_a_script_that_the_server_forgot_is_loaded_again(face: Opener, valkey: Valkey) -> None:
    store = face(isolated(valkey.url))
    assert store.one(Acquire("lock/a", "me", 30)).owner == "me"
    valkey.ask("SCRIPT", "FLUSH")
    assert store.one(Release("lock/a", "me")) is Released.RELEASED
    valkey.ask("SCRIPT", "FLUSH")
    assert store.perform(*(Mark(f"mark/{n}", "me", 30) for n in range(300))) == [True] * 300


def test_any_number_of_ops_is_performed_in_order(face: Opener, valkey: Valkey) -> None:
    store = face(isolated(valkey.url))
    ops: list[Op] = []
    for n in range(200):
        ops += [Acquire(f"lock/{n}", "me", 30), *(Mark(f"mark/{n}", owner, 30) for owner in ("me", "other"))]
        ops += [Read(f"lock/{n}")]
    replies = store.perform(*ops)
    assert [entry.owner for entry in replies[0::4]] == ["me"] * 200
    assert replies[1::4] == [True] * 200
    assert replies[2::4] == [False] * 200
    assert [entry.key for entry in replies[3::4]] == [f"lock/{n}" for n in range(200)]
    assert store.perform() == []


def test_a_failing_op_harms_no_neighbour(face: Opener, valkey: Valkey) -> None:
    url = isolated(valkey.url)
    prefix = parse(url).prefix
    valkey.ask("LPUSH", f"{prefix}lock/b", "not ours")
    valkey.ask("LPUSH", f"{prefix}mark/b", "not ours")
    store = face(url)
    a, b, m, n, o = store.perform(
        Acquire("lock/a", "me", 30), Acquire("lock/b", "me", 30),
        Mark("mark/a", "me", 30), Mark("mark/b", "me", 30), Mark("mark/c", "me", 30),
    )  # fmt: skip
    assert a.owner == "me"
    assert "WRONGTYPE" in str(b)
    assert b.key == "lock/b"
    assert (m, o) == (True, True)
    assert "WRONGTYPE" in str(n)


def put_bytes(server: Valkey, name: str, value: bytes) -> None:
    with redis.Redis(host=server.host, port=server.port) as client:
        client.set(name.encode("latin-1"), value)


def test_a_strangers_record_is_told_and_harms_no_neighbour(face: Opener, valkey: Valkey) -> None:
    url = isolated(valkey.url)
    prefix = parse(url).prefix
    now = time.time() * 1_000_000
    put_bytes(valkey, f"{prefix}lock/b", b"h" + struct.pack(">dd", now, now + 60e6) + b"own\0caf\xe9")  # no UTF-8
    put_bytes(valkey, f"{prefix}claim/b", b"c" + struct.pack(">ddd", now, now + 60e6, 0) + b"own\0\xe9\0caf")
    store = face(url)
    store.one(Read("lock/a"))
    for op in (
        Acquire("lock/b", "me", 30),
        Acquire("claim/b", "me", 30, fingerprint="print"),
        Acquire("lock/b", "me", 30, delay=1.0),
        Read("lock/b"),
    ):
        reply = store.one(op)
        assert isinstance(reply, StoreFailed)
        assert reply.key == op.key
        assert op.key in str(reply)
        assert "?namespace=" in str(reply)
    before, wrong, after = store.perform(Acquire("lock/a", "me", 30), Read("lock/b"), Acquire("lock/c", "me", 30))
    assert (before.owner, after.owner) == ("me", "me")
    assert isinstance(wrong, StoreFailed)


def test_a_strangers_key_is_not_listed(face: Opener, valkey: Valkey) -> None:
    url = isolated(valkey.url)
    put_bytes(valkey, f"{parse(url).prefix}lock/caf\xe9", b"not ours")  # no UTF-8
    store = face(url)
    store.one(Acquire("lock/a", "me", 30))
    assert [entry.key for entry in store.run("scan", "lock/", "", 10)] == ["lock/a"]


def test_full_memory_refuses_what_is_new_and_still_releases(face: Opener) -> None:
    with Valkey() as server:
        store, other = face(server.url), face(server.url)
        held = store.one(Acquire("lock/plain", "me", 30))
        store.perform(Acquire("lock/wanted", "me", 30), Mark("mark/old", "me", 30))
        other.one(Acquire("lock/wanted", "other", 30, "", other.store.client))
        store.perform(Push("q", "i", b"payload"), Take("q", "me", 30))
        server.ask("CONFIG", "SET", "maxmemory", "1")
        full = store.perform(Acquire("lock/new", "me", 30), Mark("mark/new", "me", 30), Push("q", "j", b"payload"))
        assert [type(error) for error in full] == [StoreFull] * 3
        assert "maxmemory" in str(full[0])
        assert full[0].key == "lock/new"
        assert store.one(Renew("lock/plain", "me", 60)).fence == held.fence
        assert store.one(Release("lock/plain", "me")) is Released.RELEASED
        assert store.one(Release("lock/wanted", "me")) is Released.RELEASED
        assert store.one(Release("lock/gone", "me", revoke=True)) is Released.RELEASED
        assert store.one(Return("q", "i", "me")) is True
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert store.one(Read("lock/wanted")).state in (State.CLOSED, State.FREE)
        assert store.one(Take("q", "other", 30)).id == "i"


def test_full_memory_refuses_the_hits_of_new_limits(face: Opener) -> None:
    with Valkey() as server:
        store = face(server.url)
        assert store.one(Hit("limit/old", "a", 5, 60.0)).allowed
        server.ask("CONFIG", "SET", "maxmemory", "1")
        full = store.perform(Hit("limit/new", "me", 5, 60.0), Hit("limit/old", "b", 5, 60.0))
        assert [type(error) for error in full] == [StoreFull] * 2
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert store.one(Hit("limit/new", "other", 5, 60.0)).hits == 1


async def test_full_memory_keeps_nothing_of_the_calls_that_it_refuses(mode: str, open_client: Any) -> None:
    with Valkey() as server, server.client() as admin:
        once = open_client(server.url)
        await result_of(once.first("the store is there", ttl=60))
        admin.config_set("maxmemory", "1")
        before = admin.dbsize()
        calls: dict[str, Any] = {
            "limit": lambda: once.limit("a", limit=1, per=60),
            "first": lambda: once.first("a", ttl=60),
            "first_many": lambda: once.first_many(["b", "c"], ttl=60),
            "lock": lambda: once.lock("a", ttl=60),
            "claim": lambda: once.claim("a", ttl=60),
            "reserve": lambda: once.reserve("a", limit=1, per=60),
            "push": lambda: once.queue("q").push("a", 1),
        }
        for name, call in calls.items():
            for _ in range(2):
                with pytest.raises(StoreFull):
                    await result_of(call())
            assert admin.dbsize() == before, name


async def test_full_memory_adds_nothing_for_calls_that_go_out_with_a_release() -> None:
    """After the first write of a script the server lets it add."""
    calls: dict[str, Callable[[AsyncClient, str], Awaitable[object]]] = {
        "limit": lambda once, name: once.limit(name, limit=9, per=60),
        "first": lambda once, name: once.first(name, ttl=60),
        "lock": lambda once, name: once.lock(name, ttl=60).__aenter__(),
        "claim": lambda once, name: once.claim(name, ttl=60),
        "reserve": lambda once, name: once.reserve(name, limit=9, per=60),
        "push": lambda once, name: once.queue("q").push(name, 1),
        "watermark": lambda once, name: once.watermark(name).advance(1),
    }
    with Valkey() as server, server.client() as admin:
        async with AsyncClient(server.url) as once:
            held = [await once.lock(f"held-{name}", ttl=600) for name in calls]
            last = await once.lock("last", ttl=600)
            await once.limit("old", limit=9, per=60)
            admin.config_set("maxmemory", "1")
            for (name, call), lease in zip(calls.items(), held, strict=True):
                before = admin.dbsize()
                new = [call(once, f"{name}-{number}") for number in range(9)]
                released, *refused = await asyncio.gather(lease.release(), *new, return_exceptions=True)
                assert released is Released.RELEASED
                assert {type(error) for error in refused} == {StoreFull}, name
                assert admin.dbsize() < before, name
            again = [once.limit("old", limit=9, per=60) for _ in range(5)]
            released, *refused = await asyncio.gather(last.release(), *again, return_exceptions=True)
            assert {type(error) for error in refused} == {StoreFull}
            admin.config_set("maxmemory", "0")


def test_a_server_without_a_connection_left_is_unavailable_until_it_has_one(face: Opener) -> None:
    with Valkey() as server, server.client() as admin:
        admin.execute_command("CONFIG SET", "maxclients", 1)
        store = face(server.url)
        with pytest.raises(StoreUnavailable, match="maxclients"):
            store.one(Acquire("lock/a", "me", 30))
        admin.execute_command("CONFIG SET", "maxclients", 100)
        assert store.one(Acquire("lock/a", "me", 30)).owner == "me"


def test_a_server_that_may_evict_is_refused_unless_accepted(face: Opener, caplog: pytest.LogCaptureFixture) -> None:
    with Valkey(maxmemory="50mb", maxmemory_policy="allkeys-lru") as server:
        with pytest.raises(StoreMisconfigured, match=r"allkeys-lru.*CONFIG SET maxmemory-policy noeviction"):
            face(server.url).one(Read("lock/a"))
        with caplog.at_level(logging.WARNING, "solely"):
            warned = face(f"{server.url}?eviction=warn")
            assert warned.one(Acquire("lock/a", "me", 30)).owner == "me"
        assert any(finding.level == "error" and "allkeys-lru" in finding.text for finding in warned.run("check"))


def test_a_wrong_password_is_told_and_not_shown(face: Opener) -> None:
    with Valkey() as server:
        server.ask("CONFIG", "SET", "requirepass", "right")
        for login in ("", ":wr0ng-secret@", "someone:wr0ng-secret@"):
            store = face(f"redis://{login}127.0.0.1:{server.port}")
            with pytest.raises(StoreMisconfigured) as caught:
                store.one(Read("lock/a"))
            assert "wr0ng-secret" not in f"{caught.value!r} {caught.value} {store.store!r} {store.store._settings!r}"
        assert face(f"redis://:right@127.0.0.1:{server.port}").one(Acquire("lock/a", "me", 30)).owner == "me"


def test_a_user_who_may_do_little_gets_by_and_is_told_what_is_missing(face: Opener) -> None:
    with Valkey() as server:
        server.ask("ACL", "SETUSER", "app", "on", ">pw", "~solely:*", "&solely:*", "+@all", "-@admin", "-@dangerous")
        store = face(f"redis://app:pw@127.0.0.1:{server.port}")
        assert store.one(Acquire("lock/a", "me", 30, "", store.store.client)).owner == "me"
        assert any("INFO is forbidden" in finding.text for finding in store.run("check"))
        other = face(f"redis://app:pw@127.0.0.1:{server.port}?namespace=other")
        assert isinstance(other.one(Acquire("lock/a", "me", 30)), StoreMisconfigured)
        assert any(finding.level == "error" and "NOPERM" in finding.text for finding in other.run("check"))


def test_a_unix_socket_serves_as_well(face: Opener, tmp_path: Path) -> None:
    with Valkey(unixsocket=str(tmp_path / "socket")):
        store = face(f"unix://{tmp_path / 'socket'}?db=1")
        assert store.one(Acquire("lock/a", "me", 30)).owner == "me"
        assert store.one(Release("lock/a", "me")) is Released.RELEASED


def test_a_replica_is_no_place_to_write(face: Opener, valkey: Valkey) -> None:
    with Valkey(replicaof=f"127.0.0.1 {valkey.port}") as replica, pytest.raises(StoreUnavailable, match="replica"):
        face(replica.url).one(Acquire("lock/a", "me", 30))
    with Valkey() as server:
        store = face(server.url)
        store.one(Read("lock/a"))
        server.ask("REPLICAOF", "127.0.0.1", valkey.port)
        with pytest.raises(StoreUnavailable):
            store.one(Acquire("lock/a", "me", 30))
        server.ask("REPLICAOF", "NO", "ONE")
        store.tick()
        assert store.one(Acquire("lock/a", "me", 30)).owner == "me"


def test_nobody_there_is_unavailable_and_certainly_not_performed(face: Opener) -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1") as caught:
        face("redis://127.0.0.1:1").one(Acquire("lock/a", "me", 30, "", "client"))
    assert not isinstance(caught.value, Unanswered)


def test_a_host_that_cannot_be_is_unavailable(face: Opener) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        face(f"redis://{'a' * 70}").one(Read("lock/a"))  # the name of a host has at most 63 letters between two dots


@pytest.mark.parametrize("kind", ["redis", "redis+cluster"])
def test_a_server_of_another_kind_is_unavailable(face: Opener, kind: str) -> None:
    class Silent(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            with pytest.raises(StoreUnavailable, match="did not answer"):
                face(f"{kind}://127.0.0.1:{server.server_port}", timeout=10).one(Read("lock/a"))
        finally:
            server.shutdown()


def test_no_answer_is_unanswered_and_the_next_op_gets_its_own(face: Opener) -> None:
    with Valkey() as server:
        store = face(server.url, timeout=0.2)
        store.one(Read("lock/a"))
        server.pause()
        with pytest.raises(Unanswered):
            store.one(Acquire("lock/a", "me", 30))
        server.resume()
        assert store.one(Read("lock/b")).key == "lock/b"
        server.restart()
        with suppress(Unanswered):
            store.one(Read("lock/c"))
        assert store.one(Acquire("lock/c", "me", 30)).owner == "me"


def test_a_hint_comes_to_the_first_waiter_only(face: Opener, valkey: Valkey) -> None:
    url = isolated(valkey.url)
    stores = [face(url) for _ in range(3)]
    heard: list[list[str]] = [[], [], []]
    for store, keys in zip(stores, heard, strict=True):
        store.store.listen(keys.append)
    stores[0].one(Acquire("lock/a", "0", 30))
    for n in (1, 2):
        assert stores[n].one(Acquire("lock/a", str(n), 30, "", stores[n].store.client)).owner == ""
    stores[0].one(Release("lock/a", "0"))
    stores[1].until(lambda: bool(heard[1]), "the hint")
    assert heard == [[], ["lock/a"], []]
    assert stores[1].one(Acquire("lock/a", "1", 30, "", stores[1].store.client)).owner == "1"


def test_a_waiter_that_is_gone_is_skipped_at_once(face: Opener, valkey: Valkey) -> None:
    url = isolated(valkey.url)
    holder, dead, living = face(url), face(url), face(url)
    heard: list[str] = []
    living.store.listen(heard.append)
    holder.one(Acquire("lock/a", "holder", 30))
    dead.one(Acquire("lock/a", "dead", 30, "", dead.store.client))
    living.one(Acquire("lock/a", "living", 30, "", living.store.client))
    dead.run("close")
    channel = f"{parse(url).prefix}wake:{dead.store.client}"
    until(lambda: channel not in valkey.ask("PUBSUB", "CHANNELS"), "its end")
    holder.one(Release("lock/a", "holder"))
    living.until(lambda: bool(heard), "the hint")
    assert heard == ["lock/a"]


def test_hints_come_again_after_a_restart(face: Opener) -> None:
    with Valkey() as server:
        store, other = face(server.url), face(server.url)
        heard: list[str] = []
        store.store.listen(heard.append)
        other.one(Acquire("lock/a", "other", 30))
        store.one(Acquire("lock/a", "me", 30, "", store.store.client))
        server.restart()
        for each in (store, other):
            with suppress(Unanswered):
                each.one(Read("lock/a"))
        other.one(Acquire("lock/a", "other", 30))
        store.until(lambda: bool(store.store._listener.ready), "the ear")
        store.one(Acquire("lock/a", "me", 30, "", store.store.client))
        other.one(Release("lock/a", "other"))
        store.until(lambda: bool(heard), "the hint")


class Waiter:
    """A store that waits for keys which another one holds: do its hints come?"""

    def __init__(self, face: Opener, server: Valkey) -> None:
        self.face, self.other = face(server.url), face(server.url)
        self.ear = self.face.store._listener
        self.heard: list[str] = []
        self.face.store.listen(self.heard.append)

    def waits_for(self, key: str) -> None:
        """Returns when it stands in the queue for the key and listens."""
        self.other.one(Acquire(key, "other", 30))

        def listens() -> bool:
            assert self.face.one(Acquire(key, "me", 30, "", self.face.store.client)).owner == ""
            return bool(self.ear.ready)

        self.face.until(listens, "the ear")

    def hears_of(self, key: str) -> None:
        self.other.one(Release(key, "other"))
        self.face.until(lambda: key in self.heard, "the hint")


def test_an_error_in_answer_to_a_ping_does_not_deafen(face: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SILENCE", 0.1)
    with Valkey() as server:
        waiter = Waiter(face, server)
        waiter.waits_for("lock/a")
        server.ask("ACL", "SETUSER", "default", "-ping")  # it answers with an error, as it does while its disk is full
        waiter.face.until(lambda: bool(server.ask("ACL", "LOG")), "a PING that is refused")
        waiter.hears_of("lock/a")
        server.ask("ACL", "SETUSER", "default", "+ping")
        waiter.waits_for("lock/b")
        waiter.hears_of("lock/b")


def test_nonsense_from_the_server_does_not_deafen(face: Opener) -> None:
    with Valkey() as server:
        waiter = Waiter(face, server)
        waiter.waits_for("lock/a")
        wire = waiter.ear._subscription
        wire.connection._reader.feed(b"?nonsense\r\n")
        waiter.other.one(Release("lock/a", "other"))  # the hint wakes the ear, which reads the nonsense first
        waiter.face.until(lambda: waiter.ear._subscription is not wire, "the end of the connection")
        waiter.waits_for("lock/b")
        waiter.hears_of("lock/b")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_ear_that_has_ended_is_started_again_by_the_next_waiter(face: Opener) -> None:
    def broken(key: str) -> None:
        raise ArithmeticError(key)

    with Valkey() as server:
        waiter = Waiter(face, server)
        waiter.waits_for("lock/a")
        wire = waiter.ear._subscription
        waiter.face.store.listen(broken)
        waiter.other.one(Release("lock/a", "other"))
        waiter.face.until(lambda: waiter.ear._subscription is not wire, "the end of the connection")
        waiter.face.store.listen(waiter.heard.append)
        waiter.waits_for("lock/b")
        waiter.hears_of("lock/b")


def test_a_page_of_entries_is_in_order_and_takes_the_prefix_literally(face: Opener, valkey: Valkey) -> None:
    store = face(isolated(valkey.url))
    store.perform(*(Acquire(f"lock/{n:03}", "me", 30) for n in range(300)))
    store.perform(
        Mark("mark/a*", "me", 30), Mark("mark/ab", "me", 30), Hit("limit/a", "me", 3, 10), Push("q", "i", b"payload")
    )
    assert [entry.key for entry in store.run("scan", "lock/", "lock/100", 3)] == ["lock/101", "lock/102", "lock/103"]
    assert [entry.key for entry in store.run("scan", "mark/a*", "", 10)] == ["mark/a*"]
    assert [entry.key for entry in store.run("scan", "", "lock/299", 10)] == ["mark/a*", "mark/ab"]
    assert [entry.value for entry in store.run("scan", "item/", "", 10)] == [b"payload"]


def test_check_tells_what_to_know(face: Opener, valkey: Valkey) -> None:
    store = face(isolated(valkey.url))
    store.one(Acquire("lock/a", "me", 30))
    texts = [finding.text for finding in store.run("check")]
    for part in ("Valkey", "clock", "nothing is evicted", "append-only"):
        assert any(part in text for text in texts), part
    valkey.ask("SET", f"{store.store._settings.prefix}#fence", int((time.time() + 3 * 86_400) * 1_000_000))
    assert any(finding.level == "warning" and "set back" in finding.text for finding in store.run("check"))
    assert store.one(Acquire("lock/b", "me", 30)).fence > (time.time() + 2 * 86_400) * 1_000_000


# -- Sentinel and Cluster


def test_after_a_failover_writes_go_on_and_fences_grow(face: Opener) -> None:
    with ValkeySentinel() as servers:
        store = face(servers.url, timeout=1.0)
        before = store.one(Acquire("lock/a", "me", 30)).fence
        servers.primary.kill()
        deadline, after = time.monotonic() + 30, None
        while after is None and time.monotonic() < deadline:
            with suppress(StoreUnavailable):
                after = store.one(Acquire("lock/b", "me", 30)).fence
            time.sleep(0.05)
        assert after is not None
        assert after > before
        assert store.one(Release("lock/b", "me")) is Released.RELEASED
        assert any(str(servers.replica.port) in finding.subject for finding in store.run("check"))


def test_a_cluster_performs_a_batch_over_all_its_nodes(face: Opener, cluster: ValkeyCluster) -> None:
    store = face(isolated(cluster.url))
    keys = [f"lock/{n}" for n in range(300)]
    assert [entry.owner for entry in store.perform(*(Acquire(key, "me", 30) for key in keys))] == ["me"] * 300
    assert [entry.key for entry in store.run("scan", "lock/", "", 1000)] == sorted(keys)
    assert store.perform(*(Mark(f"mark/{key}", "me", 30) for key in keys)) == [True] * 300
    assert store.perform(*(Release(key, "me") for key in keys)) == [Released.RELEASED] * 300
    assert store.perform(Push("q/1", "i", b"payload"), Push("q/1", "j", b"payload")) == [True, True]
    assert [item.id for item in store.perform(Take("q/1", "me", 30), Take("q/1", "other", 30))] == ["i", "j"]
    item = store.one(Read(item_key("q/1", "i")))
    assert (item.value, item.state) == (b"payload", State.HELD)
    assert store.one(Clear(item.key, item.fence, "test")) is True
    assert store.one(Ack("q/1", "j", "other")) is True
    assert store.perform(Push("q/1", "k", b"1"), Amend("q/1", "k", b"2", b"1"), Count("q/1")) == [True, True, 1]
    assert [store.one(Hit("limit/a", owner, 1, 30)).allowed for owner in ("me", "other")] == [True, False]
    assert {finding.subject for finding in store.run("check")} == {f"127.0.0.1:{node.port}" for node in cluster.nodes}


def test_a_hint_crosses_the_cluster(face: Opener, cluster: ValkeyCluster) -> None:
    url = isolated(cluster.url)
    store, other = face(url), face(url)
    heard: list[str] = []
    store.store.listen(heard.append)
    for n in range(8):
        other.one(Acquire(f"lock/{n}", "other", 30))
        assert store.one(Acquire(f"lock/{n}", "me", 30, "", store.store.client)).owner == ""
        other.one(Release(f"lock/{n}", "other"))
    store.until(lambda: len(heard) == 8, "the hints")
    assert sorted(heard) == [f"lock/{n}" for n in range(8)]


def test_a_line_is_on_the_node_of_its_queue(face: Opener, cluster: ValkeyCluster) -> None:
    url = isolated(cluster.url)
    store, other = face(url), face(url)
    heard: list[str] = []
    store.store.listen(heard.append)
    queues = [f"queue:{n}/{n}" for n in range(16)]
    for queue in queues:
        assert store.one(Take(queue, "me", 30, client=store.store.client)) == NoItem(float("inf"))
        assert store.one(Read(line_key(queue))).waiters == 1
        other.one(Push(queue, "i", other_item := b"0" * 32 + b"b"))
        assert store.one(Take(queue, "me", 30, client=store.store.client)).payload == other_item
        assert store.one(Renew(item_key(queue, "i"), "me", 60)).owner == "me"
        assert store.one(Take(queue, "another", 30, client="somebody")).left > 30
        assert store.one(Release(line_key(queue), "another")) is Released.RELEASED
        assert store.one(Read(line_key(queue))).waiters == 0
    store.until(lambda: len(heard) == len(queues), "the hints")
    assert sorted(heard) == sorted(map(line_key, queues))


def test_a_slot_that_moves_is_followed(face: Opener, cluster: ValkeyCluster) -> None:
    store = face(isolated(cluster.url))
    assert store.one(Acquire("lock/a", "me", 30)).owner == "me"
    slot = store.store._codec.bucket(Acquire("lock/a", "me", 30))
    base = store.store._codec.bases[slot]
    number = cluster.nodes[0].ask("CLUSTER", "KEYSLOT", base)
    ids = [node.ask("CLUSTER", "MYID") for node in cluster.nodes]
    home = next(n for n, node in enumerate(cluster.nodes) if node.ask("CLUSTER", "COUNTKEYSINSLOT", number))
    away = (home + 1) % 3
    source, target = cluster.nodes[home], cluster.nodes[away]
    target.ask("CLUSTER", "SETSLOT", number, "IMPORTING", ids[home])
    source.ask("CLUSTER", "SETSLOT", number, "MIGRATING", ids[away])
    try:
        for key in source.ask("CLUSTER", "GETKEYSINSLOT", number, 100):
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        assert store.one(Renew("lock/a", "me", 60)).owner == "me"  # ASK
    finally:
        for node in cluster.nodes:
            node.ask("CLUSTER", "SETSLOT", number, "NODE", ids[away])
    assert store.one(Renew("lock/a", "me", 60)).owner == "me"  # MOVED
    assert store.one(Release("lock/a", "me")) is Released.RELEASED


# -- what only one face has


def test_many_threads_share_a_blocking_store(valkey: Valkey) -> None:
    store = open_blocking(isolated(valkey.url), clock=None, timeout=5)
    wrong: list[Any] = []

    def work(name: int) -> None:
        for n in range(100):
            (entry,) = store.perform([Acquire(f"lock/{name}/{n}", f"{name}", 30)])
            if not isinstance(entry, Entry) or entry.key != f"lock/{name}/{n}":
                wrong.append(entry)
            store.perform([Release(f"lock/{name}/{n}", f"{name}")])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(map(len, store._idle.values())) <= 8
    store.close()


def test_an_interrupted_thread_leaves_no_strangers_answer(valkey: Valkey) -> None:
    store = open_blocking(isolated(valkey.url), clock=None, timeout=5)
    store.perform([Read("lock/a")])
    (wire,) = store._idle[ServerAddress("127.0.0.1", valkey.port)]

    def interrupted(*chunk: object) -> None:  # after the command was sent
        raise KeyboardInterrupt

    wire._feed = interrupted
    with pytest.raises(KeyboardInterrupt):
        store.perform([Acquire("lock/a", "me", 30)])
    assert not any(store._idle.values())
    (entry,) = store.perform([Read("lock/b")])
    assert isinstance(entry, Entry)
    assert entry.key == "lock/b"
    store.close()


def test_a_forked_child_has_connections_of_its_own(valkey: Valkey) -> None:
    store = open_blocking(isolated(valkey.url), clock=None, timeout=5)
    store.perform([Acquire("lock/a", "me", 30, "", store.client)])
    name = store.client
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            store.forked()
            (entry,) = store.perform([Acquire("lock/b", "child", 30, "", store.client)])
            status = 0 if isinstance(entry, Entry) and entry.owner == "child" and store.client != name else 2
            store.close()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store._listener.ready
    (entry,) = store.perform([Read("lock/b")])
    assert isinstance(entry, Entry)
    assert entry.state is State.HELD
    store.close()


async def test_many_tasks_share_one_connection(valkey: Valkey) -> None:
    store = open_async(isolated(valkey.url), clock=None, timeout=5)

    async def work(name: int) -> list[Any]:
        return [(await store.perform([Acquire(f"lock/{name}/{n}", "me", 30)]))[0] for n in range(20)]

    found = await asyncio.gather(*(work(name) for name in range(50)))
    for name, entries in enumerate(found):
        assert [entry.key for entry in entries] == [f"lock/{name}/{n}" for n in range(20)]
    assert len(store._connections) == 1
    await store.close()


async def test_an_answer_that_cannot_be_understood_is_told_and_ends_no_connection(valkey: Valkey) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError("a mistake of ours")

    store = open_async(isolated(valkey.url), clock=None, timeout=5)
    await store.perform([Read("lock/a")])
    wire = store._home
    assert wire is not None
    with pytest.raises(StoreFailed, match="a mistake of ours"):
        await asyncio.wait_for(wire.call(store._codec.command([Read("lock/a")]), broken), 100)
    await store.perform([Read("lock/a")])
    assert store._home is wire
    await store.close()


async def test_a_cancelled_task_does_not_disturb_the_others(valkey: Valkey) -> None:
    store = open_async(isolated(valkey.url), clock=None, timeout=5)
    await store.perform([Read("lock/a")])
    futures = [asyncio.ensure_future(store.perform([Acquire(f"lock/{n}", "me", 30)])) for n in range(30)]
    for future in futures[::3]:
        future.cancel()
    results = await asyncio.gather(*futures, return_exceptions=True)
    for n, result in enumerate(results):
        if n % 3:
            assert isinstance(result, list)
            assert result[0].key == f"lock/{n}"  # type: ignore[union-attr]
    held = await store.perform([Read(f"lock/{n}") for n in range(30)])
    assert [entry.state for entry in held if isinstance(entry, Entry)] == [State.HELD] * 30
    await store.close()


async def test_what_nobody_awaits_is_performed_all_the_same(valkey: Valkey) -> None:
    store = open_async(isolated(valkey.url), clock=None, timeout=5)
    store.perform([Acquire("lock/a", "me", 30)])  # not connected yet
    entry: Any = None
    for _ in range(100):
        (entry,) = await store.perform([Read("lock/a")])
        if entry.state is State.HELD:
            break
    assert entry.state is State.HELD
    await store.close()


@pytest.mark.parametrize("begun", [True, False])
async def test_a_close_while_the_script_is_loaded_again_leaves_nobody_waiting(valkey: Valkey, begun: bool) -> None:
    with FaultProxy(valkey.host, valkey.port) as proxy:
        store = open_async(isolated(proxy.url(valkey.url)), clock=None, timeout=30)
        await store.perform([Read("lock/a")])
        valkey.ask("SCRIPT", "FLUSH")
        lost = proxy.drop_requests(where=lambda request: b"LOAD" in request)
        asked = asyncio.ensure_future(store.perform([Acquire("lock/a", "me", 30)]))
        while not (lost.hits if begun else store._tasks):  # the repeat was sent, or is about to begin
            await asyncio.sleep(0)
        await store.close()
        assert await asyncio.wait([asked], timeout=10) == ({asked}, set())
        assert type(asked.exception()) is Unanswered


async def test_a_close_waits_no_longer_than_the_timeout_for_the_goodbye_of_tls(valkey: Valkey, tmp_path: Path) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.append(asyncio.current_task())
        behind = await asyncio.open_connection(valkey.host, valkey.port)
        await asyncio.gather(relay(reader, behind[1]), relay(behind[0], writer))
        await behind[1].wait_closed()

    relays: list[Any] = []
    certificate = make_certificate(tmp_path, "localhost")
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side(certificate)) as server:
        with FaultProxy(*server.sockets[0].getsockname()) as proxy:
            url = isolated(f"rediss://localhost:{proxy.port}") + f"&ssl_ca_certs={certificate}"
            store = open_async(url, clock=None, timeout=1)
            (entry,) = await store.perform([Acquire("lock/a", "me", 30, "", store.client)])
            assert isinstance(entry, Entry)
            assert store._listener.ready
            proxy.half_open()
            began = time.monotonic()
            await store.close()
            assert time.monotonic() - began < 15  # asyncio waits 30 s for each connection
        assert await asyncio.wait(relays, timeout=20) == (set(relays), set())


# -- URLs


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("redis://localhost?colour=red", "colour"),
        ("redis://localhost:port", "port"),
        ("redis://localhost/name", "database"),
        ("redis://localhost?db=x", "db"),
        ("redis://localhost?prefix=a:", "does not know the option 'prefix'"),
        ("redis://localhost?namespace={a}", "namespace"),
        ("redis://localhost?eviction=maybe", "eviction"),
        ("redis+sentinel://localhost", "mymaster"),
        ("redis+cluster://localhost?db=1", "db"),
        ("rediss://localhost?ssl_cert_reqs=bogus", "none, optional or required, not 'bogus'"),
        ("rediss://localhost?ssl_keyfile=key.pem", "ssl_certfile"),
        ("rediss://localhost?ssl_ca_data=%C3%BC", "ssl_ca_data"),
        ("rediss://localhost?ssl_min_version=5", "ssl_min_version"),
    ],
)
def test_a_url_that_cannot_be_is_told(url: str, part: str) -> None:
    for opener in (open_blocking, open_async):
        with pytest.raises(InvalidInput, match=part):
            opener(url, clock=None, timeout=1)


def test_a_url_says_where_and_how() -> None:
    settings = parse(
        "redis+sentinel://me:p%40ss@h1,[::1]:5/mymaster?db=3&sentinel_password=s&ssl=true&ssl_cert_reqs=none"
    )
    assert settings.seeds == (ServerAddress("h1", 26379), ServerAddress("::1", 5))
    assert settings.login == {"db": 3, "ssl_cert_reqs": "none", "username": "me", "password": "p@ss"}
    assert (settings.service, settings.tls, settings.sentinel_login) == ("mymaster", True, {"password": "s"})
    assert "p@ss" not in f"{settings} {settings!r}"
    assert parse("redis://").seeds == (ServerAddress("localhost", 6379),)
    assert parse("redis://h:1/2").login == {"db": 2}
    assert parse("unix:///run/redis.sock?db=1").seeds == (ServerAddress("/run/redis.sock", 0),)
    assert parse("rediss://h").tls
