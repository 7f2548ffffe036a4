"""Fences of the PostgreSQL store: each is max(last + 1, the server's clock in µs), however many are given at once."""

import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from solely import Client
from solely.errors import StoreDenied, StoreError, StoreUnavailable
from solely.model import Entry
from solely.ops import Acquire, Mark, Read, Release
from solely.stores import Store
from solely.stores.postgres import PostgresTransaction, migrate, open_async, open_blocking
from solely.stores.postgres.settings import parse
from solely.testing.harness import BlockingAdapter, fresh
from tests.conftest import in_schema
from tests.postgres_server import PGBOUNCER, Postgres, pooler_of
from tests.servers import until

ROUNDS = 30  # of each of six threads: some hundred grants of four keys


@pytest.fixture(params=["postgres", "debian_postgres"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


def fence_of(store: Store, key: str, owner: str = "me") -> int:
    [entry] = store.perform([Acquire(key, owner, 10)])
    assert isinstance(entry, Entry), entry
    assert entry.owner == owner
    return entry.fence


@pytest.mark.parametrize("lost", [7, 2_000_000_000_000_000], ids=["of an old backup", "ahead of the clock"])
def test_fences_grow_whatever_the_sequence_tells(server: Postgres, lost: int) -> None:
    """In the same life of the server as well: nothing is raised once and then forgotten."""
    url = in_schema(server.url)
    with closing(open_blocking(url, clock=None, timeout=5.0)) as store:
        before = fence_of(store, "lock/a")
        assert abs(before / 1_000_000 - time.time()) < 60
        server.ask(f"SELECT setval({parse(url).names['fence_name']}, {lost})")
        after = fence_of(store, "lock/b")
        assert after > max(before, lost)
        assert fence_of(store, "lock/c") > after


def test_a_server_in_use_is_not_behind_the_clock(server: Postgres) -> None:
    url = in_schema(server.url)
    with closing(open_blocking(url, clock=None, timeout=5.0)) as store:
        for n in range(3):
            [(before,)] = server.ask("SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint")
            assert fence_of(store, f"lock/{n}") >= before


def test_who_is_refused_takes_no_fence(server: Postgres) -> None:
    """A refusal that moved the sequence would be a write, which waits for the disk."""
    url = in_schema(server.url)
    last = f"SELECT last_value FROM {parse(url).names['fence']}"
    with closing(open_blocking(url, clock=None, timeout=5.0)) as store:
        marks = [Mark(f"mark/{n}", "me", 100) for n in range(20)]
        held = [Acquire(f"lock/{n}", "me", 100) for n in range(20)]
        store.perform([*marks])
        store.perform([*held])
        before = server.ask(last)
        store.perform([*marks])
        store.perform(marks[:1])
        store.perform([each._replace(owner="other") for each in held])
        store.perform([held[0]._replace(owner="other")])
        store.perform([held[0]._replace(owner="other", fingerprint="abc")])
        assert server.ask(last) == before


# -- many at once


@pytest.mark.parametrize("moment", ["1", "{moment}(NULL)"], ids=["while the clock stands", "as it goes on"])
def test_connections_that_ask_at_once_never_get_the_same_fence(server: Postgres, moment: str) -> None:
    url = in_schema(server.url)
    migrate(url)
    names = parse(url).names
    ask = f"SELECT {names['next_fences']}({moment.format_map(names)}, 2) FROM generate_series(1, 2000)"
    with ThreadPoolExecutor(4) as threads:
        given = [[row[0] for row in rows] for rows in threads.map(server.ask, [ask] * 4)]
    assert all(fences == sorted(fences) for fences in given)
    every = sorted(fence for fences in given for fence in fences)
    assert all(later - earlier >= 2 for earlier, later in pairwise(every))  # each asked for two


class Watch:
    """What the holder of a key sees of its fence and of the one before."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._given: list[int] = []
        self._mutex = threading.Lock()
        self.wrong: list[tuple[str, int, int]] = []

    def held(self, key: str, fence: int) -> None:
        """Called by who holds the key, so that none holds it later but after this."""
        with self._mutex:
            before, self._last[key] = self._last.get(key, 0), fence
            self._given.append(fence)
            if fence <= before:
                self.wrong.append((key, before, fence))

    def check(self) -> None:
        """Every fence was given once, and each greater than the one before it of its key."""
        assert not self.wrong
        assert len(set(self._given)) == len(self._given)
        assert self._given


def undo(store: Store, key: str, *owners: str) -> None:
    """Releases the key for each of them; another transaction may decide on it at first."""

    def is_released(owner: str) -> bool:
        with suppress(StoreUnavailable):
            return not isinstance(store.perform([Release(key, owner)])[0], StoreError)
        return False

    for owner in owners:
        until(partial(is_released, owner), f"the release of {key}")


def alone(store: Store, watch: Watch, keys: list[str]) -> None:
    key, owner = random.choice(keys), secrets.token_hex(8)
    with suppress(StoreUnavailable):
        [entry] = store.perform([Acquire(key, owner, 10_000)])
        if isinstance(entry, Entry) and entry.owner == owner:
            watch.held(key, entry.fence)
            undo(store, key, owner)


def together(store: Store, watch: Watch, keys: list[str]) -> None:
    """Several in one statement, then each passed on to the next owner in one."""
    some, owner, later = random.sample(keys, 3), secrets.token_hex(8), secrets.token_hex(8)
    replies = store.perform([Acquire(key, owner, 10_000) for key in some])
    held = [reply for reply in replies if isinstance(reply, Entry) and reply.owner == owner]
    for entry in held:
        watch.held(entry.key, entry.fence)
    for entry in held:
        _, passed = store.perform([Release(entry.key, owner), Acquire(entry.key, later, 10_000)])
        if isinstance(passed, Entry) and passed.owner == later:
            watch.held(passed.key, passed.fence)
        undo(store, entry.key, owner, later)


class Callers:
    """Callers' own transactions, half of which are rolled back: their fences are not given again."""

    def __init__(self, address: str, url: str, level: IsolationLevel) -> None:
        self._address, self._level = address, level
        self._within = PostgresTransaction(url)
        self._idle: list[psycopg.Connection[Any]] = []

    def act(self, store: Store, watch: Watch, keys: list[str]) -> None:
        key, owner = random.choice(keys), secrets.token_hex(8)
        connection = self._connect()
        try:
            [entry] = self._within.perform(connection, [Acquire(key, owner, 10_000)])
            if isinstance(entry, Entry) and entry.owner == owner:
                watch.held(key, entry.fence)  # nobody else decides on the key before this transaction ends
                if random.random() < 0.5:
                    self._within.perform(connection, [Release(key, owner)])
                    connection.commit()
        except (StoreUnavailable, psycopg.errors.SerializationFailure):
            pass  # it met another one
        finally:
            connection.rollback()
            self._idle.append(connection)

    def _connect(self) -> psycopg.Connection[Any]:
        if self._idle:
            return self._idle.pop()
        connection = psycopg.connect(self._address, prepare_threshold=None)
        connection.isolation_level = self._level
        return connection

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


def act_at_once(stores: list[Store], callers: Callers) -> Watch:
    """Six threads, each of which takes and lets go of keys in every way that there is."""
    watch, keys = Watch(), [fresh("lock/fenced") for _ in range(4)]

    def act(number: int) -> None:
        for _ in range(ROUNDS):
            random.choice([alone, together, callers.act])(stores[number % len(stores)], watch, keys)

    with closing(callers), ThreadPoolExecutor(6) as threads:
        list(threads.map(act, range(6)))
    for store in stores:
        store.close()
    return watch


def astray() -> float:
    """A clock that is set back and forth all the time: what is later has often the smaller moment."""
    return 1_800_000_000.0 + random.choice([0.0, 0.0, 0.000001, 5.0, -5.0])


@pytest.mark.parametrize("clock", [None, astray], ids=["the server's", "set back"])
@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.SERIALIZABLE])
def test_a_later_holder_always_has_the_greater_fence(server: Postgres, clock: Any, level: IsolationLevel) -> None:
    url = in_schema(server.url)
    tasks = BlockingAdapter(lambda: open_async(url, clock=clock, timeout=20.0))
    blocking = [open_blocking(url, clock=clock, timeout=20.0) for _ in range(2)]
    act_at_once([*blocking, tasks], Callers(server.conninfo(), url, level)).check()
    tasks.stop()


