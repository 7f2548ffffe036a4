"""What is SQLite's own: rows that equal the reference, leases on boot time, the disk, errors, processes, the fork."""

import asyncio
import itertools
import logging
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from solely.errors import InvalidInput, StoreError, StoreFull, StoreMisconfigured, StoreUnavailable, Unanswered
from solely.formats import write_watermark
from solely.model import Entry, LeasedItem, Released, State, item_key, line_key
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
from solely.stores import open_async_store, open_store
from solely.stores.memory import Memory
from solely.stores.sqlite import (
    SqliteStore,
    blocking,
    clock,
    connection,
    faults,
    health,
    session,
    shared_file,
    transactions,
)
from solely.stores.sqlite.aio import AsyncSqliteStore
from solely.stores.sqlite.clock import Readings
from solely.stores.sqlite.statements import SQL
from solely.stores.sqlite.sweep import EVERY
from solely.stores.transitions import Now

HOUR = 3_600 * 1_000_000


class Host:
    """A machine whose clocks a test sets: it can reboot, and its wall clock can be set back."""

    def __init__(self) -> None:
        self.boot = 1
        self.lease = 5_000_000_000
        self.wall = 1_700_000_000_000_000
        self._ticks = itertools.count()

    def readings(self) -> Readings:
        return Readings(
            f"boot-{self.boot}", lambda: self.lease, lambda: self.wall, lambda: self.lease + next(self._ticks)
        )

    def pass_time(self, seconds: float) -> None:
        self.lease += round(seconds * 1e6)
        self.wall += round(seconds * 1e6)

    def reboot(self, seconds: float = 30.0) -> None:
        self.boot += 1
        self.lease = 1_000_000
        self.wall += round(seconds * 1e6)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "solely.sqlite3")


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def opened(path: str, host: Host) -> Iterator[Callable[[], SqliteStore]]:
    """Opens the store as a process of the host would now; all are closed at the end."""
    stores: list[SqliteStore] = []

    def open_now() -> SqliteStore:
        stores.append(SqliteStore(path, host.readings(), 2.0))
        return stores[-1]

    yield open_now
    for store in stores:
        store.close()


def one(store: SqliteStore, op: Op) -> Any:
    (reply,) = store.perform([op])
    if isinstance(reply, StoreError):
        raise reply
    return reply


# -- the same as the reference


def random_op(chance: random.Random, fences: list[int]) -> Op:
    key = f"claim/{chance.randrange(4)}"
    mark = f"mark/{chance.randrange(3)}"
    owner, client = f"o{chance.randrange(4)}", chance.choice(["", "", "c1", "c2", "c3"])
    queue, id = f"q/{chance.randrange(2)}%", f"i/{chance.randrange(4)}"
    ttl = chance.choice([0.5, 1.0, 5.0, 30.0])
    later = chance.choice([0.0, 0.0, 0.25, 2.0])
    some = bytes([chance.randrange(256)])
    flag = chance.random() < 0.3
    any_key = chance.choice([key, mark, "watermark/w"])
    ops: list[Op] = [
        Acquire(key, owner, ttl, "info", client, later, "finger", flag, not flag),
        Acquire(key, owner, ttl, client=client),
        Acquire(key, owner, ttl),
        Release(key, owner),
        Release(key, owner),
        Release(key, owner, revoke=True),
        Release(key, owner, keep=3.0),
        Release(key, owner, delay=2.0),
        Release(chance.choice([key, mark]), owner, flag, later, chance.choice([0.0, 3.0])),
        Renew(key, owner, ttl),
        Finish(key, owner, b"b" + some, ttl),
        Mark(mark, owner, ttl),
        Read(any_key),
        Clear(any_key, chance.choice(fences or [1]), "why"),
        Advance("watermark/w", write_watermark(some[0])),
        Hit(f"hits/{chance.randrange(2)}", owner, chance.randrange(1, 4), 2.0),
        Push(queue, id, some, later),
        Take(queue, owner, ttl, chance.choice(["", "", id]), client),
        Release(line_key(queue), owner),
        Read(line_key(queue)),
        Take(queue, owner, ttl),
        Ack(queue, id, owner),
        Return(queue, id, owner, later, flag),
        Renew(item_key(queue, id), owner, ttl),
        Count(queue),
        Amend(queue, id, chance.choice([None, b"amended"]), chance.choice([some, b"amended"])),
    ]  # fmt: skip
    return chance.choice(ops)


def random_exchange(chance: random.Random) -> list[Op]:
    """Plain releases and acquires: of keys that are free or held by one of few, so that often all of it succeeds."""
    keys = [f"lock/{number}" for number in range(10)]
    old = [Release(key, f"o{chance.randrange(2)}") for key in chance.sample(keys, chance.choice([0, 2, 5]))]
    new = [
        Acquire(key, f"o{chance.randrange(2)}", chance.choice([5.0, 30.0]), "info", chance.choice(["", "c1"]))
        for key in chance.sample(keys, chance.choice([0, 2, 5]))
    ]
    return [*old, *new] or [Read("lock/0")]


def random_batch(chance: random.Random, fences: list[int]) -> list[Op]:
    if chance.random() < 0.3:
        return random_exchange(chance)
    batch: list[Op] = []
    for _ in range(chance.choice([1, 1, 1, 2, 5, 12])):
        batch.append(random_op(chance, fences))
        if isinstance(batch[-1], Hit) and chance.random() < 0.3:
            batch.append(
                Unhit(batch[-1].key, batch[-1].owner)
            )  # at once: of one out of its window the reference may say either
    return batch


