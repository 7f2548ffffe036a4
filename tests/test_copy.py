"""Moving between stores: what is remembered arrives, what is held stays, and nothing newer is replaced."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from solely.copying import CopyFailure, CopyReport, Progress, copier, copy, copy_stores, plan
from solely.copying.__main__ import main
from solely.copying.plan import HOLD
from solely.copying.report import CopyOutcome
from solely.errors import InvalidInput, StoreError, StoreFailed, StoreUnavailable, Unanswered
from solely.fencing import FencedFile
from solely.formats import write_watermark
from solely.holder import Signature
from solely.model import Entry, LeasedItem, State, item_key
from solely.ops import Acquire, Advance, Finish, Mark, Op, Push, Read, Release, Reply, Return, Take
from solely.stores import Store, open_store
from solely.testing import ManualClock
from tests.conftest import STORES
from tests.servers import free_port

PAIRS = [
    pair
    for pair in (
        ("memory", "sqlite"), ("sqlite", "memory"), ("sqlite", "valkey"), ("valkey", "sqlite"), ("valkey", "postgres"),
        ("postgres", "valkey"), ("postgres", "mongo"), ("mongo", "postgres"), ("mongo", "sqlite"),
    )
    if set(pair) <= STORES.keys()
]  # fmt: skip
KEYS = ("x", "with space", "a:b:c", "*", "{tag}", "ключ", "鍵🔑", "%2F", "'\";--", "a\nb", "a/b/c", "k" * 480)
ALL_BYTES = bytes(range(256))
ONE = write_watermark(1)
SECRET = "5ec2e7" * 5 + "00"

MakeStore = Callable[..., Store]


@pytest.fixture
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Opens fresh stores by name, on an injected clock, and closes them at the end."""
    stores: list[Store] = []

    def make(name: str, clock: ManualClock | None = None) -> Store:
        sqlite = f"sqlite:///{tmp_path}/{len(stores)}.sqlite3"  # the table's own would be the same file twice
        stores.append(open_store(sqlite if name == "sqlite" else STORES[name](request), clock=clock))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def done(key: str, value: bytes, keep: float = 600, fingerprint: str = "", info: str = "") -> list[Op]:
    return [Acquire(key, SECRET, 30, fingerprint=fingerprint, info=info), Finish(key, SECRET, value, keep)]


def tell_all(store: Store, ops: Sequence[Op]) -> None:
    for start in range(0, len(ops), 128):
        replies = store.perform(ops[start : start + 128])
        assert not [reply for reply in replies if isinstance(reply, StoreError)]


def listed(store: Store) -> Iterator[Entry]:
    after = ""
    while page := store.scan("", after, 1_000):
        yield from page
        after = page[-1].key


def contents(store: Store) -> dict[str, tuple[object, ...]]:
    """All that a copy promises to bring of every entry; the time left is compared within 2 ms."""
    return {e.key: (e.state, pytest.approx(e.left, abs=0.002), e.value, e.fingerprint, e.info) for e in listed(store)}


def stock(store: Store) -> None:
    """Something of every sort that is remembered."""
    tell_all(store, [Mark(f"mark/{key}", SECRET, 100 + at) for at, key in enumerate(KEYS)])
    for at, key in enumerate(KEYS):
        tell_all(store, done(f"claim/{key}", b"b" + ALL_BYTES + key.encode(), 1_000 + at, f"print {at}", "who"))
    tell_all(store, [*done("claim/empty", b"b"), *done("reservation/quiet", b"", 300)])
    tell_all(store, [Advance(f"watermark/{key}", write_watermark(at)) for at, key in enumerate(KEYS)])
    tell_all(store, [Push(f"queue {key[:100]}", f"id/{key[:100]}", ALL_BYTES) for key in KEYS])
    tell_all(store, [Push("empty", "1", b"")])


def counts(report: CopyReport) -> tuple[int, int, int, int, int]:
    _, *five, _ = report.progress
    return tuple(five)  # type: ignore[return-value]


