"""Processes that join, leave and are killed in the middle of a tick: no tick is lost, and none is completed twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from solely.schedules.timetable import US
from tests.conftest import STORES
from tests.schedules.running import Line, RunningReplica, written

EVERY = 0.25  # seconds
HOLD = 2.0  # seconds: the lease of a process that is killed; it may also lose it before, on a machine that is slow
LONG = 60.0  # seconds: the lease of all others, which is not lost while they live
PATIENCE = 90.0  # seconds until a test gives up: a busy machine is slow
Start = Callable[..., RunningReplica]
_ON = [name for name in ("sqlite", "valkey", "postgres") if name in STORES]
_ALSO_ON = [pytest.param(name, marks=pytest.mark.only_with_all) for name in ("mongo", "http") if name in STORES]


@pytest.fixture(params=[*_ON, *_ALSO_ON])
def url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What the processes did: the recorder, which is independent of the store."""
    return tmp_path / "written"


@pytest.fixture
def start(url: str, file: Path) -> Iterator[Start]:
    started: list[RunningReplica] = []

    def begin(mode: str, **options: Any) -> RunningReplica:
        started.append(RunningReplica(url, file, mode=mode, every=EVERY, **{"ttl": LONG, **options}))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def until(holds: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.02)


def of(file: Path, word: str, *replicas: RunningReplica) -> list[Line]:
    """The lines with this word; of these processes, if any are given."""
    pids = {each.pid for each in replicas}
    return [line for line in written(file) if line.word == word and (not pids or line.pid in pids)]


def more(file: Path, count: int) -> None:
    """Waits until so many more ticks are done."""
    before = len(of(file, "done"))
    until(lambda: len(of(file, "done")) >= before + count, f"{count} more ticks")


def killed_in_a_tick(start: Start, file: Path) -> list[Line]:
    """Kills a process in its job while two others wait, of which both leave later; what the dead one had begun."""
    victim = start("blocking", ttl=HOLD, hangs=True)  # no other process is there: it wins the next tick
    until(lambda: of(file, "began", victim), "a tick in progress")
    waiting = [start("asyncio"), start("blocking")]
    until(lambda: len(of(file, "looked", *waiting)) == 2, "two processes that wait")
    victim.kill()
    more(file, 6)
    joined = start("asyncio")
    until(lambda: of(file, "looked", joined), "a process that joins")
    for leaving in waiting:
        leaving.leave()
        more(file, 3)
    joined.leave()
    return of(file, "began", victim)


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.only_with_all)], ids=["one dies", "five die"])
def test_a_tick_whose_process_was_killed_in_its_job_is_completed_once_by_another(
    kills: int, start: Start, file: Path
) -> None:
    killed = [line for _ in range(kills) for line in killed_in_a_tick(start, file)]
    assert len(killed) == kills, "each of them died in its first tick"
    check_no_tick_is_lost_or_repeated(written(file))
    ends = {line.tick: line for line in of(file, "done")}
    for died in killed:
        end = ends[died.tick]
        assert end.attempt == 2
        assert end.fence - died.fence >= HOLD * US, "not before the hold was over, by the clock of the store"


def check_no_tick_is_lost_or_repeated(lines: list[Line]) -> None:
    done = [line.tick for line in lines if line.word == "done"]
    assert set(Counter(done).values()) == {1}, "each was completed once"
    assert all(later - earlier == round(EVERY * US) for earlier, later in pairwise(done)), "in order, and none left out"
    assert {line.tick for line in lines if line.word == "began"} == set(done)
    runs = [line for line in lines if line.word != "looked"]
    for before, line in pairwise(runs):
        if line.word == "done":
            assert before == line._replace(word="began"), "no two jobs run at the same time"
    fences = [line.fence for line in runs if line.word == "began"]
    assert fences == sorted(set(fences))