class Twins:
    """A reference and a store under test at one injected clock, with fences of one compared to fences of the other."""

    def __init__(self, store: SqliteStore, host: Host) -> None:
        self.host, self.store = host, store
        self.memory = Memory(max_size=10**6)
        self.memory.now = lambda: Now(host.lease, host.wall)  # type: ignore[method-assign]
        self.fences: dict[int, int] = {}
        self.told: tuple[list[Any], list[Any]] = ([], [])

    def listen(self, client: str) -> None:
        self.memory.listeners[client] = lambda key: self.told[0].append((client, key))
        self.store._shared_file.listeners[client] = lambda key: self.told[1].append((client, key))

    def translated(self, op: Op) -> Op:
        return op._replace(fence=self.fences[op.fence]) if isinstance(op, Clear) and op.fence in self.fences else op

    def step(self, batch: list[Op]) -> None:
        expected = self.memory.perform(batch)
        got = self.store.perform([self.translated(op) for op in batch])
        assert self.bare(got) == self.bare(expected), batch
        for ours, theirs in zip(expected, got, strict=True):
            if isinstance(ours, Entry | LeasedItem) and isinstance(theirs, Entry | LeasedItem):
                self.same_fence(ours.fence, theirs.fence)
        assert self.told[0] == self.told[1]

    def same_fence(self, expected: int, got: int) -> None:
        """Equal fences stand for equal ones, and greater for greater."""
        if expected and got and self.fences.setdefault(expected, got) == got:
            order = sorted(self.fences)
            assert [self.fences[f] for f in order] == sorted(self.fences.values())
        else:
            assert expected == got == 0

    def bare(self, replies: list[Any]) -> list[Any]:
        return [r._replace(fence=0) if isinstance(r, Entry | LeasedItem) else r for r in replies]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("numbering", ["clock", "counted"])
def test_replies_equal_the_reference_for_random_ops(path: str, host: Host, seed: int, numbering: str) -> None:
    chance = random.Random(seed)
    readings = host.readings()
    store = SqliteStore(path, readings if numbering == "clock" else readings._replace(tick=None), 2.0)
    twins = Twins(store, host)
    for client in ("c1", "c2", "c3"):
        twins.listen(client)
    for _ in range(250):
        twins.step(random_batch(chance, list(twins.fences)))
        host.pass_time(chance.choice([0.0, 0.0, 0.005, 0.015, 0.3, 1.0, 1.0, 20.0, 70.0]))
        if chance.random() < 0.1:
            assert twins.bare(store.scan("", "", 100)) == twins.bare(twins.memory.scan("", "", 100))
            store.close()
            store = twins.store = SqliteStore(path, store._readings, 2.0)
            for client in ("c1", "c2", "c3"):
                twins.listen(client)
    store.close()


@pytest.mark.parametrize("spoiler", [None, "lock/3"])
def test_an_exchange_looks_at_no_row_unless_one_of_its_keys_is_waited_for(
    host: Host, opened: Callable[[], SqliteStore], spoiler: str | None
) -> None:
    store = opened()
    keys = [f"lock/{number}" for number in range(10)]
    one(store, Acquire("lock/first", "me", 30))  # reserves fences
    said: list[str] = []
    store._idle[0]._connection.set_trace_callback(said.append)  # type: ignore[union-attr]
    taken = [
        entry for entry in store.perform([Acquire(key, "me", 30, "info") for key in keys]) if isinstance(entry, Entry)
    ]
    assert [entry.owner for entry in taken] == ["me"] * 10
    assert sorted(fences := [entry.fence for entry in taken]) == fences
    if spoiler is not None:
        one(store, Acquire(spoiler, "you", 30, client="c"))
    outcomes = store.perform([Release(key, "me") for key in keys])
    assert outcomes == [Released.RELEASED] * 10
    looks = [statement for statement in said if statement.startswith("SELECT state")]
    assert bool(looks) is (spoiler is not None)
    store._idle[0]._connection.set_trace_callback(None)  # type: ignore[union-attr]
    host.pass_time(1)
    assert [key for key in keys if one(store, Read(key)).state is not State.FREE] == []


def test_more_ops_than_a_batch_are_answered_in_order(opened: Callable[[], SqliteStore]) -> None:
    store = opened()
    assert store.perform([Mark(f"mark/{n % 300}", f"o{n}", 60.0) for n in range(600)]) == [True] * 300 + [False] * 300


def test_scan_pages_by_key(opened: Callable[[], SqliteStore]) -> None:
    store = opened()
    names = [f"mark/{n:04}" for n in range(700)]
    store.perform([Mark(name, "o", 60.0) for name in names])
    store.perform([Acquire("lock/x", "o", 60.0), Acquire("replay/x", "o", 60.0)])
    pages, after = [], ""
    while page := store.scan("mark/", after, 300):
        pages.append(page)
        after = page[-1].key
    assert [entry.key for page in pages for entry in page] == names
    assert [len(page) for page in pages] == [300, 300, 100]


def test_a_queue_is_taken_in_order_from_its_index(opened: Callable[[], SqliteStore], path: str) -> None:
    store = opened()
    store.perform([Push("q", f"{n:03}", b"x") for n in range(200)])
    assert [one(store, Take("q", f"o{n}", 60.0)).id for n in range(200)] == [f"{n:03}" for n in range(200)]
    with sqlite3.connect(path) as raw:
        for name, values in (("item_that_waits", ("q", 0)), ("item_of_owner", ("q", "o", 0))):
            plan = raw.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", values).fetchall()
            assert len(plan) == 1
            assert "INDEX solely_items_by_" in plan[0][3]
    raw.close()


def test_the_broom_looks_at_no_more_rows_than_its_stretch(opened: Callable[[], SqliteStore], path: str) -> None:
    one(opened(), Read("lock/a"))
    raw = sqlite3.connect(path)
    plan = raw.execute(f"EXPLAIN QUERY PLAN {SQL['sweep_look']}", ("", "x", 0, 0, 0)).fetchall()
    assert [step[3] for step in plan] == ["SEARCH solely_entries USING PRIMARY KEY (key>? AND key<?)"]
    raw.close()


# -- clocks


