"""The PostgreSQL store: the contract and the machine on each version that it claims, and what is special about it."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from solely import Client
from solely.errors import (
    InvalidInput,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    Unanswered,
)
from solely.formats import write_watermark
from solely.model import Entry, LeasedItem, Released, State
from solely.ops import Acquire, Advance, Clear, Finish, Hit, Mark, Op, Push, Read, Release, Renew, Take
from solely.stores import AsyncStore, Store
from solely.stores.memory import Memory, MemoryStore
from solely.stores.postgres import PostgresTransaction, migrate, open_async, open_blocking, schema
from solely.stores.postgres.faults import KeyBusy, MustRepeat
from solely.stores.postgres.schema import migrate as migrate_settings
from solely.stores.postgres.settings import parse
from solely.stores.postgres.statements import MIGRATIONS, NEWEST, SchemaStep
from solely.testing.clock import ManualClock
from solely.testing.harness import BlockingAdapter, Harness, fresh
from solely.testing.machine import run_machine
from tests.conftest import in_schema
from tests.postgres_server import DEBIAN_POSTGRES, PGBOUNCER, PYPI_POSTGRES, Postgres, pooler_of, replica_of
from tests.servers import until

SERVERS = {"18": PYPI_POSTGRES, "15": DEBIAN_POSTGRES}


@pytest.fixture(scope="module", params=[name for name, folder in SERVERS.items() if folder is not None])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    with Postgres(folder=SERVERS[request.param]) as running:
        yield running


@pytest.fixture(scope="module")
def shared_url(server: Postgres) -> str:
    """One schema for all tests that use fresh keys."""
    return in_schema(server.url)


@pytest.fixture
def store(shared_url: str, clock: ManualClock) -> Iterator[Store]:
    opened = open_blocking(shared_url, clock=clock, timeout=5.0)
    yield opened
    opened.close()


def entry_of(store: Store, key: str, op: Op | None = None) -> Entry:
    """What the store says of this key, or answers to this op."""
    [entry] = store.perform([op or Read(key)])
    assert isinstance(entry, Entry), entry
    return entry


@contextmanager
def lock_of(server: Postgres, url: str, key: str) -> Iterator[psycopg.Connection[Any]]:
    """A caller's transaction that is open and has decided on this key."""
    with psycopg.connect(server.conninfo()) as slow:
        slow.execute("SELECT pg_advisory_xact_lock(%s)", (parse(url).lock_id(key),))
        yield slow


