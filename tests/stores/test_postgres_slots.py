"""Threads that share the connections of one PostgreSQL store: nobody is held up by who waits, and nobody starves."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import psycopg
import pytest

from solely.model import Entry
from solely.ops import Acquire, Mark, Op, Read, Release, Renew
from solely.stores.postgres import open_async, open_blocking
from solely.stores.postgres.batch import LINGER
from solely.stores.postgres.blocking import MOST_PATIENT, PostgresStore
from solely.stores.postgres.faults import KeyBusy
from solely.stores.postgres.settings import parse
from solely.stores.postgres.slots import ThreadSlots
from solely.testing.harness import fresh
from tests.postgres_server import Postgres
from tests.servers import until

MANY = 40  # threads: more than twice the connections
TURNS = 50  # of each, on average: enough to tell a fair share from chance


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(fsync="off") as running:
        yield running


def waiting_locks(server: Postgres) -> int:
    return int(server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")[0][0])


def in_line(store: PostgresStore) -> int:
    """How many threads wait for busy keys beside those that wait on the server alone."""
    return sum(line.members for line in store._busy_keys._lines.values())


# -- the store


@pytest.mark.parametrize("size", [1, 2, 10])
def test_threads_that_want_a_busy_key_hold_up_no_other_keys(server: Postgres, size: int) -> None:
    """Alone, in a batch and in a run of marks: only so many wait on the server, and all have their turn after it."""
    store, busy = open_blocking(server.url, clock=None, timeout=30.0), fresh("mark/busy")
    store.perform([Acquire("lock/renewed", "me", 100)])

    def wanted(number: int) -> list[Op]:
        return [Mark(key, f"o{number}", 100) for key in (busy, *(fresh("mark/beside") for _ in range(size - 1)))]

    with psycopg.connect(server.conninfo()) as slow, ThreadPoolExecutor(MANY) as threads:
        slow.execute("SELECT pg_advisory_xact_lock(%s)", (parse(server.url).lock_id(busy),))
        answers = [threads.submit(store.perform, wanted(number)) for number in range(MANY)]
        until(lambda: in_line(store) == MANY - (MOST_PATIENT if size == 1 else 0), "all of them")
        for _ in range(5):
            asked = time.monotonic()
            assert store.perform([Mark(fresh("mark/free"), "me", 100)]) == [True]
            assert store.perform([Mark(fresh("mark/free"), "me", 100) for _ in range(9)]) == [True] * 9
            store.perform([Renew("lock/renewed", "me", 100)])
            assert time.monotonic() - asked < 8  # those on the server are patient for 21
        assert waiting_locks(server) == (MOST_PATIENT if size == 1 else 1)
        assert not any(answer.done() for answer in answers)
        slow.rollback()
        replies = [answer.result(30) for answer in answers]
    assert sorted(bool(first) for first, *_ in replies) == [False] * (MANY - 1) + [True]
    assert all(rest == [True] * (size - 1) for _, *rest in replies)
    store.close()


def test_a_key_that_stays_busy_is_told_to_each_of_many_in_time(server: Postgres) -> None:
    store, busy = open_blocking(server.url, clock=None, timeout=4.0), fresh("mark/busy")
    store.perform([Read(busy)])

    def told(number: int) -> bool:
        with pytest.raises(KeyBusy, match="another transaction"):
            store.perform([Mark(busy, f"o{number}", 100)])
        return True

    with psycopg.connect(server.conninfo()) as slow, ThreadPoolExecutor(MANY) as threads:
        slow.execute("SELECT pg_advisory_xact_lock(%s)", (parse(server.url).lock_id(busy),))
        started = time.monotonic()
        assert all(threads.map(told, range(MANY)))
        assert time.monotonic() - started < 15
    assert store.perform([Mark(busy, "me", 100)]) == [True]
    store.close()


async def test_tasks_that_all_want_one_busy_key_wait_for_it_together(server: Postgres) -> None:
    """Their batch was given up after 5 ms, again and again, until a busy machine had used up the timeout of some."""
    store, busy = open_async(server.url, clock=None, timeout=30.0), fresh("lock/busy")
    await store.perform([Read(busy)])
    with psycopg.connect(server.conninfo()) as slow:
        slow.execute("SELECT pg_advisory_xact_lock(%s)", (parse(server.url).lock_id(busy),))
        answer = store.perform([Acquire(busy, f"o{number}", 100) for number in range(10)])
        await asyncio.to_thread(until, lambda: waiting_locks(server) == 1, "the batch waits on the server")
        await asyncio.sleep(20 * LINGER)
        slow.rollback()
    entries = [entry for entry in await answer if isinstance(entry, Entry)]
    assert [entry.owner for entry in entries] == ["o0", *[""] * 9]  # whose it is stays hidden from others
    await store.close()


@pytest.mark.parametrize("shared", [False, True])
def test_more_threads_than_connections_have_their_turns_alike(server: Postgres, shared: bool) -> None:
    """Who gave a connection back used to take it again at once, and the others waited until their time was over."""
    store = open_blocking(server.url, clock=None, timeout=30.0)
    names = [fresh("lock/turns") for _ in range(1 if shared else MANY)]
    store.perform([Read(names[0])])
    begin, turns, ends = threading.Barrier(MANY), count(), time.monotonic() + 120

    def work(number: int) -> int:
        key, owner, done = names[number % len(names)], f"o{number}", 0
        store.perform([Read(key)])  # so that all connections are made before the turns are counted
        begin.wait(60)
        while next(turns) < MANY * TURNS and time.monotonic() < ends:
            store.perform([Acquire(key, owner, 100)])
            store.perform([Release(key, owner)])
            done += 1
        return done

    with ThreadPoolExecutor(MANY) as threads:
        counts = list(threads.map(work, range(MANY)))
    behind = [done for done in counts if done * 4 < sum(counts) / MANY]
    assert len(behind) <= MANY // 10, counts  # one or two whose threads were slow; all without a connection otherwise
    store.close()


# -- the slots


def test_slots_come_in_the_order_of_the_queue_and_nobody_overtakes() -> None:
    slots = ThreadSlots(1)
    assert slots.take()
    assert not slots.take()
    with slots.join() as first, slots.join() as second:
        assert not first.comes(0)
        slots.give()
        assert not slots.take()
        assert not second.comes(0)
        assert first.comes(0)
        assert not first.comes(0)
    assert slots.take()
    assert not slots.take()


def test_who_leaves_the_line_passes_his_turn_on() -> None:
    slots, earlier = ThreadSlots(1), ExitStack()
    assert slots.take()
    earlier.enter_context(slots.join())
    with pytest.raises(KeyboardInterrupt), slots.join():
        raise KeyboardInterrupt
    assert not slots.wait(0)
    with slots.join() as later:
        slots.give()
        assert not later.comes(0)
        earlier.close()
        assert later.comes(0)
        later.keeps = True
    assert not slots.take()
    slots.give()
    assert slots.wait(0)


def test_no_turn_is_lost_or_doubled() -> None:
    slots, at_work, most = ThreadSlots(3), [0], [0]
    guard = threading.Lock()

    def work(number: int) -> int:
        had = 0
        for round in range(300):
            if slots.take() or slots.wait((0.0, 0.0005, 20.0)[(number + round) % 3]):
                with guard:
                    at_work[0] += 1
                    most[0] = max(most[0], at_work[0])
                time.sleep(0)
                with guard:
                    at_work[0] -= 1
                slots.give()
                had += 1
        return had

    with ThreadPoolExecutor(12) as threads:
        assert min(threads.map(work, range(12))) >= 100  # at least those who wait for long
    assert most[0] <= 3
    assert [slots.take() for _ in range(4)] == [True, True, True, False]