def test_a_reboot_voids_leases_but_not_what_must_last(opened: Callable[[], SqliteStore], host: Host) -> None:
    store = opened()
    store.perform([
        Acquire("lock/a", "o1", 3_600.0, delay=3_600.0),
        Acquire("lock/a", "o2", 60.0, client="dead"),
        Acquire("lock/closed", "o1", 60.0),
        Release("lock/closed", "o1", delay=3_600.0),
        Release("lock/revoked", "o9", revoke=True),
        Mark("mark/m", "o1", 600.0),
        Acquire("claim/c", "o1", 60.0),
        Finish("claim/c", "o1", b"bresult", 600.0),
        Advance("watermark/w", write_watermark(5)),
        Push("q", "first", b"1"),
        Push("q", "second", b"2"),
        Push("q", "third", b"3", delay=3_600.0),
    ])  # fmt: skip
    assert one(store, Take("q", "o1", 3_600.0)).id == "first"
    fence = one(store, Read("lock/a")).fence
    store.close()
    host.reboot()

    store = opened()
    granted = one(store, Acquire("lock/a", "o3", 5.0))
    assert (granted.owner, granted.waiters, granted.attempts) == ("o3", 0, 2)
    assert granted.fence > fence
    assert one(store, Acquire("lock/closed", "o3", 5.0)).owner == "o3"
    assert one(store, Acquire("lock/revoked", "o9", 5.0)).owner == "o9"
    assert one(store, Mark("mark/m", "o2", 5.0)) is False
    assert one(store, Read("claim/c")).value == b"bresult"
    assert one(store, Read("watermark/w")).value == write_watermark(5)
    # the taken one would have come back after an hour, so it stands behind the one that waits; all are there at once
    taken = [one(store, Take("q", f"t{n}", 5.0)) for n in range(3)]
    assert [item.id for item in taken] == ["second", "first", "third"]
    assert taken[1].attempts == 2


def test_a_second_process_of_the_same_boot_voids_nothing(opened: Callable[[], SqliteStore]) -> None:
    one(opened(), Acquire("lock/a", "o1", 60.0))
    assert one(opened(), Acquire("lock/a", "o2", 60.0)).owner == ""


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
def test_a_wall_clock_that_is_set_neither_revives_nor_expires_a_lease(
    opened: Callable[[], SqliteStore], host: Host, set_by: int
) -> None:
    store = opened()
    store.perform([Acquire("lock/live", "o1", 60.0), Acquire("lock/over", "o1", 1.0)])
    host.pass_time(2.0)
    host.wall += set_by
    assert one(store, Acquire("lock/live", "o2", 60.0)).left == 58.0
    assert one(store, Renew("lock/over", "o1", 60.0)).owner == ""


def test_fences_grow_through_reboots_with_a_clock_that_falls(opened: Callable[[], SqliteStore], host: Host) -> None:
    fences: list[int] = []
    for _ in range(5):
        store = opened()
        fences += [one(store, Acquire(f"lock/{n}", f"o{len(fences)}", 1.0)).fence for n in range(3)]
        store.close()
        host.reboot(-3_600.0)
    assert fences == sorted(set(fences))
    assert [f.level for f in opened().check() if f.subject == "fence"] == ["warning"]


def test_marks_expire_by_wall_time(opened: Callable[[], SqliteStore], host: Host) -> None:
    store = opened()
    assert one(store, Mark("mark/m", "o1", 600.0)) is True
    store.close()
    host.reboot(599.0)
    assert one(opened(), Mark("mark/m", "o2", 1.0)) is False
    host.pass_time(1.0)
    assert one(opened(), Mark("mark/m", "o3", 1.0)) is True


@pytest.mark.parametrize("set_by", [-2 * HOUR, 2 * HOUR])
@pytest.mark.parametrize("rebooted", [False, True])
def test_a_wall_clock_that_is_set_neither_prolongs_nor_shortens_what_is_kept(
    opened: Callable[[], SqliteStore], host: Host, set_by: int, rebooted: bool
) -> None:
    """A quiet window of five minutes became two hours when the clock was set back, and ended at once when it was set
    ahead. After a reboot the file knows only when it last granted something: a clock that is ahead cannot be told from
    a machine that was switched off, and one that is behind adds the time since that grant."""
    store = opened()
    store.perform([Mark("mark/m", "o1", 300.0), Acquire("reservation/r", "o1", 30.0)])
    store.perform([Finish("reservation/r", "o1", b"", 300.0), Hit("hits/r", "o1", 1, 300.0)])
    host.pass_time(100.0)
    host.wall += set_by
    if rebooted:
        host.reboot(0.0)
        store = opened()
    seen = one(store, Mark("mark/m", "o2", 1.0)) is False
    quiet = one(store, Acquire("reservation/r", "o2", 1.0)).owner == ""
    limited = not one(store, Hit("hits/r", "o2", 1, 300.0)).allowed
    assert [seen, quiet, limited] == [not (rebooted and set_by > 0)] * 3
    host.pass_time(301.0 if rebooted else 201.0)
    assert one(store, Mark("mark/m", "o3", 1.0)) is True
    assert one(store, Acquire("reservation/r", "o3", 1.0)).owner == "o3"
    assert one(store, Hit("hits/r", "o3", 1, 300.0)).allowed


def test_without_a_boot_clock_what_is_kept_never_lasts_longer_than_the_clock_was_set_back(
    path: str, host: Host
) -> None:
    readings = Readings("", lambda: host.wall, lambda: host.wall, None, goes_back=True)
    store = SqliteStore(path, readings, 2.0)
    store.perform([Mark("mark/m", "o1", 300.0)])
    host.wall += 301_000_000
    assert one(store, Mark("mark/m", "o2", 300.0)) is True
    host.wall -= HOUR
    store.close()
    store = SqliteStore(path, readings, 2.0)
    assert one(store, Mark("mark/m", "o3", 300.0)) is False
    host.wall += HOUR + 301_000_000
    assert one(store, Mark("mark/m", "o4", 300.0)) is True
    store.close()


