"""Who waits for the same busy key of a PostgreSQL store is asked for together, and gets the answer that is its own."""

import asyncio
import threading
from _thread import LockType
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from solely.errors import StoreError, StoreFailed, Unanswered
from solely.model import Allowance, Entry
from solely.ops import MAX_BATCH, Acquire, Hit, Mark, Op, Read, Renew
from solely.stores.postgres import open_async, open_blocking
from solely.stores.postgres.batch import can_wait
from solely.stores.postgres.blocking import MOST_PATIENT, PostgresStore
from solely.stores.postgres.busy_keys import BusyKeys, BusyOps, KeyLine, SharedBatch
from solely.stores.postgres.faults import KeyBusy
from solely.stores.postgres.settings import parse
from solely.testing.harness import fresh
from tests.conftest import PATIENT
from tests.postgres_server import Postgres
from tests.servers import until

MANY = 40  # callers: more than twice the connections


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(fsync="off") as running:
        yield running


@pytest.fixture
def store(server: Postgres) -> Iterator[PostgresStore]:
    opened = open_blocking(server.url, clock=None, timeout=PATIENT)
    opened.perform([Read(fresh("mark/any"))])  # makes the tables
    yield opened
    opened.close()


@contextmanager
def kept_busy(server: Postgres, key: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(server.conninfo()) as slow:
        slow.execute("SELECT pg_advisory_xact_lock(%s)", (parse(server.url).lock_id(key),))
        yield slow


def in_line(store: PostgresStore) -> int:
    return sum(line.members for line in store._busy_keys._lines.values())


def commits(server: Postgres, key: str) -> int:
    """In how many transactions the hits of this key were written."""
    hits = parse(server.url).names["hits"]
    return int(server.ask(f"SELECT count(DISTINCT xmin::text) FROM {hits} WHERE key = %s", key)[0][0])


def test_threads_that_waited_for_a_busy_key_share_one_commit(server: Postgres, store: PostgresStore) -> None:
    """A thousand commits of one key, one after the other, took longer than the timeout."""
    key = fresh("limit/busy")
    with ThreadPoolExecutor(MANY) as threads:
        with kept_busy(server, key):
            hits = [Hit(key, f"o{number}", 30, 60.0) for number in range(MANY)]
            answers = [threads.submit(store.perform, [hit]) for hit in hits]
            until(lambda: in_line(store) == MANY - MOST_PATIENT, "all but those that wait on the server")
        replies = [answer.result(60)[0] for answer in answers]
    assert sorted(isinstance(reply, Allowance) and reply.allowed for reply in replies) == [False] * 10 + [True] * 30
    assert commits(server, key) <= MOST_PATIENT + 1
    assert not store._busy_keys._lines


async def test_batches_that_waited_for_a_busy_key_share_one_commit(server: Postgres) -> None:
    """As those of requests that come one by one: each is a batch of its own."""
    store, key = open_async(server.url, clock=None, timeout=PATIENT), fresh("limit/busy")
    await store.perform([Read(fresh("mark/any"))])
    with kept_busy(server, key):
        answers = []
        for number in range(MANY):
            answers.append(store.perform([Hit(key, f"o{number}", 100, 60.0)]))
            await asyncio.sleep(0.001)
        lines = store._busy_keys._lines
        async with asyncio.timeout(60):
            while sum(line.members for line in lines.values()) < MANY - 3:
                await asyncio.sleep(0.01)
    replies = [reply for (reply,) in await asyncio.gather(*answers)]
    assert all(isinstance(reply, Allowance) and reply.allowed for reply in replies)
    assert commits(server, key) <= 4  # of the two that wait on the server, of the rest, and of one that met the rest
    assert not lines
    await store.close()


def test_an_op_that_fails_fails_alone(server: Postgres, store: PostgresStore) -> None:
    """Text that is no Unicode fails the whole statement; then each op is performed alone."""
    key, good = fresh("lock/busy"), MOST_PATIENT + 2

    def perform(number: int) -> object:
        try:
            return store.perform([Acquire(key, f"o{number}", 60.0, "" if number < good else "\ud800")])[0]
        except StoreError as error:
            return error

    with ThreadPoolExecutor(good + 3) as threads:
        with kept_busy(server, key):
            answers = [threads.submit(perform, number) for number in range(good)]
            until(lambda: in_line(store) == 2, "those that may not wait on the server alone")
            answers += [threads.submit(perform, good + number) for number in range(3)]
            until(lambda: in_line(store) == 5, "the others")
        replies = [answer.result(60) for answer in answers]
    assert [isinstance(reply, StoreFailed) for reply in replies] == [False] * good + [True] * 3
    assert sum(isinstance(reply, Entry) and bool(reply.owner) for reply in replies) == 1


def test_a_batch_that_waits_in_vain_gets_its_other_keys(server: Postgres) -> None:
    store = open_blocking(server.url, clock=None, timeout=6.0)
    busy, free, other = fresh("mark/busy"), fresh("mark/free"), fresh("mark/busy")
    store.perform([Read(free)])
    with kept_busy(server, busy), kept_busy(server, other) as second:
        threads = ThreadPoolExecutor(1)
        answer = threads.submit(
            store.perform, [Mark(busy, "me", 60.0), Mark(free, "me", 60.0), Mark(other, "me", 60.0)]
        )
        until(lambda: in_line(store) == 1, "it waits for the first")
        second.rollback()
        replies = answer.result(60)
        threads.shutdown()
    assert [type(reply) for reply in replies] == [KeyBusy, bool, bool]
    store.close()


# -- the lines


def asked(key: str, owner: str, patience: float = 60.0, ops: list[Op] | None = None) -> BusyOps:
    ops = ops or [Mark(key, owner, 60.0)]
    return BusyOps(ops, [None] * len(ops), list(range(len(ops))), patience)


def filled(line: KeyLine[None], *requests: BusyOps) -> KeyLine[None]:
    for request in requests:
        line.add(request)
    return line


def test_what_renews_or_releases_is_asked_for_first() -> None:
    asker, renewal = asked("mark/a", "me"), asked("", "", ops=[Renew("lock/a", "you", 60.0)])
    batch = filled(KeyLine(None), asker, asked("mark/a", "they"), renewal).take(asker)
    assert [type(op) for op in batch._ops] == [Renew, Mark, Mark]


def test_who_must_soon_give_up_does_not_end_the_wait_of_others() -> None:
    asker, hurried = asked("mark/a", "me"), asked("mark/a", "you", patience=5.0)
    line = filled(KeyLine(None), asker, hurried)
    assert line.take(asker).requests == [asker]
    assert line.remove(hurried)


def test_no_statement_has_more_ops_than_a_batch() -> None:
    many = asked("", "", ops=[Mark(f"mark/{number}", "me", 60.0) for number in range(3 * MAX_BATCH)])
    line = filled(KeyLine(None), many, asked("mark/a", "you"))
    batch = line.take(many)
    assert len(batch._ops) == MAX_BATCH
    batch.note([True] * MAX_BATCH)
    assert many.places[0] == MAX_BATCH


def test_who_left_is_not_asked_for_again() -> None:
    """Its caller may have undone it by then."""
    asker, left = asked("mark/a", "me"), asked("mark/a", "you")
    line = filled(KeyLine(None), asker, left)
    batch = line.take(asker)
    left.gone = True
    line.put_back(batch)
    assert line.take(asker).requests == [asker]


def shared(batch: SharedBatch, replies: Callable[[int], object]) -> None:
    batch.note([replies(place) for place in range(len(batch._ops))])  # type: ignore[misc]


def test_an_interrupted_asker_leaves_the_others_in_doubt_and_the_next_one_asks() -> None:
    keys, taken, go_on = BusyKeys(60.0), threading.Event(), threading.Event()
    first, second, third = (asked("mark/a", name) for name in ("first", "second", "third"))

    def interrupted(line: KeyLine[LockType], asker: BusyOps) -> None:
        until(lambda: line.members == 2, "the second is in line")
        batch = line.take(asker)
        taken.set()
        assert go_on.wait(60)
        batch.doubt("interrupted")
        line.put_back(batch)
        raise KeyboardInterrupt

    def answered(line: KeyLine[LockType], asker: BusyOps) -> None:
        shared(line.take(asker), lambda _: True)

    with ThreadPoolExecutor(3) as threads:
        asking = threads.submit(keys.wait, first, interrupted)
        until(lambda: asked_for(keys, "mark/a") == 1, "the first asks")
        waiting = threads.submit(keys.wait, second, answered)
        assert taken.wait(60)
        late = threads.submit(keys.wait, third, answered)
        until(lambda: asked_for(keys, "mark/a") == 3, "the third is in line")
        go_on.set()
        with pytest.raises(KeyboardInterrupt):
            asking.result(60)
        waiting.result(60)
        late.result(60)
    assert isinstance(second.replies[0], Unanswered)
    assert third.replies == [True]
    assert not keys._lines


def asked_for(keys: BusyKeys, key: str) -> int:
    line = keys._lines.get(key)
    return line.members if line else 0


def test_whose_time_is_over_while_another_asks_for_it_takes_that_answer() -> None:
    keys, taken, go_on = BusyKeys(60.0), threading.Event(), threading.Event()
    first, hurried = asked("mark/a", "first"), asked("mark/a", "hurried", patience=3.0)

    def slow(line: KeyLine[LockType], asker: BusyOps) -> None:
        until(lambda: line.members == 2, "the second is in line")
        asker.ends = 0.0  # so that the other one has more time left
        batch = line.take(asker)
        taken.set()
        assert go_on.wait(60)
        shared(batch, lambda _: True)

    def none(line: KeyLine[LockType], asker: BusyOps) -> None:
        raise AssertionError("it was asked for already")

    with ThreadPoolExecutor(2) as threads:
        asking = threads.submit(keys.wait, first, slow)
        waiting = threads.submit(keys.wait, hurried, none)
        assert taken.wait(60)
        until(lambda: hurried.left < 0, "its time is over")
        assert not waiting.done()
        go_on.set()
        asking.result(60)
        waiting.result(60)
    assert hurried.replies == [True]


def test_a_batch_waits_for_a_key_that_all_of_its_callers_want() -> None:
    """Of a limit that many reservations share, each of them has hit its own limit before."""
    ops: list[Op] = []
    for name in ("a", "b", "c"):
        ops += [Hit(f"hits/{name}", name, 5, 60.0), Hit("group/all", name, 5, 60.0)]
    assert can_wait(ops, [1, 3, 5])
    assert not can_wait([*ops, Hit("hits/d", "d", 5, 60.0)], [1, 3, 5])
    assert not can_wait(ops, [0, 1, 3, 5])