def waiting_locks(server: Postgres) -> int:
    return int(server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")[0][0])


def described(server: Postgres, url: str) -> list[str]:
    """All that the schema consists of, in words, without its name."""
    schema = parse(url).schema
    found = server.ask(
        """
        SELECT format('%%s %%s %%s %%s', table_name, column_name, data_type || udt_name, column_default)
        FROM information_schema.columns WHERE table_schema = %s
        UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %s::regnamespace
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = %s
        UNION ALL SELECT format('%%s %%s %%s', relname, relkind, reloptions)
        FROM pg_class WHERE relnamespace = %s::regnamespace
        UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = %s::regnamespace
        """,
        *[schema] * 5,
    )
    return sorted(text.replace(schema, "SCHEMA") for (text,) in found)


# -- the model (blocking and the contract: test_machine.py, test_contract.py)


@pytest.mark.timeout(180)
def test_the_asyncio_store_answers_as_the_model(shared_url: str) -> None:
    clock = ManualClock()
    store = BlockingAdapter(lambda: open_async(shared_url, clock=clock, timeout=2.0))
    try:
        run_machine(store, clock, examples=60)
    finally:
        store.close()
        store.stop()


# -- many marks at once


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops are performed on keys that they are not meant for, as by a version before: also then, many are as one."""
    for place in ("memory.data", "postgres.blocking", "postgres.aio"):
        monkeypatch.setattr(f"solely.stores.{place}.check_ops", lambda ops: None)


@pytest.mark.usefixtures("unchecked")
def test_many_marks_are_answered_as_one_by_one(store: Store, clock: ManualClock) -> None:
    """A run of marks goes out as one statement: every state that a key can be in is met in it."""
    model = MemoryStore(Memory(clock=clock))
    part = fresh("mark/many")
    names = ["new", "seen", "mine", "held", "expired", "over", "displaced", "revoked", "result", "watermark"]
    key = {name: f"{part}/{name}" for name in names}

    def both(*ops: Op) -> None:
        ours, theirs = store.perform(ops), model.perform(ops)
        assert [getattr(r, "state", r) for r in ours] == [getattr(r, "state", r) for r in theirs]

    both(Mark(key["seen"], "other", 100), Mark(key["mine"], "me", 100), Acquire(key["held"], "other", 100))
    both(Acquire(key["expired"], "other", 1), Mark(key["over"], "other", 1), Acquire(key["displaced"], "me", 1))
    both(Release(key["revoked"], "me", True), Acquire(key["result"], "me", 1), Finish(key["result"], "me", b"", 100))
    both(Advance(key["watermark"], b"1"))
    clock.advance(1)
    both(Acquire(key["displaced"], "other", 0.5))
    clock.advance(0.5)
    run = [Mark(key[name], "me", 10) for name in names] + [Mark(key[name], "me", 10) for name in names]
    assert store.perform(run) == model.perform(run)
    both(*(Read(key[name]) for name in names))
    assert store.perform([*run, *(Read(key[name]) for name in names)])[:20] == model.perform(run)


def test_a_batch_too_large_for_the_table_of_locks_is_split() -> None:
    with Postgres(max_locks_per_transaction=10, max_connections=20) as server:  # room for about 300 locks
        store = open_blocking(server.url, clock=None, timeout=5.0)
        keys = [f"mark/{n}" for n in range(900)]
        assert store.perform([Mark(key, "me", 100) for key in keys]) == [True] * 900
        assert store.perform([Mark(key, "you", 100) for key in keys]) == [False] * 900
        store.close()


# -- plain releases and acquires at once


Both = Callable[..., None]


@pytest.fixture
def both(store: Store, clock: ManualClock) -> Both:
    """Performs ops on the store and on the model, whose answers must be the same."""
    model = MemoryStore(Memory(clock=clock))

    def perform(*ops: Op) -> None:
        assert _timeless(store.perform(ops)) == _timeless(model.perform(ops))

    return perform


def every_state(both: Both, clock: ManualClock) -> list[str]:
    """Keys, one in each state that a key can be in for `me`."""
    part = fresh("lock/exchange")
    names = [
        "free", "mine", "theirs", "over", "waited for", "offered", "closed", "revoked", "mark", "my mark", "result",
        "watermark", "expired under me",
    ]  # fmt: skip
    key = {name: f"{part}/{name}" for name in names}
    both(Acquire(key["over"], "other", 1, delay=0.5), Acquire(key["expired under me"], "me", 1))
    clock.advance(1)
    both(Acquire(key["mine"], "me", 100), Acquire(key["theirs"], "other", 100), Acquire(key["waited for"], "me", 100))
    both(Acquire(key["waited for"], "third", 100, client="c"), Acquire(key["offered"], "other", 100))
    both(Acquire(key["offered"], "fourth", 100, client="d"), Release(key["offered"], "other"))
    both(Acquire(key["closed"], "other", 100), Release(key["closed"], "other", delay=100))
    both(Release(key["revoked"], "me", True), Mark(key["mark"], "other", 100), Mark(key["my mark"], "me", 100))
    both(Acquire(key["result"], "me", 1), Finish(key["result"], "me", b"", 100), Advance(key["watermark"], b"1"))
    return list(key.values())


@pytest.mark.usefixtures("unchecked")
def test_an_exchange_is_answered_as_one_by_one(both: Both, clock: ManualClock) -> None:
    """Plain releases and acquires go out as one statement: every state that a key can be in is met in it, twice."""
    keys = every_state(both, clock)
    for owner in ("me", "you"):
        gone = [Release(key, owner) for key in keys]
        both(*gone, *(Acquire(key, owner, 10, "info", "e") for key in keys))
        both(*(Read(key) for key in keys))
        both(*gone)
        both(*(Acquire(key, owner, 10) for key in keys))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("owner", ["me", "you", "other"])
def test_a_key_that_is_passed_on_is_answered_as_one_by_one(owner: str, both: Both, clock: ManualClock) -> None:
    for key in every_state(both, clock):
        both(Release(key, owner), Acquire(key, "next", 10, "info", "e"))
        both(Read(key))
        both(Release(key, "next"), Acquire(key, owner, 10, "more"))
        both(Read(key))


def test_what_an_earlier_holder_left_does_not_pass_to_the_next(both: Both) -> None:
    key = fresh("lock/passed on")
    both(Acquire(key, "me", 100, "info", "", 5, "print", True))
    both(Acquire(key, "you", 100, counted=True))
    both(Release(key, "me"), Acquire(key, "you", 10))
    both(Read(key))


def _timeless(replies: Sequence[object]) -> list[object]:
    """The replies without what the two stores give as they please: fences, and the texts of errors."""
    return [reply._replace(fence=bool(reply.fence)) if isinstance(reply, Entry) else reply for reply in replies]


async def test_in_an_exchange_what_is_taken_after_a_release_that_is_busy_is_busy_too(
    shared_url: str, server: Postgres
) -> None:
    many = open_async(shared_url, clock=None, timeout=5.0)
    busy, free = fresh("lock/busy"), fresh("lock/free")
    await many.perform([Acquire(busy, "me", 100), Acquire(free, "me", 100)])
    batch: list[Op] = [Release(busy, "me"), Release(free, "me"), Acquire(busy, "you", 100), Acquire(free, "you", 100)]
    with lock_of(server, shared_url, busy):
        replies = await many.perform(batch)
        assert [isinstance(reply, KeyBusy) for reply in replies] == [True, False, True, False]
        assert (replies[1], replies[3].owner) == (Released.RELEASED, "you")  # type: ignore[union-attr]
        passed_on = await many.perform([Release(busy, "me"), Acquire(busy, "you", 100)])
        assert [type(reply) for reply in passed_on] == [KeyBusy, KeyBusy]
    [still] = await many.perform([Renew(busy, "me", 100)])
    assert isinstance(still, Entry)
    assert still.owner == "me"
    again = await many.perform(batch)
    assert (again[0], again[2].owner) == (Released.RELEASED, "you")  # type: ignore[union-attr]
    await many.close()


# -- keys and locks


def test_strangers_collide(shared_url: str, server: Postgres) -> None:
    """Bug 8: a million names fold to a million locks, and the server folds them as we do."""
    settings = parse(shared_url)
    ids = {settings.lock_id(f"lock/job-{n}") for n in range(1_000_000)}
    assert len(ids) == 1_000_000
    open_blocking(shared_url, clock=None, timeout=5.0).perform([Read("lock/a")])
    sample = [f"lock/job-{n}" for n in range(0, 1_000_000, 9_973)] + ["lock/ü", "lock/日本", "lock/𝄞"]
    rows = server.ask(f"SELECT {settings.names['lock_id']}(k) FROM unnest(%s::text[]) k", sample)
    assert [id for (id,) in rows] == [settings.lock_id(key) for key in sample]


def test_a_lease_that_expired_during_the_wait_for_the_lock_is_seen_as_expired(
    shared_url: str, server: Postgres
) -> None:
    """Bug 14: now() would be the start of the statement, before the wait."""
    store = open_blocking(shared_url, clock=None, timeout=20.0)
    key = fresh("lock/waited")
    store.perform([Acquire(key, "first", 1.0)])
    with lock_of(server, shared_url, key) as slow, ThreadPoolExecutor() as threads:
        second = threads.submit(store.perform, [Acquire(key, "second", 10)])
        until(lambda: waiting_locks(server) > 0, "the second Acquire waits for the lock")
        assert entry_of(store, key).state is State.HELD
        until(lambda: entry_of(store, key).state is State.FREE, "the lease expires")
        slow.rollback()
        (entry,) = second.result(20)
    assert isinstance(entry, Entry)
    assert (entry.state, entry.owner) == (State.HELD, "second")
    store.close()


def test_a_key_held_by_a_slow_transaction_holds_up_no_strangers(shared_url: str, server: Postgres) -> None:
    store = open_blocking(shared_url, clock=None, timeout=1.0)
    keys = [fresh("lock/cold") for _ in range(50)]
    store.perform([Read(keys[0])])

    async def main() -> None:
        many = open_async(shared_url, clock=None, timeout=5.0)
        await many.perform([Read(keys[0])])
        mixed = await many.perform([Acquire(key, f"o{n}", 10) for n, key in enumerate(keys)])
        assert isinstance(mixed[7], KeyBusy)
        assert all(isinstance(r, Entry) and r.owner for n, r in enumerate(mixed) if n != 7)
        alone = asyncio.ensure_future(many.perform([Acquire(keys[7], "alone", 10)]))
        others = [many.perform([Acquire(fresh("lock/cold"), "me", 10)]) for _ in range(20)]
        assert all(isinstance(r, Entry) and r.owner for [r] in await asyncio.gather(*others))
        assert not alone.done()
        slow.rollback()
        [entry] = await alone
        assert isinstance(entry, Entry)
        assert entry.owner == "alone"
        await many.close()

    with lock_of(server, shared_url, keys[7]) as slow:
        with pytest.raises(StoreUnavailable, match="another transaction"):
            store.perform([Acquire(keys[7], "me", 10)])
        asyncio.run(main())
    store.close()


@pytest.mark.usefixtures("unchecked")
async def test_a_callers_batch_has_its_turn_however_many_wait_already(shared_url: str, server: Postgres) -> None:
    store, key = open_async(shared_url, clock=None, timeout=20.0), fresh("lock/turn")
    await store.perform([Read(key)])
    with lock_of(server, shared_url, key) as slow:
        taking: list[list[Op]] = [
            [Acquire(other, f"o{n}", 10) for other in (key, fresh("lock/turn"))] for n in range(6)
        ]
        freeing: list[list[Op]] = [[Release(key, f"r{n}"), Release(fresh("lock/turn"), f"s{n}")] for n in range(6)]
        answers = [asyncio.ensure_future(store.perform(ops)) for ops in [*taking, *freeing]]
        marks = store.perform([Mark(mark, "me", 10) for mark in (key, *(fresh("mark/turn") for _ in range(20)))])
        await asyncio.sleep(0.1)
        assert (await one(store, Acquire(fresh("lock/cold"), "me", 10))).owner == "me"
        assert not any(answer.done() for answer in answers)
        slow.rollback()
        replies = [await answer for answer in answers]
    assert [reply for pair in [*replies, await marks] for reply in pair if isinstance(reply, StoreError)] == []
    assert sum(bool(mine.owner) for mine, _ in replies[:6]) <= 1  # type: ignore[union-attr]
    await store.close()


async def test_text_that_is_no_unicode_costs_no_connection(shared_url: str) -> None:
    store = open_async(shared_url, clock=None, timeout=5.0)
    for _ in range(6):
        with pytest.raises(ValueError, match="surrogates"):
            await store.scan("\ud800", "", 10)
    assert await one(store, Mark(fresh("mark/after"), "me", 10)) is True
    await store.close()


def test_batches_in_opposite_orders_do_not_deadlock(shared_url: str) -> None:
    stores = [open_blocking(shared_url, clock=None, timeout=20.0) for _ in range(2)]
    keys = [fresh("lock/order") for _ in range(20)]

    def work(number: int) -> int:
        order = keys if number else keys[::-1]
        failed = 0
        for _ in range(30):
            replies = stores[number].perform([Acquire(key, f"o{number}", 10) for key in order])
            replies += stores[number].perform([Release(key, f"o{number}") for key in order])
            failed += sum(isinstance(reply, StoreError) for reply in replies)
        return failed

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(work, (0, 1))) == [0, 0]
    for store in stores:
        store.close()


# -- the schema


PLANTED = (
    SchemaStep(NEWEST + 1, "planted_table", "CREATE TABLE {planted} (id integer PRIMARY KEY)"),
    SchemaStep(NEWEST + 2, "planted_column", "ALTER TABLE {planted} ADD COLUMN note text"),
)
BROKEN = SchemaStep(NEWEST + 3, "broken", "CREATE TABLE {broken} (id integer); SELECT 1 / 0")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> int:
    """A later version of the schema, two steps further, and its number."""
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, *PLANTED))
    monkeypatch.setattr(schema, "NEWEST", PLANTED[-1].number)
    return PLANTED[-1].number


def test_a_database_migrated_step_by_step_equals_a_fresh_one(server: Postgres, planted: int) -> None:
    fresh_url, stepped_url = in_schema(server.url), in_schema(server.url)
    assert migrate_settings(parse(fresh_url), planted) == planted
    for step in (*MIGRATIONS, *PLANTED):
        assert migrate_settings(parse(stepped_url), step.number) == step.number
        assert migrate_settings(parse(stepped_url), step.number) == step.number  # again changes nothing
    assert described(server, fresh_url) == described(server, stepped_url)
    assert any("perform" in text for text in described(server, fresh_url))
    assert any("planted" in text and "note" in text for text in described(server, fresh_url))


def test_steps_are_applied_together_or_not_at_all(
    server: Postgres, planted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = in_schema(server.url)
    assert migrate(url) == NEWEST
    before = described(server, url)
    with monkeypatch.context() as broken:
        broken.setattr(schema, "MIGRATIONS", (*MIGRATIONS, *PLANTED, BROKEN))
        with pytest.raises(StoreFailed, match="division by zero"):
            migrate_settings(parse(url), BROKEN.number)
    assert described(server, url) == before
    assert migrate_settings(parse(url), planted) == planted


def test_many_processes_may_open_an_empty_database_at_once(server: Postgres) -> None:
    url = in_schema(server.url)
    stores = [open_blocking(url, clock=None, timeout=20.0) for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        firsts = list(threads.map(lambda store: store.perform([Mark("mark/a", store.client, 10)])[0], stores))
    assert sorted(firsts) == [False] * 5 + [True]
    for store in stores:
        store.close()


def test_migrate_never_names_what_is_missing_and_what_to_do(server: Postgres, planted: int) -> None:
    url = in_schema(server.url)
    store = open_blocking(f"{url}&migrate=never", clock=None, timeout=5.0)
    with pytest.raises(StoreMisconfigured, match=r"is missing.*migrate\(url\)"):
        store.perform([Acquire("lock/a", "me", 10)])
    assert migrate(url) == NEWEST
    with pytest.raises(StoreMisconfigured, match=f"at version {NEWEST}, {planted} is needed"):
        store.perform([Acquire("lock/a", "me", 10)])
    migrate_settings(parse(url), planted)
    [entry] = store.perform([Acquire("lock/a", "me", 10)])
    assert isinstance(entry, Entry)
    assert entry.owner == "me"
    store.close()


def test_table_and_schema_are_the_users_choice(server: Postgres) -> None:
    one, two = (in_schema(server.url) + f"&solely_table={table}" for table in ("L0CK", "odd-name"))
    stores = [open_blocking(url, clock=None, timeout=5.0) for url in (one, two)]
    assert [store.perform([Mark("mark/a", "me", 10)]) for store in stores] == [[True], [True]]
    assert server.ask(f'SELECT count(*) FROM "{parse(one).schema}"."L0CK"') == [(1,)]
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    "option",
    ["namespace=a;b", "solely_schema=a", "solely_table=", 'solely_table="x"', "migrate=maybe", "pgbouncer=perhaps",
     "nonsense=1", "solely_table=" + "t" * 41],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_before_any_connection(option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_blocking(f"postgresql://me:hunter2@localhost/db?{option}", clock=None, timeout=1.0)
    assert "hunter2" not in str(caught.value)


# -- sweeping


def test_rows_that_answer_nothing_more_are_swept(server: Postgres) -> None:
    url = in_schema(server.url)
    clock = ManualClock()
    store = open_blocking(url, clock=clock, timeout=5.0)
    store.perform([Mark(f"mark/{n:04}", "me", 10) for n in range(600)])
    store.perform([Mark("mark/kept", "me", 10_000), Push("q", "i", b""), Advance("watermark/w", write_watermark(1))])
    store.perform([Hit("limit/a", "me", 1, 1.0)])
    clock.advance(3_700)
    for _ in range(4):
        store.perform([Read("lock/none")] * 300)
    names = parse(url).names
    rows = server.ask(f"SELECT key FROM {names['entries']} ORDER BY key")
    assert [key for (key,) in rows] == ["item/q/i", "mark/kept", "watermark/w"]
    assert server.ask(f"SELECT count(*) FROM {names['hits']}") == [(0,)]
    store.close()


# -- the caller's own transaction


@pytest.fixture
def orders(server: Postgres) -> Iterator[str]:
    """A table of the caller's."""
    name = f"orders_{secrets.token_hex(6)}"
    server.ask(f"CREATE TABLE {name} (id text)")
    yield name
    server.ask(f"DROP TABLE {name}")


def test_a_mark_commits_or_rolls_back_with_the_callers_rows(
    store: Store, shared_url: str, server: Postgres, orders: str, clock: ManualClock
) -> None:
    key, within = fresh("mark/order"), PostgresTransaction(shared_url, clock=clock)
    migrate(shared_url)
    with psycopg.connect(server.conninfo(), row_factory=dict_row) as connection:
        assert within.perform(connection, [Mark(key, "one", 100)]) == [True]
        connection.execute(f"INSERT INTO {orders} VALUES ('one')")
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        assert entry_of(store, key).state is State.FREE  # others see it as it was
        connection.rollback()
        assert entry_of(store, key).state is State.FREE
        assert within.perform(connection, [Mark(key, "two", 100), Read(key)])[0] is True
        connection.execute(f"INSERT INTO {orders} VALUES ('two')")
        connection.commit()
        assert within.perform(connection, [Mark(key, "three", 100)]) == [False]
    assert entry_of(store, key).state is State.DONE
    assert server.ask(f"SELECT id FROM {orders}") == [("two",)]


async def test_a_claim_is_won_and_published_in_an_asyncio_transaction(
    shared_url: str, server: Postgres, orders: str
) -> None:
    store, key, within = (
        open_async(shared_url, clock=None, timeout=5.0),
        fresh("claim/order"),
        PostgresTransaction(shared_url),
    )
    await store.perform([Read(key)])
    async with await psycopg.AsyncConnection.connect(server.conninfo()) as connection:
        claim, done = await within.perform_async(connection, [Acquire(key, "me", 10), Finish(key, "me", b"j42", 100)])
        assert isinstance(claim, Entry)
        assert isinstance(done, Entry)
        assert (claim.owner, done.state, done.value) == ("me", State.DONE, b"j42")
        await connection.execute(f"INSERT INTO {orders} VALUES ('me')")
        [refused] = await within.perform_async(connection, [Acquire(key, "you", 10, value=True)])
        assert isinstance(refused, Entry)
        assert (refused.owner, refused.value) == ("", b"j42")
    [entry] = await store.perform([Read(key)])
    assert isinstance(entry, Entry)
    assert entry.value == b"j42"
    await store.close()


def test_whoever_decides_on_the_key_waits_for_the_callers_transaction(shared_url: str, server: Postgres) -> None:
    key = fresh("mark/waits")
    store, within = open_blocking(shared_url, clock=None, timeout=20.0), PostgresTransaction(shared_url, patience=20.0)
    store.perform([Read(key)])
    with psycopg.connect(server.conninfo()) as first, psycopg.connect(server.conninfo()) as second:
        assert within.perform(first, [Mark(key, "first", 100)]) == [True]
        with ThreadPoolExecutor() as threads:
            late = threads.submit(within.perform, second, [Mark(key, "second", 100)])
            later = threads.submit(store.perform, [Mark(key, "third", 100)])
            until(lambda: waiting_locks(server) == 2, "both wait for the first transaction")
            first.rollback()
            until(lambda: late.done() or later.done(), "one of them goes on")
            second.commit() if late.done() else None
            assert sorted([bool(late.result(20)[0]), bool(later.result(20)[0])]) == [False, True]
    store.close()


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_serialisation_failure_is_a_clear_error_that_may_be_repeated(
    store: Store, shared_url: str, server: Postgres, level: IsolationLevel, clock: ManualClock
) -> None:
    within = PostgresTransaction(shared_url, clock=clock)
    key, free = fresh("lock/serial"), fresh("mark/serial")
    store.perform([Acquire(key, "me", 100)])
    with psycopg.connect(server.conninfo()) as connection:
        connection.isolation_level = level
        connection.execute("SELECT count(*) FROM pg_class")  # the snapshot is taken here
        store.perform([Release(key, "me"), Acquire(key, "you", 100), Mark(free, "you", 100)])
        with pytest.raises(MustRepeat, match="repeat it as a whole"):
            within.perform(connection, [Acquire(key, "me", 100)])
        connection.rollback()
        connection.execute("SELECT count(*) FROM pg_class")
        store.perform([Clear(free, entry_of(store, free).fence, ""), Mark(free, "others", 100)])
        with pytest.raises(MustRepeat):
            within.perform(connection, [Mark(free, "me", 100)])
        connection.rollback()
        assert within.perform(connection, [Mark(free, "me", 100)]) == [False]


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
@pytest.mark.parametrize("many", [1, 10])
def test_a_mark_that_was_taken_back_after_the_snapshot_is_such_a_failure(
    store: Store, shared_url: str, server: Postgres, level: IsolationLevel, many: int, clock: ManualClock
) -> None:
    within = PostgresTransaction(shared_url, clock=clock)
    keys = [fresh("mark/back") for _ in range(many)]
    marks = [Mark(key, "me", 100) for key in keys]
    store.perform([Mark(key, "you", 100) for key in keys[:2]])
    with psycopg.connect(server.conninfo()) as connection:
        connection.isolation_level = level
        connection.execute("SELECT count(*) FROM pg_class")  # the snapshot is taken here
        store.perform([Release(keys[0], "you")])
        with pytest.raises(MustRepeat, match="repeat it as a whole"):
            within.perform(connection, marks)
        connection.rollback()
        assert within.perform(connection, marks) == [place != 1 for place in range(many)]
        assert within.perform(connection, [op._replace(owner="other") for op in marks]) == [False] * many


def test_under_read_committed_a_mark_that_was_taken_back_is_made_anew(
    store: Store, shared_url: str, server: Postgres, clock: ManualClock
) -> None:
    keys = [fresh("mark/back") for _ in range(10)]
    store.perform([Mark(key, "you", 100) for key in keys[:2]])
    with psycopg.connect(server.conninfo()) as connection:
        connection.execute("SELECT count(*) FROM pg_class")
        store.perform([Release(keys[0], "you")])
        firsts = PostgresTransaction(shared_url, clock=clock).perform(
            connection, [Mark(key, "me", 100) for key in keys]
        )
    assert firsts == [place != 1 for place in range(10)]


def test_a_look_sees_what_was_taken_in_the_place_of_what_the_snapshot_still_shows(
    store: Store, shared_url: str, server: Postgres, clock: ManualClock
) -> None:
    within, keys = PostgresTransaction(shared_url, clock=clock), [fresh("lock/look") for _ in range(5)]
    store.perform([Acquire(key, "you", 100) for key in keys])
    with psycopg.connect(server.conninfo()) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        store.perform([Release(key, "you") for key in keys])
        for key in keys:
            taken, seen = within.perform(connection, [Acquire(key, "me", 100), Read(key)])
            assert isinstance(taken, Entry)
            assert isinstance(seen, Entry)
            assert seen.fence == taken.fence


def test_items_alone_are_put_into_a_queue_and_taken_in_the_callers_transaction(
    store: Store, shared_url: str, server: Postgres, clock: ManualClock
) -> None:
    queue, within = fresh("queue"), PostgresTransaction(shared_url, clock=clock)
    with psycopg.connect(server.conninfo()) as connection:
        assert within.perform(connection, [Push(queue, "1", b"a"), Push(queue, "2", b"b")]) == [True, True]
    with psycopg.connect(server.conninfo()) as connection:
        items = within.perform(connection, [Take(queue, "me", 10), Take(queue, "you", 10)])
    assert [item.id for item in items if isinstance(item, LeasedItem)] == ["1", "2"]


def test_marks_that_are_not_all_answered_are_a_failure(server: Postgres) -> None:
    url = in_schema(server.url)
    migrate(url)
    server.ask(
        f"CREATE OR REPLACE FUNCTION {parse(url).names['mark_many']}(clock bigint, ks text[], who text, ttl bigint) "
        "RETURNS text LANGUAGE sql AS $$ SELECT repeat('1', cardinality(ks) + 1) $$"
    )
    with psycopg.connect(server.conninfo()) as connection, pytest.raises(StoreFailed, match="11 of 10 marks"):
        PostgresTransaction(url).perform(connection, [Mark(fresh("mark/a"), "me", 100) for _ in range(10)])


# -- errors: each names its cause and grants nothing


def test_an_unreachable_server_is_named_and_nothing_was_performed() -> None:
    store = open_blocking("postgresql://me:hunter2@127.0.0.1:1/db", clock=None, timeout=1.0)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/db cannot be reached") as caught:
        store.perform([Acquire("lock/a", "me", 10)])
    assert not isinstance(caught.value, Unanswered)
    assert "hunter2" not in str(caught.value) + repr(store)


def test_a_server_that_accepts_and_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_blocking(f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/db", clock=None, timeout=0.3)
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer within"):
            store.perform([Acquire("lock/a", "me", 10)])
        assert time.monotonic() - started < 5


def test_a_wrong_password_or_database_is_named(server: Postgres) -> None:
    for url, cause in [
        (server.url.replace("secret", "hunter2"), "password is wrong"),
        (server.url.replace("/postgres?", "/nowhere?").removesuffix("/postgres") + "/nowhere", "no such database"),
    ]:
        store = open_blocking(url, clock=None, timeout=5.0)
        with pytest.raises(StoreMisconfigured, match=cause) as caught:
            store.perform([Mark("mark/a", "me", 10)])
        assert "hunter2" not in str(caught.value)


def role(server: Postgres, options: str = "") -> str:
    """A new user that may log in, as a URL."""
    name = f"u{secrets.token_hex(6)}"
    server.ask(f"CREATE ROLE {name} LOGIN PASSWORD 'x' {options}")
    return f"postgresql://{name}:x@{server.host}:{server.port}/postgres"


def test_a_user_who_may_only_read_or_nothing_at_all_is_told_so(server: Postgres, shared_url: str) -> None:
    schema = f"?namespace={parse(shared_url).schema}"
    open_blocking(shared_url, clock=None, timeout=5.0).perform([Read("lock/a")])
    reader = role(server)
    name = reader.split("/")[2].split(":")[0]
    server.ask(f"ALTER ROLE {name} SET default_transaction_read_only = on")
    server.ask(f"GRANT USAGE ON SCHEMA {parse(shared_url).schema} TO {name}")
    with pytest.raises(StoreMisconfigured, match="default_transaction_read_only"):
        open_blocking(reader + schema, clock=None, timeout=5.0).perform([Mark("mark/a", "me", 10)])
    for options in (schema, "?namespace=his_own"):
        with pytest.raises(StoreMisconfigured, match="privilege"):
            open_blocking(role(server) + options, clock=None, timeout=5.0).perform([Mark("mark/a", "me", 10)])


def test_a_promotion_while_the_server_is_asked_is_no_misconfiguration(shared_url: str) -> None:
    connector = schema.Connector(parse(shared_url))
    with closing(connector.connect(5.0)) as connection:
        connection.execute(b"BEGIN READ ONLY")  # as a statement is that began before the promotion
        life, version = connector._check_server(connection)
    assert life == connector.life
    assert version == 0  # it is known to be up to date


@pytest.fixture
def database(server: Postgres) -> Iterator[Callable[[str], str]]:
    """Makes a database with these options, and tells its URL."""
    names: list[str] = []

    def create(options: str = "") -> str:
        names.append(f"d{secrets.token_hex(6)}")
        server.ask(f"CREATE DATABASE {names[-1]} {options}")
        return server.url.removesuffix("postgres") + names[-1]

    yield create
    for name in names:
        server.ask(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_transactions_that_begin_above_read_committed_are_refused_where_that_cannot_be_set(
    server: Postgres, database: Callable[[str], str], level: str
) -> None:
    url = database("")
    name = url.rpartition("/")[2]
    server.ask(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    with closing(open_blocking(f"{url}?pgbouncer=true", clock=None, timeout=5.0)) as store:
        with pytest.raises(StoreMisconfigured, match=f"begins .* at {level}.*ALTER ROLE"):
            store.perform([Hit("limit/a", "me", 1, 10.0)])
        assert server.ask("SELECT to_regnamespace('solely')::text", database=name) == [(None,)]  # nothing was made
        server.ask(f"ALTER ROLE postgres IN DATABASE {name} SET default_transaction_isolation = 'read committed'")
        assert store.perform([Mark("mark/a", "me", 10)]) == [True]
    with closing(open_blocking(url, clock=None, timeout=5.0)) as store:  # there we set it ourselves
        server.ask(f"ALTER ROLE postgres IN DATABASE {name} RESET default_transaction_isolation")
        assert store.perform([Mark("mark/b", "me", 10)]) == [True]


def test_many_may_migrate_at_once_where_transactions_begin_above_read_committed(
    server: Postgres, database: Callable[[str], str]
) -> None:
    url = database("")
    server.ask(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = 'repeatable read'")
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(migrate, [f"{url}?pgbouncer=true"] * 4)) == [NEWEST] * 4


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused(
    server: Postgres, database: Callable[[str], str], encoding: str
) -> None:
    url = database(f"TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    name = url.rpartition("/")[2]
    with closing(open_blocking(url, clock=None, timeout=5.0)) as store:
        for call in (lambda: store.perform([Mark("mark/a", "me", 10)]), lambda: store.scan("", "", 10)):
            with pytest.raises(StoreMisconfigured, match=f"keeps text as {encoding}.*ENCODING 'UTF8'"):
                call()
    with (
        psycopg.connect(server.conninfo(name)) as connection,
        pytest.raises((StoreMisconfigured, InvalidInput), match="has not every character"),
    ):
        PostgresTransaction(url).perform(connection, [Mark("mark/a", "me", 10)])
    assert server.ask("SELECT to_regnamespace('solely')::text", database=name) == [(None,)]  # nothing was made


def test_a_server_out_of_connections_is_told_so(server: Postgres) -> None:
    store = open_blocking(role(server, "CONNECTION LIMIT 0"), clock=None, timeout=5.0)
    with pytest.raises(StoreUnavailable, match="no connection left"):
        store.perform([Mark("mark/a", "me", 10)])


def test_a_full_disk_is_told_so_and_grants_nothing(server: Postgres) -> None:
    url = in_schema(server.url)
    store = open_blocking(url, clock=None, timeout=5.0)
    assert store.perform([Mark("mark/before", "me", 10)]) == [True]
    names = parse(url).names
    server.ask(  # a real one would stop the server's own log first: this is how the answer looks
        f"""
        CREATE FUNCTION {names["full"]}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER "full" BEFORE INSERT ON {names["entries"]} EXECUTE FUNCTION {names["full"]}()
        """
    )
    with pytest.raises(StoreFull, match="disk is full"):
        store.perform([Mark("mark/after", "me", 10)])
    with pytest.raises(StoreFull):
        store.perform([Acquire(f"lock/{n}", "me", 10) for n in range(3)])
    assert entry_of(store, "mark/after").state is State.FREE
    store.close()


def test_a_statement_that_takes_too_long_is_broken_off_by_the_server(server: Postgres) -> None:
    url = in_schema(server.url)
    first = open_blocking(url, clock=None, timeout=30.0)  # makes the tables, which takes a busy machine longer
    first.perform([Read("lock/a")])
    first.close()
    store = open_blocking(url, clock=None, timeout=3.0)
    store.perform([Read("lock/a")])
    with psycopg.connect(server.conninfo()) as admin:
        admin.execute(f"LOCK TABLE {parse(url).names['entries']}")
        with pytest.raises(StoreUnavailable, match="longer than the timeout") as caught:
            store.perform([Acquire("lock/a", "me", 10)])
        assert not isinstance(caught.value, Unanswered)
    assert entry_of(store, "lock/a", Acquire("lock/a", "me", 10)).owner == "me"
    store.close()


def test_a_replica_instead_of_the_primary_is_told_so() -> None:
    with Postgres() as primary:
        url = in_schema(primary.url)
        open_blocking(url, clock=None, timeout=5.0).perform([Read("lock/a")])
        with replica_of(primary) as replica:
            at_replica = url.replace(f":{primary.port}/", f":{replica.port}/")
            store = open_blocking(at_replica, clock=None, timeout=5.0)
            with pytest.raises(StoreUnavailable, match="replica instead of the primary"):
                store.perform([Acquire("lock/a", "me", 10)])
            primary.kill()
            replica.ask("SELECT pg_promote()")
            assert entry_of(store, "lock/a", Acquire("lock/a", "me", 10)).owner == "me"
            store.close()


# -- a server that goes away


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A server that tests may kill and pause."""
    with Postgres() as running:
        yield running


def test_what_was_answered_survives_a_kill_and_work_goes_on_by_itself(mortal: Postgres) -> None:
    url = in_schema(mortal.url)
    store, tasks = (
        open_blocking(url, clock=None, timeout=2.0),
        BlockingAdapter(lambda: open_async(url, clock=None, timeout=2.0)),
    )
    fences, marked = [0], []
    for life in range(3):
        for each in (store, tasks):
            key = fresh("lock/life")
            fences.append(entry_of(each, key, Acquire(key, "me", 100)).fence)
            marked.append(fresh("mark/life"))
            assert each.perform([Mark(marked[-1], "me", 100)] * 2) == [True, True]
        mortal.kill()
        for each in (store, tasks):
            with pytest.raises(StoreUnavailable):
                each.perform([Mark(fresh("mark/away"), "me", 100)])
        mortal.start()
        for each in (store, tasks):
            until(lambda each=each: answers_again(each), "the store goes on")  # type: ignore[misc]
        assert store.perform([Mark(key, "other", 100) for key in marked]) == [False] * len(marked), life
    assert fences == sorted(set(fences))
    store.close()
    tasks.close()
    tasks.stop()


def answers_again(store: Store) -> bool:
    with suppress(StoreUnavailable):
        return isinstance(store.perform([Read("lock/a")])[0], Entry)
    return False


def test_who_waits_for_a_connection_opens_one_when_all_others_are_lost(server: Postgres) -> None:
    url = in_schema(server.url)
    store = open_blocking(f"{url}&application_name=lost", clock=None, timeout=20.0)
    store.perform([Read("lock/a")])
    blocked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lost' AND wait_event_type = 'Lock'"
    with psycopg.connect(server.conninfo()) as admin, ThreadPoolExecutor(20) as threads:
        admin.execute(f"LOCK TABLE {parse(url).names['entries']}")
        busy = [threads.submit(store.perform, [Mark(f"mark/{n}", "me", 10)]) for n in range(16)]
        until(lambda: len(server.ask(blocked)) == 16, "all connections are busy")
        waiting = [threads.submit(store.perform, [Mark(f"mark/waiting/{n}", "me", 10)]) for n in range(4)]
        time.sleep(0.5)  # nothing tells that they wait
        lost = time.monotonic()
        server.ask(f"SELECT pg_terminate_backend(pid) FROM ({blocked}) AS all_of_them")
        for answer in busy:
            with pytest.raises(Unanswered):
                answer.result(20)
        admin.rollback()
        assert [answer.result(30) for answer in waiting] == [[True]] * 4
        assert time.monotonic() - lost < 15
    store.close()


def test_a_paused_server_is_unanswered_in_time_and_its_late_answer_goes_to_nobody(mortal: Postgres) -> None:
    url = in_schema(mortal.url)
    store, tasks = (
        open_blocking(url, clock=None, timeout=0.5),
        BlockingAdapter(lambda: open_async(url, clock=None, timeout=0.5)),
    )
    for each in (store, tasks):
        each.perform([Read("lock/a")])
        mortal.pause()
        try:
            started = time.monotonic()
            with pytest.raises(Unanswered, match=r"nothing within 0\.5 s"):
                each.perform([Acquire("lock/a", each.client, 100)])
            assert time.monotonic() - started < 10
        finally:
            mortal.resume()
        until(lambda each=each: answers_again(each), "the store goes on")  # type: ignore[misc]
        [mark] = each.perform([Mark(fresh("mark/b"), "me", 100)])
        assert mark is True
    store.close()
    tasks.close()
    tasks.stop()


def test_a_cut_ear_hears_again(shared_url: str, server: Postgres) -> None:
    for opened in (
        open_blocking(shared_url, clock=None, timeout=5.0),
        BlockingAdapter(lambda: open_async(shared_url, clock=None, timeout=5.0)),
    ):
        face = Harness(opened)
        face.listen()
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
        assert server.ask(cut)
        face.listen()
        opened.close()
        if isinstance(opened, BlockingAdapter):
            opened.stop()


async def test_a_cancelled_caller_stops_no_batch_and_spoils_no_connection(shared_url: str, server: Postgres) -> None:
    store = open_async(shared_url, clock=None, timeout=10.0)
    key = fresh("lock/cancelled")
    await store.perform([Read(key)])
    with lock_of(server, shared_url, key) as slow:
        callers = [asyncio.ensure_future(one(store, Acquire(key, "cancelled", 10)))]
        callers += [asyncio.ensure_future(one(store, Mark(fresh("mark/cancelled"), "me", 10))) for _ in range(10)]
        await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        slow.rollback()
    for number in range(30):
        mine = fresh("lock/next")
        entry = await one(store, Acquire(mine, f"o{number}", 10))
        assert (entry.key, entry.owner) == (mine, f"o{number}")
    assert (await one(store, Acquire(key, "cancelled", 10))).owner == "cancelled"
    await store.close()


async def one(store: AsyncStore, op: Op) -> Any:
    [reply] = await store.perform([op])
    return reply


def test_a_forked_child_has_connections_of_its_own(shared_url: str) -> None:
    store = open_blocking(shared_url, clock=None, timeout=5.0)
    Harness(store).listen()
    name, reading, writing = store.client, *os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        code = 1
        try:
            store.forked()
            entry = entry_of(store, "", Acquire(fresh("lock/child"), "child", 10))
            os.write(writing, f"{entry.owner} {store.client != name}".encode())
            store.close()
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, 100) == b"child True"
    os.close(reading)
    assert entry_of(store, "", Acquire(fresh("lock/parent"), "parent", 10)).owner == "parent"
    Harness(store).listen()
    store.close()


# -- what the owner of the server should know


def test_check_tells_what_breaks_a_promise(server: Postgres) -> None:
    url = in_schema(server.url)  # of its own: fences follow the clocks of other tests, which are ahead
    store = open_blocking(url, clock=None, timeout=5.0)
    assert {finding.level for finding in store.check()} == {"ok"}
    careless = f"{url}&options=-c%20synchronous_commit%3Doff"
    found = open_blocking(careless, clock=None, timeout=5.0).check()
    assert next(f.text for f in found if f.level == "warning").startswith("synchronous_commit is off")
    server.ask(f"SELECT setval({parse(url).names['fence_name']}, {int((time.time() + 200_000) * 1e6)})")
    assert any("days ahead of the clock" in f.text for f in store.check() if f.level == "warning")
    store.close()


# -- behind a pooler


@pytest.fixture
def pgbouncer(server: Postgres) -> Iterator[str]:
    """A real pgbouncer that lends one connection of the server per transaction."""
    with pooler_of(server, places=2) as address:
        yield f"{address}?pgbouncer=true"


def store_marks(store: Store, keys: list[str]) -> int:
    """Marks what is not marked yet, and tells how many are marked now."""
    store.perform([Mark(key, "last", 10) for key in keys])
    return sum(isinstance(r, Entry) and r.state is State.DONE for r in store.perform([Read(key) for key in keys]))


if PGBOUNCER is not None:

    def test_behind_a_pooler_all_ops_work_and_waiters_poll(pgbouncer: str, clock: ManualClock) -> None:
        url = in_schema(pgbouncer)
        blocking = open_blocking(url, clock=clock, timeout=5.0)
        tasks = BlockingAdapter(lambda: open_async(url, clock=clock, timeout=5.0))
        assert blocking.polls
        assert tasks.polls
        for each in (blocking, tasks):
            run_machine(each, clock, examples=10)
            keys = [fresh("mark/pooled") for _ in range(300)]
            with ThreadPoolExecutor(6) as threads:
                firsts = list(threads.map(lambda _: each.perform([Mark(k, fresh("o"), 10) for k in keys]), range(6)))  # noqa: B023
            told = [[r for r in column if not isinstance(r, StoreError)] for column in zip(*firsts, strict=True)]
            assert {sum(answers) for answers in told if len(answers) == 6} <= {1}
            assert all(sum(answers) <= 1 for answers in told)
            assert store_marks(each, keys) == 300
        blocking.close()
        tasks.close()
        tasks.stop()

    def lag(server: Postgres, url: str) -> None:
        """Another server takes the place of this one, which had not heard of the last fences: a failover."""
        server.restart()
        server.ask(f"SELECT setval({parse(url).names['fence_name']}, 7)")

    def test_behind_a_pooler_fences_grow_through_a_failover(server: Postgres, pgbouncer: str) -> None:
        url = in_schema(pgbouncer)
        tasks = BlockingAdapter(lambda: open_async(url, clock=None, timeout=5.0))
        with closing(open_blocking(url, clock=None, timeout=5.0)) as blocking, closing(tasks):
            for each in (blocking, tasks):
                key = fresh("lock/pooled")
                before = entry_of(each, key, Acquire(key, "me", 10)).fence
                lag(server, url)
                with pytest.raises(StoreUnavailable, match="another one took its place") as caught:
                    each.perform([Release(key, "me")])
                assert not isinstance(caught.value, Unanswered)
                each.perform([Release(key, "me")])
                assert entry_of(each, key, Acquire(key, "you", 10)).fence > before
        tasks.stop()

    def test_behind_a_pooler_a_client_goes_on_through_a_failover(server: Postgres, pgbouncer: str) -> None:
        url = in_schema(pgbouncer)
        with Client(url) as once:
            with once.lock("a") as lease:
                before = lease.fence
            lag(server, url)
            with once.lock("a") as lease:
                assert lease.fence > before

    @pytest.mark.parametrize("pooled", [True, False])
    def test_fences_of_a_callers_pooled_connection_grow_through_a_failover(
        server: Postgres, pgbouncer: str, pooled: bool
    ) -> None:
        """Whether the store itself is reached through the pooler or not."""
        url = in_schema(pgbouncer if pooled else server.url)
        address = pgbouncer.removesuffix("?pgbouncer=true")
        with closing(open_blocking(url, clock=None, timeout=5.0)) as store:
            before = entry_of(store, "lock/a", Acquire("lock/a", "me", 10)).fence
            with psycopg.connect(address, prepare_threshold=None) as connection:
                within = PostgresTransaction(url)
                within.perform(connection, [Read("lock/a")])
                connection.commit()
                lag(server, url)
                with pytest.raises(StoreUnavailable, match="another one took its place"):
                    within.perform(connection, [Acquire("lock/b", "me", 10), Read("lock/b")])
                connection.rollback()
                [entry] = within.perform(connection, [Acquire("lock/b", "me", 10)])
                assert isinstance(entry, Entry)
                assert entry.fence > before