def test_without_a_boot_clock_the_lease_clock_never_goes_back(path: str, host: Host) -> None:
    def opened() -> SqliteStore:
        return SqliteStore(path, Readings("", lambda: host.wall, lambda: host.wall, None, goes_back=True), 2.0)

    store = opened()
    store.perform([Acquire("lock/a", "o1", 10.0), Acquire("lock/b", "o1", 60.0)])
    host.wall += 11_000_000
    assert one(store, Acquire("lock/a", "o2", 10.0)).owner == "o2"
    store.close()
    host.wall -= HOUR
    store = opened()
    assert one(store, Renew("lock/a", "o1", 10.0)).owner == ""
    assert one(store, Acquire("lock/b", "o2", 10.0)).left == 49.0
    fence = one(store, Acquire("lock/c", "o1", 10.0)).fence
    host.wall -= HOUR
    assert one(store, Acquire("lock/d", "o1", 10.0)).fence == fence + 1
    store.close()


def test_the_offset_of_a_time_namespace_is_taken_off(tmp_path: Path) -> None:
    (tmp_path / "ns").mkdir()
    (tmp_path / "ns/time").symlink_to("time:[1]")
    (tmp_path / "ns/time_for_children").symlink_to("time:[1]")
    (tmp_path / "timens_offsets").write_text("monotonic  5 0\nboottime  -86400  500000000\n")
    assert clock.namespace_offset(tmp_path) == -86_399_500_000
    assert clock.namespace_offset(tmp_path / "absent") == 0
    (tmp_path / "ns/time_for_children").unlink()
    (tmp_path / "ns/time_for_children").symlink_to("time:[2]")
    assert clock.namespace_offset(tmp_path) == 0


def test_the_hosts_own_clocks(path: str) -> None:
    readings = clock.readings()
    assert abs(readings.wall() / 1e6 - time.time()) < 60
    if sys.platform == "linux":
        assert len(readings.boot_id) == 36
        assert readings.tick is not None
        assert abs(readings.lease() / 1e6 - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60


# -- the disk

SYNC_SCRIPT = """
import sys
from solely.stores import open_store
from solely.ops import *
store = open_store(sys.argv[1])
store.perform([Read("lock/x")])
def phase(name):
    sys.stderr.write(name); sys.stderr.flush()
phase("BEGIN-LEASES")
for n in range(20):
    store.perform([Acquire(f"lock/{n}", "o", 60.0), Acquire(f"lock/x{n}", "o", 60.0)])
    store.perform([Acquire("lock/alone", "o", 60.0)])
    store.perform([Release("lock/alone", "o")])
    store.perform([Take("q", "o", 60.0)])
phase("BEGIN-MARKS")
for n in range(20):
    store.perform([Mark(f"mark/{n}", "o", 60.0)])
phase("BEGIN-SEEN")
for n in range(20):
    store.perform([Mark(f"mark/{n}", "p", 60.0)])
phase("BEGIN-UNMARK")
for n in range(20):
    store.perform([Release(f"mark/{n}", "o")])
phase("BEGIN-END")
store.close()
"""


def strace_works() -> bool:
    try:
        return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, timeout=10).returncode == 0
    except OSError:
        return False


if strace_works():  # where the kernel cannot be watched, the test below this one stands alone

    def test_a_mark_waits_for_the_disk_and_a_lease_does_not(path: str, tmp_path: Path) -> None:
        trace = tmp_path / "trace"
        watch = ["strace", "-f", "-e", "trace=fsync,fdatasync,write", "-o", str(trace)]
        run = [sys.executable, "-c", SYNC_SCRIPT, f"sqlite:///{path}"]
        subprocess.run([*watch, *run], check=True, capture_output=True, timeout=50)
        syncs, phase = dict[str, int](), ""
        for line in trace.read_text().splitlines():
            if "BEGIN-" in line:
                phase = line.split("BEGIN-")[1].split('"')[0]
            elif "sync(" in line:
                syncs[phase] = syncs.get(phase, 0) + 1
        assert syncs.get("LEASES", 0) <= 1  # the head of a new WAL
        assert syncs["MARKS"] == 20
        assert "SEEN" not in syncs
        assert syncs["UNMARK"] == 20


def test_the_setting_in_effect_at_each_commit(path: str, host: Host) -> None:
    """FULL for a batch that has anything durable in it, NORMAL for leases, FULL again for a mark taken back."""
    store = SqliteStore(path, host.readings(), 2.0)
    one(store, Read("lock/x"))
    connection = store._idle[0]._connection
    assert connection is not None

    def level_after(*ops: Op) -> int:
        store.perform(ops)
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    full, normal = 2, 1
    assert level_after(Acquire("lock/a", "o", 9.0)) == normal
    for op in (
        Mark("mark/a", "o", 9.0), Finish("claim/a", "o", b"b", 9.0), Push("q", "i", b""),
        Advance("watermark/a", write_watermark(1)), Hit("hits/a", "o", 1, 1.0), Unhit("hits/a", "o"),
        Clear("lock/a", 1, ""), Return("q", "i", "o"), Ack("q", "j", "o"),
        Amend("q", "i", b"", b"p"),
    ):  # fmt: skip
        assert level_after(op, Acquire("lock/b", "o", 9.0)) == full, op
        assert level_after(Take("q", "o", 9.0), Acquire("lock/b", "p", 9.0)) == normal
    assert level_after(Release("mark/a", "o")) == full
    store.close()


def test_the_broom_forgets_what_is_over_and_nothing_else(
    opened: Callable[[], SqliteStore], host: Host, path: str
) -> None:
    store = opened()
    store.perform([Mark(f"mark/{n:03}", "o", 1.0 if n % 2 else 9_999_999.0) for n in range(400)])
    store.perform([Hit(f"hits/{n}", "o", 1, 1.0) for n in range(50)])
    store.perform([Advance("watermark/a", write_watermark(1)), Push("q", "i", b"")])
    host.pass_time(4_000.0)
    for _ in range(12):
        store.perform([Read("lock/none")] * EVERY)
    store.close()
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM solely_entries").fetchone() == (202,)
    assert raw.execute("SELECT count(*) FROM solely_hits").fetchone() == (0,)
    raw.close()


# -- errors: each a clear StoreError, never a grant


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite://host/path", "sqlite:///x?y=1", "sqlite:///:memory:"]
)
def test_a_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="names no file"):
        open_store(url)