if PGBOUNCER is not None:

    def test_behind_a_pooler_a_later_holder_always_has_the_greater_fence(server: Postgres) -> None:
        with pooler_of(server, places=8) as address:
            url = in_schema(f"{address}?pgbouncer=true")
            migrate(url)
            stores: list[Store] = [open_blocking(url, clock=astray, timeout=20.0) for _ in range(2)]
            act_at_once(stores, Callers(address, url, IsolationLevel.READ_COMMITTED)).check()


def test_an_open_transaction_holds_up_no_grant(server: Postgres) -> None:
    """Its fence is given, and the lock of the fences is let go of, long before it ends; also if it fails."""
    url = in_schema(server.url)
    with Client(url) as once, psycopg.connect(server.conninfo()) as slow:
        assert once.within(slow).first("slow")
        assert once.first("other")
        with once.lock("other") as lease:
            assert lease.fence > 0
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s AND granted"
        assert server.ask(locks, slow.info.backend_pid) == [(1,)]  # of its key
        slow.rollback()


def test_who_is_broken_off_while_it_waits_leaves_no_lock(server: Postgres) -> None:
    url = in_schema(server.url)
    migrate(url)
    lock = parse(url).lock_id("fences")
    short = f"{url}&options=-c%20statement_timeout%3D300"
    with (
        psycopg.connect(server.conninfo()) as hindering,
        closing(open_blocking(short, clock=None, timeout=5.0)) as store,
    ):
        hindering.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        with pytest.raises(StoreUnavailable):
            store.perform([Acquire("lock/a", "me", 10)])
        hindering.rollback()
        until(lambda: fence_of(store, fresh("lock/b")) > 0, "a grant")
        [entry] = store.perform([Read("lock/a")])
        assert isinstance(entry, Entry)
        assert not entry.fence


def test_the_privileges_that_the_error_names_are_enough(server: Postgres) -> None:
    url, user = in_schema(server.url), f"u{secrets.token_hex(6)}"
    migrate(url)
    names = parse(url).names
    own = f"postgresql://{user}:x@{server.host}:{server.port}/postgres?namespace={parse(url).schema}"
    server.ask(f"CREATE ROLE {user} LOGIN PASSWORD 'x'")
    server.ask(f"GRANT USAGE ON SCHEMA {names['schema']} TO {user}")
    server.ask(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {names['schema']} TO {user}")
    with closing(open_blocking(own, clock=None, timeout=5.0)) as store:
        with pytest.raises(StoreDenied, match="SELECT and UPDATE on the sequence"):
            fence_of(store, "lock/a")
        server.ask(f"GRANT SELECT, UPDATE ON {names['fence']} TO {user}")
        assert fence_of(store, "lock/a") > 0