class Wrapped:
    """A store of which a test replaces some methods."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


# -- what arrives


@pytest.mark.parametrize(("source_name", "target_name"), PAIRS)
def test_all_that_is_remembered_arrives_and_a_second_run_changes_nothing(
    opened: MakeStore, clock: ManualClock, source_name: str, target_name: str
) -> None:
    source, target = opened(source_name, clock), opened(target_name, clock)
    stock(source)
    clock.advance(7.25)
    expected = contents(source)
    report = copy_stores(source, target, clock=clock)
    assert counts(report) == (len(expected), 0, 0, 0, 0)
    assert report.complete
    assert contents(target) == expected
    before = list(listed(target))
    again = copy_stores(source, target, clock=clock)
    assert counts(again) == (0, len(expected), 0, 0, 0)
    assert list(listed(target)) == before  # not even a fence has moved
    clock.advance(2_000)
    assert {entry.kind for entry in listed(target)} == {"watermark", "item"}


@pytest.mark.parametrize(("source_name", "target_name"), PAIRS)
def test_fences_do_not_go_back_when_a_lock_moves_to_a_store_that_was_in_use(
    opened: MakeStore, clock: ManualClock, tmp_path: Path, source_name: str, target_name: str
) -> None:
    """A guard has seen the fence of the last holder at the source; the next one holds the lock at the target."""
    source, target = opened(source_name, clock), opened(target_name, clock)
    target.perform([Acquire("lock/in-use", SECRET, 10)])
    clock.advance(2_487)
    guarded = FencedFile(tmp_path / "guarded")
    fences = []
    for store in (source, target):
        [held] = store.perform([Acquire("lock/moved", SECRET, 10)])
        assert isinstance(held, Entry)
        guarded.write(b"", fence=held.fence)
        fences.append(held.fence)
        store.perform([Release("lock/moved", SECRET)])
        copy_stores(source, target, clock=clock)
        clock.advance(1)
    assert fences[0] < fences[1]


def test_five_thousand_entries_go_round_all_stores(opened: MakeStore, request: pytest.FixtureRequest) -> None:
    first = opened("sqlite")
    tell_all(first, [Mark(f"mark/{at:04}", SECRET, 86_400) for at in range(3_000)])
    for start in range(0, 1_000, 100):
        tell_all(first, [op for at in range(start, start + 100) for op in done(f"claim/{at}", b"j%d" % at, 86_400)])
    tell_all(first, [Push("dead", f"{at:03}", b"%d" % at) for at in range(500)])
    tell_all(first, [Advance(f"watermark/{at}", write_watermark(at)) for at in range(500)])
    expected = {entry.key: (entry.state, entry.value) for entry in listed(first)}
    assert len(expected) == 5_000
    began, store = time.monotonic(), first
    for name in ("valkey", "postgres", "mongo", "sqlite"):
        if name not in STORES:
            continue
        told: list[Progress] = []
        target = opened(name)
        report = copy_stores(store, target, progress=told.append)
        assert counts(report) == (5_000, 0, 0, 0, 0)
        assert len(told) >= 5_000 // 128
        assert [step.seen for step in told] == sorted(step.seen for step in told)
        assert told[-1][:-1] == report.progress[:-1]
        assert report.progress.rate > 0
        assert {entry.key: (entry.state, entry.value) for entry in listed(target)} == expected
        store = target
    lefts = {entry.left for entry in listed(store) if entry.kind in ("mark", "claim")}
    assert 86_400 - (time.monotonic() - began) - 30 < min(lefts) <= max(lefts) < 86_400


def test_a_copied_claim_refuses_another_run_and_shows_its_result(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    tell_all(source, done("claim/order-1", b"breceipt", fingerprint="abc"))
    copy_stores(source, target, clock=clock)
    (entry,) = target.perform([Acquire("claim/order-1", "other", 30, fingerprint="abc", value=True)])
    assert isinstance(entry, Entry)
    assert (entry.state, entry.value, entry.fingerprint, entry.owner) == (State.DONE, b"breceipt", "abc", "")


def test_items_are_queued_in_their_order_with_their_delay(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("sqlite", clock)
    for id in ("z", "m", "a"):
        tell_all(source, [Push("jobs", id, id.encode())])
        clock.advance(1)
    tell_all(source, [Push("jobs", "later", b"", delay=60)])
    tell_all(source, [Take("jobs", SECRET, 5), Return("jobs", "z", SECRET)])
    assert counts(copy_stores(source, target, clock=clock)) == (4, 0, 0, 0, 0)

    def take(owner: str) -> LeasedItem | None:
        (item,) = target.perform([Take("jobs", owner, 600)])
        assert item is None or isinstance(item, LeasedItem)
        return item

    assert [(item.id, item.payload, item.attempts) for item in map(take, "123") if item] == [
        ("z", b"z", 1), ("m", b"m", 1), ("a", b"a", 1),
    ]  # fmt: skip
    assert take("4") is None
    clock.advance(60)
    later = take("4")
    assert later is not None
    assert later.id == "later"


# -- what stays behind


def test_held_leases_are_left_behind_and_listed_without_their_owners(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    info = Signature().info("deploy")
    tell_all(source, [Acquire("lock/held", SECRET, 30, info=info), Acquire("claim/running", SECRET, 60)])
    tell_all(source, [Acquire("lock/closed", "x", 30), Release("lock/closed", "x", delay=5)])
    tell_all(source, [Push("jobs", "taken", b"secret payload"), Take("jobs", SECRET, 90), Mark("mark/m", SECRET, 9)])
    report = copy_stores(source, target, clock=clock)
    assert counts(report) == (1, 0, 0, 4, 0)
    assert report.complete
    assert {(left.key, left.state, left.left) for left in report.left_behind} == {
        ("lock/held", "held", 30.0),
        ("claim/running", "held", 60.0),
        ("lock/closed", "closed", 5.0),
        (item_key("jobs", "taken"), "held", 90.0),
    }
    (held,) = [left for left in report.left_behind if left.key == "lock/held"]
    assert "(deploy)" in held.holder
    assert f"left behind: 'lock/held' held for 30.0 s more, by {held.holder}" in str(report)
    assert [entry.key for entry in listed(target)] == ["mark/m"]
    for text in (repr(report), str(report), repr(list(listed(target)))):
        assert SECRET not in text
        assert "secret payload" not in text


def test_the_owner_of_the_source_is_a_stranger_at_the_target(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    tell_all(source, [Mark("mark/m", SECRET, 60), *done("claim/c", b"bv")])
    copy_stores(source, target, clock=clock)
    target.perform([Release("mark/m", SECRET)])
    assert target.perform([Mark("mark/m", SECRET, 60)]) == [False]
    (claim,) = target.perform([Acquire("claim/c", SECRET, 60)])
    assert isinstance(claim, Entry)
    assert (claim.state, claim.owner) == (State.DONE, "")


# -- nothing newer is replaced


@pytest.mark.parametrize("target_name", [name for name in STORES if name in ("sqlite", "valkey", "postgres", "mongo")])
def test_what_the_target_has_stays(opened: MakeStore, clock: ManualClock, target_name: str) -> None:
    source, target = opened("memory", clock), opened(target_name, clock)
    tell_all(source, [Mark("mark/m", "s", 1_000), *done("claim/done", b"bold"), *done("claim/held", b"bold")])
    tell_all(source, [Advance(f"watermark/{name}", write_watermark(5)) for name in ("ahead", "behind")])
    tell_all(target, [Mark("mark/m", "t", 10), *done("claim/done", b"bnew"), Acquire("claim/held", "t", 20)])
    tell_all(target, [Advance("watermark/ahead", write_watermark(7)), Advance("watermark/behind", write_watermark(3))])
    for store, payload in ((source, b"old"), (target, b"new")):
        tell_all(store, [Push("jobs", "1", payload)])
    expected = contents(target)
    foreseen = copy_stores(source, target, clock=clock, dry_run=True)
    assert contents(target) == expected
    report = copy_stores(source, target, clock=clock)
    assert counts(report) == counts(foreseen) == (1, 5, 0, 0, 0)
    expected["watermark/behind"] = (State.DONE, float("inf"), write_watermark(5), "", "")
    assert contents(target) == expected
    (renewed,) = target.perform([Finish("claim/held", "t", b"bmine", 60)])
    assert isinstance(renewed, Entry)
    assert renewed.owner == "t"


def test_a_key_that_is_closed_at_the_target_is_a_failure_to_be_repeated(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    tell_all(source, done("claim/c", b"bv"))
    tell_all(target, [Acquire("claim/c", "t", 30), Release("claim/c", "t", delay=5)])
    for dry_run in (True, False):
        report = copy_stores(source, target, clock=clock, dry_run=dry_run)
        assert counts(report) == (0, 0, 0, 0, 1)
        assert "closed for 5.0 s more" in report.failures[0].reason
    clock.advance(5)
    assert counts(copy_stores(source, target, clock=clock)) == (1, 0, 0, 0, 0)


def test_a_store_copied_onto_itself_does_not_change(opened: MakeStore, clock: ManualClock) -> None:
    store = opened("sqlite", clock)
    stock(store)
    before = list(listed(store))
    assert counts(copy_stores(store, store, clock=clock)) == (0, len(before), 0, 0, 0)
    assert list(listed(store)) == before


# -- time


def test_the_time_under_way_is_taken_off(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    tell_all(source, [Mark("mark/short", "s", 3), Mark("mark/long", "s", 60), *done("claim/c", b"bv", 60)])
    expected = {"mark/long", "claim/c"}

    class Slow(Wrapped):
        def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
            page = self._store.scan(prefix, after, limit)
            clock.advance(3)
            return page

    report = copy_stores(Slow(source), target, clock=clock)
    assert counts(report) == (2, 0, 1, 0, 0)
    clock_left = {entry.key: entry.left for entry in listed(source)}
    assert {entry.key: entry.left for entry in listed(target)} == clock_left
    assert clock_left.keys() == expected


def test_an_unanswered_batch_is_repeated_with_the_time_then_left(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    tell_all(source, [Mark("mark/m", "s", 60), *done("claim/c", b"bv", 60)])

    class Lossy(Wrapped):
        calls = 0

        def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
            self.calls += 1
            clock.advance(2)
            if self.calls == 1:  # lost on the way there
                raise Unanswered("no answer")
            replies = self._store.perform(ops)
            if self.calls in (2, 4):  # lost on the way back
                raise Unanswered("no answer")
            return replies

    lossy = Lossy(target)
    assert counts(copy_stores(source, lossy, clock=clock)) == (2, 0, 0, 0, 0)
    assert lossy.calls == 5
    for there, here in zip(listed(target), listed(source), strict=True):
        assert there.value == here.value
        assert here.left <= there.left <= here.left + 2  # at most by the time that one request was under way


# -- killed and run again


@pytest.mark.parametrize("target_name", [name for name in STORES if name in ("sqlite", "valkey", "postgres", "mongo")])
@pytest.mark.parametrize("pause", [0.0, HOLD + 1, HOLD + 100])
def test_a_copy_killed_between_its_two_steps_goes_on(
    opened: MakeStore, clock: ManualClock, target_name: str, pause: float
) -> None:
    source, target = opened("memory", clock), opened(target_name, clock)
    tell_all(source, [*done("claim/a", b"j1"), *done("claim/b", b"j2", fingerprint="f")])
    tell_all(source, [Advance("watermark/w", write_watermark(3))])

    class Killed(Wrapped):
        def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
            if any(isinstance(op, Finish) for op in ops):
                raise KeyboardInterrupt
            return self._store.perform(ops)

    with pytest.raises(KeyboardInterrupt):
        copy_stores(source, Killed(target), clock=clock)
    assert [entry.state for entry in target.scan("claim/", "", 9)] == [State.HELD, State.HELD]
    clock.advance(pause)
    assert counts(copy_stores(source, target, clock=clock)) == (3, 0, 0, 0, 0)
    assert contents(target) == contents(source)


def test_a_copy_killed_with_sigkill_is_run_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source_url, target_url = f"sqlite:///{tmp_path}/source.sqlite3", STORES["valkey"](request)
    command = [sys.executable, "-m", "solely.copying", source_url, target_url]
    with closing(open_store(source_url)) as source, closing(open_store(target_url)) as target:
        for start in range(0, 2_000, 50):
            tell_all(source, [op for at in range(start, start + 50) for op in done(f"claim/{at}", b"j%d" % at, 86_400)])
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends = time.monotonic() + 30
        first_pages = [f"claim/{at}" for at in sorted(map(str, range(2_000)))[:400:50]]
        while not any(
            isinstance(e, Entry) and e.state is State.DONE for e in target.perform(list(map(Read, first_pages)))
        ):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < ends
        process.kill()
        assert process.wait(10) == -9
        part = sum(entry.state is State.DONE for entry in listed(target))
        assert 0 < part < 2_000
        done_again = subprocess.run(command, capture_output=True, text=True, timeout=50)
        assert done_again.returncode == 0, done_again.stderr
        assert f"{2_000 - part:,} copied, {part:,} kept, 0 expired, 0 left behind, 0 failed" in done_again.stdout
        expected = {entry.key: (entry.state, entry.value) for entry in listed(source)}
        assert {entry.key: (entry.state, entry.value) for entry in listed(target)} == expected


# -- what goes wrong


def test_what_a_full_target_refuses_is_listed_and_the_rest_goes_on(opened: MakeStore) -> None:
    source = opened("memory")
    tell_all(source, [Advance(f"watermark/{at}", write_watermark(1)) for at in range(8)])
    tell_all(source, [Acquire(f"lock/{at}", SECRET, 30) for at in range(2)])
    target = open_store("memory://?max_size=5")
    report = copy_stores(source, target)
    assert counts(report) == (5, 0, 0, 2, 3)
    assert not report.complete
    assert all("max_size=5" in failure.reason for failure in report.failures)
    assert len(list(listed(target))) == 5


def test_one_entry_that_spoils_its_batch_fails_alone(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    tell_all(
        source, [*[Mark(f"mark/{at}", "s", 60) for at in range(9)], *done("claim/bad", b"b"), *done("claim/c", b"b")]
    )

    class Strict(Wrapped):
        def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
            if any(isinstance(op, Finish) and op.key == "claim/bad" for op in ops):
                raise StoreFailed("cannot encode")
            if any(isinstance(op, Mark) and op.key == "mark/7" for op in ops):
                raise StoreFailed("cannot encode")
            return self._store.perform(ops)

    report = copy_stores(source, Strict(target), clock=clock)
    assert counts(report) == (9, 0, 0, 0, 2)
    assert set(report.failures) == {CopyFailure("claim/bad", "cannot encode"), CopyFailure("mark/7", "cannot encode")}


def test_what_a_version_before_let_in_fails_alone(opened: MakeStore, clock: ManualClock, monkeypatch: Any) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    with monkeypatch.context() as unchecked:
        unchecked.setattr("solely.stores.memory.data.check_ops", lambda ops: None)
        tell_all(source, [Advance("lock/forged", b"zzz"), Mark("odd/mark", "s", 60), Advance("watermark/bad", b"zzz")])
    tell_all(source, [Advance("watermark/good", ONE), Mark("mark/m", "s", 60)])
    report = copy_stores(source, target, clock=clock)
    assert counts(report) == (2, 0, 0, 0, 3)
    assert {failure.key for failure in report.failures} == {"lock/forged", "odd/mark", "watermark/bad"}


@pytest.mark.parametrize("state", [State.HELD, State.DONE])
def test_a_watermark_replaces_nothing_that_is_live_and_no_watermark(state: State) -> None:
    watermark = plan.planned(Entry("watermark/w", State.DONE, left=plan.FOREVER, value=ONE), 0.0)
    there = Entry("watermark/w", state, 7, 20.0)
    assert plan.outcome_of_first(watermark, there) is plan.outcome_of_dry_run(watermark, there) is CopyOutcome.KEPT


def test_a_store_that_stays_away_stops_the_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(copier, "RETRY_FOR", 0.1)
    here, nowhere = f"sqlite:///{tmp_path}/here.sqlite3", f"redis://127.0.0.1:{free_port()}"
    with closing(open_store(here)) as store:
        tell_all(store, [Mark("mark/m", SECRET, 60)])
    for pair in ((here, nowhere), (nowhere, here)):
        with pytest.raises(StoreUnavailable):
            copy(*pair)
        assert main(pair) == 1
        assert "run it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source_url", "target_url"),
    [
        ("memory://a", "memory://a"),
        ("redis://h:1/0?namespace=a", "redis://H:1/0/?namespace=a"),
        ("postgres://h/d", "postgresql://h/d"),
        ("memory://", "memory://a"),
        ("memory://a", "memory://"),
        ("memory://a", "nonsense://a"),
        ("memory://a", "no url"),
        ("memory://a?max_size=0", "memory://b"),
        ("sqlite:///no-such-file", "memory://b"),
    ],
)
def test_urls_that_cannot_be_are_refused(
    source_url: str,
    target_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput):
        copy(source_url, target_url)
    assert main([source_url, target_url]) == 2
    assert capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_two_spellings_of_one_file_are_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my store").touch()
    (tmp_path / "link").symlink_to("my store")
    for other in (f"sqlite:///{tmp_path}/my%20store", "sqlite:///./my store", "sqlite:///link"):
        with pytest.raises(InvalidInput, match="the same store"):
            copy("sqlite:///my store", other)


@pytest.mark.parametrize("prefixes", ["mark/", b"mark/", [], [b"mark/"], ["mark/", None]])
def test_prefixes_that_cannot_be_are_refused(prefixes: Any) -> None:
    with pytest.raises(InvalidInput, match="list of str"):
        copy("memory://a", "memory://b", prefixes=prefixes)


# -- choices and bounds


def test_only_what_begins_with_a_prefix_is_copied_and_counted_once(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    stock(source)
    report = copy_stores(source, target, clock=clock, prefixes=["mark/", "watermark/", "mark/k", "mark/"])
    assert counts(report) == (2 * len(KEYS), 0, 0, 0, 0)
    assert {entry.kind for entry in listed(target)} == {"mark", "watermark"}


def test_a_dry_run_writes_nothing_and_foresees_the_copy(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    stock(source)
    tell_all(source, [Acquire("lock/held", SECRET, 30)])
    tell_all(target, [Push("empty", "1", b""), Mark("mark/x", "t", 10)])
    before = list(listed(target))
    foreseen = copy_stores(source, target, clock=clock, dry_run=True)
    assert list(listed(target)) == before
    report = copy_stores(source, target, clock=clock)
    assert counts(foreseen) == counts(report)
    assert (foreseen.left_behind, foreseen.dry_run, report.dry_run) == (report.left_behind, True, False)


def test_large_values_are_read_in_small_pages_and_sent_in_small_batches(opened: MakeStore, clock: ManualClock) -> None:
    source, target = opened("memory", clock), opened("memory", clock)
    largest = 256 * 1024
    tell_all(source, [op for at in range(100) for op in done(f"claim/{at:03}", b"b" + bytes(largest - 1))])
    pages: list[int] = []

    class Counted(Wrapped):
        def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
            page = self._store.scan(prefix, after, limit)
            pages.append(sum(len(entry.value or b"") for entry in page))
            return page

        def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
            assert sum(len(op.value) for op in ops if isinstance(op, Finish)) <= largest
            return self._store.perform(ops)

    assert counts(copy_stores(Counted(source), Counted(target), clock=clock)) == (100, 0, 0, 0, 0)
    assert sum(pages) == 100 * largest
    assert max(pages) <= copier.PAGE_BYTES


def test_the_report_lists_a_bounded_number_and_says_how_many_more(
    opened: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "MOST_LISTED", 3)
    source = opened("memory")
    tell_all(source, [Acquire(f"lock/{at}", SECRET, 30) for at in range(5)])
    report = copy_stores(source, opened("memory"))
    assert (len(report.left_behind), report.progress.left_behind) == (3, 5)
    assert "left behind: 2 more, not listed" in str(report)


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = (f"sqlite:///{tmp_path}/{name}.sqlite3" for name in ("here", "there"))
    with closing(open_store(here)) as store:
        tell_all(store, [Mark("mark/m", SECRET, 60), Advance("watermark/w", ONE), Acquire("lock/l", SECRET, 60)])
    assert main([here, there, "--dry-run", "--prefix", "mark/"]) == 0
    assert "would be done" in capsys.readouterr().out
    assert main([here, there]) == 0
    out = capsys.readouterr().out
    assert "3 seen: 2 copied, 0 kept, 0 expired, 1 left behind, 0 failed" in out
    assert "left behind: 'lock/l' held for " in out
    with closing(open_store(here)) as store:
        tell_all(store, [Advance("watermark/x", ONE)])
    assert main([here, "memory://full?max_size=1", "--prefix", "watermark/"]) == 1
    assert "failed: 'watermark/x': " in capsys.readouterr().out