def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = open_store("sqlite:///some%20file.db"), open_store(f"sqlite:///{tmp_path}/some file.db")
    relative.perform([Mark("mark/m", "o", 60.0)])
    assert absolute.perform([Mark("mark/m", "p", 60.0)]) == [False]
    relative.close()
    absolute.close()


def test_a_missing_folder_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match="folder does not exist"):
        open_store(f"sqlite:///{tmp_path}/absent/x.db")
    with pytest.raises(StoreMisconfigured, match="is a folder"):
        open_store(f"sqlite:///{tmp_path}")


def failure(store: Any, op: Op) -> StoreError:
    (reply,) = store.perform([op])
    assert isinstance(reply, StoreError), reply
    return reply


@pytest.mark.parametrize("op", [Acquire("lock/a", "o", 1.0), Mark("mark/a", "o", 1.0), Read("lock/a")])
def test_a_file_that_is_no_database_is_named_and_left_alone(path: str, op: Op) -> None:
    Path(path).write_bytes(b"important text, not a database" * 100)
    store = open_store(f"sqlite:///{path}")
    assert "is not an SQLite database" in str(failure(store, op))
    store.close()
    assert Path(path).read_bytes() == b"important text, not a database" * 100


def test_another_programs_database_is_left_alone(path: str) -> None:
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE entries (precious)")
    raw.close()
    store = open_store(f"sqlite:///{path}")
    assert "another program" in str(failure(store, Acquire("lock/a", "o", 1.0)))
    store.close()


def test_a_newer_schema_is_refused(path: str, opened: Callable[[], SqliteStore]) -> None:
    one(opened(), Read("lock/a"))
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    assert "upgrade Solely" in str(failure(opened(), Read("lock/a")))


def test_a_corrupt_file_is_named(path: str, opened: Callable[[], SqliteStore]) -> None:
    store = opened()
    store.perform([Mark(f"mark/{n}", "o" * 100, 60.0) for n in range(2_000)])
    store.close()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(os.path.getsize(path) - 4096))
    store = opened()
    for op in (Acquire("lock/a", "o", 1.0), Mark("mark/5", "p", 1.0)):
        assert "corrupt" in str(failure(store, op))


def test_a_read_only_file_is_named(path: str, opened: Callable[[], SqliteStore]) -> None:
    """As SQLite sees it, whoever runs the test: root may write to any file."""
    store = opened()
    one(store, Read("lock/a"))
    connection = store._idle[0]._connection
    assert connection is not None
    connection.execute("PRAGMA query_only = 1")
    batches: list[list[Op]] = [[Acquire("lock/a", "o", 1.0)], [Mark("mark/a", "o", 1.0), Read("mark/a")]]
    for ops in batches:
        reply = store.perform(ops)[0]
        assert isinstance(reply, StoreMisconfigured)
        assert "read-only" in str(reply)


def test_a_full_disk_is_named_and_nothing_is_half_done(path: str, opened: Callable[[], SqliteStore]) -> None:
    store = opened()
    one(store, Acquire("lock/mine", "o", 60.0))
    connection = store._idle[0]._connection
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    replies = store.perform([Push("q", "big", b"x" * 100_000), Mark("mark/m", "o", 60.0), Release("lock/mine", "o")])
    assert isinstance(replies[0], StoreFull)
    assert "disk is full" in str(replies[0])
    assert replies[1:] == [True, Released.RELEASED]  # each stands or fails alone
    assert one(store, Take("q", "o", 1.0)) is None
    assert isinstance(failure(store, Push("q", "big", b"x" * 100_000)), StoreFull)


FULL_DISK_SCRIPT = """
import resource, signal, sys
from solely.errors import StoreError
from solely.stores import open_store
from solely.ops import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_store(sys.argv[1])
assert store.perform([Mark("mark/before", "o", 600.0)]) == [True]
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
done = failed = 0
for n in range(400):
    try:
        reply, = store.perform([Mark(f"mark/{n}", "x" * 32, 600.0)])
    except StoreError as error:
        reply = error
    if isinstance(reply, StoreError):
        failed += 1
    else:
        assert reply is True, n  # also after a failure, should a checkpoint have made room
        done += 1
assert failed and done, (failed, done)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert store.perform([Mark("mark/after", "o", 600.0)]) == [True]
seen = sum(e.key != "mark/before" and e.key != "mark/after" for e in store.scan("mark/", "", 1000))
assert seen == done, (seen, done)
store.close()
"""


def test_a_file_that_cannot_grow_gives_errors_and_recovers(path: str) -> None:
    """The kernel refuses the writes: what was answered first is there afterwards, and nothing else."""
    subprocess.run([sys.executable, "-c", FULL_DISK_SCRIPT, f"sqlite:///{path}"], check=True, timeout=50)


def test_locked_beyond_the_timeout_is_unavailable(path: str, host: Host) -> None:
    store = SqliteStore(path, host.readings(), 0.05)
    one(store, Acquire("lock/mine", "o", 60.0))
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    for ops in ([Acquire("lock/a", "o", 1.0)], [Mark("mark/m", "o", 1.0)], [Renew("lock/mine", "o", 1.0)] * 2):
        with pytest.raises(StoreUnavailable, match="locked") as caught:
            store.perform(ops)
        assert not isinstance(caught.value, Unanswered)
    assert one(store, Read("lock/mine")).state is State.HELD  # reading waits for nobody
    raw.execute("ROLLBACK")
    raw.close()
    assert one(store, Acquire("lock/a", "o", 1.0)).owner == "o"
    store.close()


def test_a_disk_error_at_commit_is_told_as_unknown() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with pytest.raises(Unanswered, match="may or may not"):
        faults.doubt("x", error)
    assert not isinstance(faults.explain("x", error), StoreUnavailable)
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    faults.doubt("x", error)


def test_a_closed_store_says_so(opened: Callable[[], SqliteStore]) -> None:
    store = opened()
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.perform([Read("lock/a")])


def test_close_does_not_wait_for_ever_for_a_call_under_way(
    path: str, host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one that was interrupted by the signal handler that closes: it goes on only after the handler."""
    monkeypatch.setattr(blocking, "CLOSE_PATIENCE", 0.2)
    store = SqliteStore(path, host.readings(), 0.1)
    store.perform([Read("lock/a")])
    idle, busy = store._session(), store._session()
    busy.perform([Read("lock/a")])
    closing = threading.Thread(target=store.close, daemon=True)
    with busy.lock, caplog.at_level(logging.WARNING, "solely"):
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["sqlite_not_closed"]
    assert idle._connection is None
    assert busy._connection is not None
    store.close()
    assert busy._connection is None


def test_what_cannot_be_stored_fails_alone(opened: Callable[[], SqliteStore]) -> None:
    bad, good = opened().perform([Mark("mark/\ud800", "o", 60.0), Mark("mark/good", "o", 60.0)])
    assert isinstance(bad, StoreError)
    assert good is True


# -- threads, tasks and processes


def test_a_waiters_repeated_look_takes_no_write_lock(path: str, host: Host) -> None:
    holder, waiter = SqliteStore(path, host.readings(), 0.05), SqliteStore(path, host.readings(), 0.05)
    one(holder, Acquire("lock/a", "o", 60.0))
    assert one(waiter, Acquire("lock/a", "w", 60.0, client="c")).waiters == 1
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        assert one(waiter, Acquire("lock/a", "w", 60.0, client="c")).waiters == 1
    with pytest.raises(StoreUnavailable):  # a newer attempt takes the place in the queue: that is a change
        one(waiter, Acquire("lock/a", "w2", 60.0, client="c"))
    raw.execute("ROLLBACK")
    raw.close()
    holder.close()
    waiter.close()


async def test_handles_of_one_process_tell_each_other(path: str) -> None:
    blocking, waiting = open_store(f"sqlite:///{path}"), open_async_store(f"sqlite:///{path}")
    told: list[str] = []
    waiting.listen(told.append)
    assert blocking.polls
    assert waiting.polls
    blocking.perform([Acquire("lock/a", "o", 60.0)])
    await waiting.perform([Acquire("lock/a", "w", 60.0, client=waiting.client)])
    blocking.perform([Release("lock/a", "o")])
    assert told == ["lock/a"]
    await waiting.close()
    blocking.close()


def test_threads_share_few_connections_and_leave_none_open(path: str) -> None:
    store = open_store(f"sqlite:///{path}")
    assert isinstance(store, SqliteStore)
    counts: list[int] = []

    def work(name: str) -> None:
        for n in range(20):
            (entry,) = store.perform([Acquire("lock/count", f"{name}-{n}", 60.0)])
            while entry.owner == "":  # type: ignore[union-attr]
                (entry,) = store.perform([Acquire("lock/count", f"{name}-{n}", 60.0)])
            counts.append(len(counts))
            store.perform([Release("lock/count", f"{name}-{n}")])

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert counts == list(range(160))
    assert 1 <= len(store._sessions) <= 8
    store.close()
    assert [session._connection for session in store._sessions] == [None] * len(store._sessions)
    assert not [fd for fd in os.listdir("/proc/self/fd") if path in _target(fd)]


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""


async def test_ops_that_pile_up_share_a_transaction(path: str) -> None:
    store = open_async_store(f"sqlite:///{path}")
    assert isinstance(store, AsyncSqliteStore)
    await store.perform([Read("lock/a")])
    assert store._ops is not None
    session = store._ops.session
    connection = session._connection
    assert connection is not None
    statements: list[str] = []
    with session.lock:  # the thread is busy
        first = store.perform([Mark("mark/first", "o", 60.0)])
        await asyncio.sleep(0.05)
        connection.set_trace_callback(statements.append)
        rest = [store.perform([Mark(f"mark/{n}", "o", 60.0), Mark(f"mark/{n}", "p", 60.0)]) for n in range(50)]
        rest[7].cancel()
    assert await first == [True]
    answers = await asyncio.gather(*rest, return_exceptions=True)
    connection.set_trace_callback(None)
    assert [a for n, a in enumerate(answers) if n != 7] == [[True, False]] * 49
    assert isinstance(answers[7], asyncio.CancelledError)
    assert await store.perform([Mark("mark/7", "q", 60.0)]) == [False]  # performed, though nobody awaited it
    assert [s for s in statements if s == "COMMIT"] == ["COMMIT"] * 2  # the first alone, then all the others
    await store.close()


async def test_an_error_reaches_every_awaiter_and_the_thread_lives_on(path: str) -> None:
    store = open_async_store(f"sqlite:///{path}", timeout=0.05)
    await store.perform([Read("lock/a")])
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    answers = await asyncio.gather(
        *(store.perform([Mark(f"mark/{n}", "o", 60.0)]) for n in range(5)), return_exceptions=True
    )
    assert [type(a) for a in answers] == [StoreUnavailable] * 5
    raw.execute("ROLLBACK")
    raw.close()
    assert await store.perform([Mark("mark/0", "o", 60.0)]) == [True]
    assert [e.key for e in await store.scan("mark/", "", 10)] == ["mark/0"]
    assert {f.subject for f in await store.check()} >= {"path", "journal", "version", "disk", "file system", "fence"}
    closing = store.perform([Mark("mark/last", "o", 60.0)])
    await store.close()
    assert await closing == [True]
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.perform([Read("lock/a")])


COUNT_SCRIPT = """
import sys
from solely.stores import open_store
from solely.ops import *
url, counter, name, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
store = open_store(url, timeout=20.0)
fences = []
for n in range(rounds):
    while True:
        entry, = store.perform([Acquire("lock/counter", f"{name}-{n}", 60.0)])
        if entry.owner: break
    value, last = open(counter).read().split()
    assert int(last) < entry.fence, "fences must grow"
    open(counter, "w").write(f"{int(value) + 1} {entry.fence}")
    assert store.perform([Release("lock/counter", f"{name}-{n}")]) == ["released"]
store.close()
"""


def run_all(script: str, arguments: list[list[str]], seconds: float = 50) -> None:
    """The script once per list of arguments, all at the same time; each must end well."""
    running = [subprocess.Popen([sys.executable, "-c", script, *each]) for each in arguments]
    try:
        assert [process.wait(seconds) for process in running] == [0] * len(running)
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_processes_that_increment_under_a_lock_lose_no_count(path: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0 0")
    run_all(COUNT_SCRIPT, [[f"sqlite:///{path}", str(counter), f"p{n}", "150"] for n in range(4)])
    assert counter.read_text().split()[0] == "600"


HAMMER_SCRIPT = """
import sys, time
from solely.stores import open_store
from solely.ops import *
store, name = open_store(sys.argv[1]), sys.argv[2]
end, n = time.monotonic() + 3.0, 0
while time.monotonic() < end:
    n += 1
    store.perform([Acquire(f"lock/{n % 7}", f"{name}-{n}", 0.001), Renew(f"lock/{n % 7}", f"{name}-{n}", 0.001)])
    store.perform([Acquire("lock/hot", f"{name}-{n}", 0.001, client=name)])
    store.perform([Release("lock/hot", f"{name}-{n}")])
store.close()
"""


def test_bug_13_four_processes_hammer_one_file_and_none_finds_it_locked(path: str) -> None:
    run_all(HAMMER_SCRIPT, [[f"sqlite:///{path}", f"p{n}"] for n in range(4)])


OPEN_SCRIPT = """
import sys
from solely.stores import open_store
from solely.ops import *
store = open_store(sys.argv[1])
assert len(store.perform([Mark("mark/m", sys.argv[2], 60.0), Read("lock/a")])) == 2
store.close()
"""


def test_processes_that_open_a_new_file_together_all_succeed(path: str) -> None:
    run_all(OPEN_SCRIPT, [[f"sqlite:///{path}", f"o{n}"] for n in range(6)])


KILLED_SCRIPT = """
import sys
from solely.stores import open_store
from solely.ops import *
store = open_store(sys.argv[1])
n = 0
while True:
    store.perform([Mark(f"mark/{n}", "o", 600.0), Push("q", f"{n}", b"x" * 3000)])
    print(n, flush=True)
    store.perform([Acquire(f"lock/{n}", "o", 600.0)])
    n += 1
"""


@pytest.mark.parametrize("attempt", range(3))
def test_kill_9_in_the_middle_of_writes_loses_nothing_that_was_answered(path: str, attempt: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", KILLED_SCRIPT, f"sqlite:///{path}"], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    answered = -1
    for _ in range(60 + 17 * attempt):
        answered = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    answered = max([answered, *(int(line) for line in writer.stdout.read().split())])
    writer.stdout.close()
    writer.wait(10)
    store = open_store(f"sqlite:///{path}")
    for n in range(answered + 1):
        assert store.perform([Mark(f"mark/{n}", "late", 60.0), Push("q", f"{n}", b"")]) == [False, False]
    store.close()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()


def test_a_forked_child_opens_its_own_connections(path: str) -> None:
    store = open_store(f"sqlite:///{path}")
    store.perform([Mark("mark/parent", "o", 60.0)])
    before = store.client
    child = os.fork()
    if child == 0:
        status = 1
        try:
            store.forked()
            replies = store.perform([Mark("mark/parent", "c", 60.0), Mark("mark/child", "c", 60.0)])
            status = 0 if replies == [False, True] and store.client != before else 2
            store.close()
        finally:
            os._exit(status)
    marked = [store.perform([Mark(f"mark/{n}", "o", 60.0)])[0] for n in range(50)]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert marked == [True] * 50
    assert store.perform([Mark("mark/child", "o", 60.0)]) == [False]
    store.close()


def test_a_fork_closes_the_connections_and_lets_the_parent_go_on(path: str) -> None:
    """SQLite's table of locks would be a lie in the child, so no connection may be open while it is copied."""
    store = open_store(f"sqlite:///{path}")
    store.perform([Acquire("lock/a", "o", 60.0)])
    report, tell = multiprocessing.Pipe(False)
    child = os.fork()
    if child == 0:
        tell.send([fd for fd in os.listdir("/proc/self/fd") if path in _target(fd)])
        os._exit(0)
    assert report.recv() == []
    os.waitpid(child, 0)
    assert store.perform([Release("lock/a", "o")]) == [Released.RELEASED]
    store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_leaves_a_connection_that_it_did_not_wait_for_alone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`opening` stays with the thread that connects, which releases it itself. The child may not open the file, and
    nor may it after a fork of its own."""
    monkeypatch.setattr(shared_file, "FORK_PATIENCE", 0.05)
    store = SqliteStore(path, clock.readings(), 5.0)
    connecting, forked, answers = threading.Event(), threading.Event(), list[Any]()

    def connect_slowly(*arguments: Any) -> Any:
        connecting.set()
        forked.wait(10)
        return connection.connect(*arguments)

    monkeypatch.setattr(transactions, "connect", connect_slowly)
    thread = threading.Thread(target=lambda: answers.extend(store.perform([Mark("mark/a", "o", 60.0)])))
    thread.start()
    connecting.wait(10)
    child = os.fork()
    if child == 0:
        os._exit(0 if is_refused(path) and in_a_child(lambda: is_refused(path)) and is_refused(path) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    forked.set()
    thread.join(10)
    assert answers == [True]
    store.close()


def is_refused(path: str) -> bool:
    """True if a new store on the file says that a fork has made it unusable here."""
    try:
        open_store(f"sqlite:///{path}").perform([Read("lock/a")])
    except StoreUnavailable as error:
        return "during the fork" in str(error)
    return False


def in_a_child(work: Callable[[], bool]) -> bool:
    """What the work answers in the child of a fork."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_connects_waits_for_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes its session's lock and then `opening`; a fork that took them the other way round met it half-way,
    and its child could not use the file."""
    store = SqliteStore(path, clock.readings(), 5.0)
    connecting, answers, connect = threading.Event(), list[Any](), session.Session._connect

    def connect_slowly(mine: session.Session) -> None:
        connecting.set()
        time.sleep(0.2)  # the fork begins meanwhile; should it begin later, the test passes all the same
        connect(mine)

    monkeypatch.setattr(session.Session, "_connect", connect_slowly)
    thread = threading.Thread(target=lambda: answers.extend(store.perform([Mark("mark/a", "o", 60.0)])))
    thread.start()
    connecting.wait(10)

    def child() -> bool:
        store.forked()
        return store.perform([Mark("mark/a", "c", 60.0), Mark("mark/b", "c", 60.0)]) == [False, True]

    assert in_a_child(child)
    thread.join(10)
    assert answers == [True]
    store.close()


BUSY_SCRIPT = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
held.execute("COMMIT")
"""


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_does_not_wait_for_a_transaction_of_another_process(path: str) -> None:
    store = SqliteStore(path, clock.readings(), 60.0)
    store.perform([Mark("mark/a", "o", 60.0)])
    other = subprocess.Popen([sys.executable, "-c", BUSY_SCRIPT, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    answers = list[Any]()
    thread = threading.Thread(target=lambda: answers.extend(store.perform([Mark("mark/b", "o", 60.0)])))
    thread.start()
    try:

        def child() -> bool:
            store.forked()
            return store.perform([Read("mark/a")])[0].state is State.DONE  # type: ignore[union-attr]

        for _ in range(5):
            assert in_a_child(child)
        assert answers == []
    finally:
        other.communicate(b"", 10)
        thread.join(60)
    assert answers == [True]
    store.close()


# -- a file that is removed or replaced while it is open


REPLACE_SCRIPT = """
import sys
from solely.stores import open_store
from solely.ops import *
store = open_store(sys.argv[1])
entry, = store.perform([Acquire("lock/a", "new", 60.0)])
assert entry.owner == "new"
store.close()
"""


def remove(path: str) -> None:
    for end in ("", "-wal", "-shm"):
        Path(path + end).unlink(missing_ok=True)


def test_a_file_that_was_replaced_is_left_for_the_one_at_the_path(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(path, clock.readings(), 2.0)
    held = one(store, Acquire("lock/mine", "o", 60.0))
    remove(path)
    run_all(REPLACE_SCRIPT, [[f"sqlite:///{path}"]])
    with monkeypatch.context() as patch:
        patch.setattr(session, "monotonic", lambda: time.monotonic() + session.LOOK_EVERY)
        with caplog.at_level(logging.WARNING, "solely"):
            assert one(store, Acquire("lock/a", "old", 60.0)).owner == ""
    assert [r.message.split(":")[0] for r in caplog.records] == ["sqlite_file_replaced"]
    assert one(store, Renew("lock/mine", "o", 60.0)).owner == ""  # what the old file held is lost, and it is told
    assert one(store, Acquire("lock/mine", "p", 60.0)).fence > held.fence
    store.close()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert raw.execute("SELECT owner FROM solely_entries WHERE key = 'lock/a'").fetchone() == ("new",)
    raw.close()


def test_check_tells_that_the_file_was_replaced_and_then_uses_the_new_one(path: str) -> None:
    store = SqliteStore(path, clock.readings(), 2.0)
    one(store, Mark("mark/a", "o", 60.0))
    assert [f.level for f in store.check() if f.subject == "path"] == ["ok"]
    remove(path)
    (finding,) = [f for f in store.check() if f.subject == "path"]
    assert finding.level == "error"
    assert "removed or replaced" in finding.text
    assert os.path.exists(path)
    assert one(store, Mark("mark/a", "o2", 60.0)) is True
    assert [f.level for f in store.check() if f.subject == "path"] == ["ok"]
    store.close()


def test_a_file_that_stays_is_looked_at_once_a_second_and_stays_open(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path, clock.readings(), 2.0)
    one(store, Mark("mark/a", "o", 60.0))
    looks, before = list[str](), store._sessions[0]._connection

    def look(path: str) -> Any:
        looks.append(path)
        return connection.file_at(path)

    monkeypatch.setattr(transactions, "file_at", look)
    start = now = time.monotonic()
    monkeypatch.setattr(session, "monotonic", lambda: now)
    for passed in (0.0, 0.1, 1.2, 1.3, 2.5):
        now = start + passed
        one(store, Acquire("lock/a", "o", 60.0))
    assert len(looks) == 2
    assert store._sessions[0]._connection is before
    store.close()


# -- check


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False),
        ((3, 45, 0), True), ((3, 50, 6), True), ((3, 50, 7), False), ((3, 51, 0), True), ((3, 51, 2), True),
        ((3, 51, 3), False), ((3, 52, 0), False), ((3, 53, 1), False),
    ],
)  # fmt: skip
def test_versions_that_have_the_wal_reset_bug(version: tuple[int, ...], has: bool) -> None:
    assert health.has_wal_reset_bug(version) is has


def test_the_wal_reset_bug_is_logged_once_with_the_version(caplog: pytest.LogCaptureFixture) -> None:
    health._logged.discard((3, 50, 4))
    with caplog.at_level(logging.WARNING, "solely"):
        for _ in range(3):
            health.log_wal_reset_bug((3, 50, 4))
            health.log_wal_reset_bug((3, 51, 3))
    (record,) = caplog.records
    assert record.message.startswith("sqlite_wal_reset_bug: SQLite 3.50.4 can")
    assert record.version == "3.50.4"  # type: ignore[attr-defined]


def test_check_tells_of_disk_and_file_system(tmp_path: Path) -> None:
    assert health._disk(health.LOW_DISK - 1).level == "warning"
    mounts = tmp_path / "mounts"
    mounts.write_text("a / ext4 rw 0 0\nb /net nfs4 rw 0 0\nc /net/local xfs rw 0 0\n")
    kinds = [health.file_system(path, str(mounts)) for path in ("/x", "/net/x", "/net/local/x", "/network/x")]
    assert kinds == ["ext4", "nfs4", "xfs", "ext4"]
    assert health.file_system("/x", str(tmp_path / "absent")) == ""
