"""Many replicas, many targets: every interval is probed once, no target twice at the same time, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.apps.inbox import end_of, process_of
from tests.apps.probes.sites import CountingSite, counting_site
from tests.conftest import isolated
from tests.service.serving import LINES, Process, until

BEGINS = 150.0  # seconds for so many processes to begin on a machine that others use too
LOCK = 6.0  # seconds: the mutex's lock timeout, a tenth of the document's
FREEZE = 7.0  # seconds: longer than that
TARGETS = 100


class Replicas:
    """Services of their own that share a store and a database, each a replica."""

    def __init__(self, stack: ExitStack, folder: Path, store: str, targets: Sequence[dict[str, Any]]) -> None:
        self._stack, self._folder, self._begun = stack, folder, 0
        self.all: dict[int, Process] = {}  # by pid
        self._variables = {
            "SOLELY_URL": store,
            "SOLELY_DATA_URL": f"sqlite:///{folder / 'data.db'}",
            "SOLELY_TOKENS": ",".join(LINES),
            "SOLELY_APPS": "probes",
            "SOLELY_PROBES_TARGETS": json.dumps([*targets]),
            "SOLELY_PROBES_GUARD_ALLOW": "127.0.0.0/8",
            "SOLELY_PROBES_LOCK_TIMEOUT": str(LOCK),
        }

    def begin(self, count: int = 1) -> None:
        """Starts so many more, and returns when they take requests."""
        begun = []
        for _ in range(count):
            place = self._folder / f"replica-{self._begun}"
            place.mkdir()
            begun.append(self._stack.enter_context(Process(place, **self._variables)))
            self._begun += 1
        for process in begun:
            process.address()
            self.all[process.pid] = process

    def kill(self) -> None:
        """SIGKILL to the one that began first: it says good-bye to nobody."""
        process = self.all.pop(next(iter(self.all)))
        process.signal(signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """Has all of them finish what they do."""
        for process in self.all.values():
            process.signal(signal.SIGTERM)
        for process in self.all.values():
            process.wait(BEGINS)

    def results(self) -> list[tuple[str, float, int]]:
        """Target, scheduled moment and fence of every result that was recorded, by fence."""
        with closing(sqlite3.connect(self._folder / "data.db", timeout=60)) as data:
            return data.execute("SELECT target, due, fence FROM probes_results ORDER BY fence").fetchall()

    def missed(self) -> Counter[str]:
        """How many intervals of each target the replicas report as missed: a probe took longer than one, or the store
        did not answer in time, on a machine that has too much to do."""
        found = Counter[str]()
        for file in self._folder.glob("replica-*/service.log"):
            for facts in map(json.loads, file.read_text().splitlines()):
                if facts["event"] == "ticks_missed":
                    found[facts["schedule"].rpartition("/")[2]] += facts["missed"]
                elif facts["event"] == "probe_failed":
                    found[facts["target"]] += 1
        return found

    def log(self, pid: int) -> str:
        return self.all[pid].log.read_text()


@contextmanager
def replicas(count: int, folder: Path, store: str, targets: Sequence[dict[str, Any]]) -> Iterator[Replicas]:
    with ExitStack() as stack:
        it = Replicas(stack, folder, store, targets)
        it.begin(count)
        yield it


@pytest.fixture
def store(valkey_url: str) -> str:
    return isolated(valkey_url)


def targets(site: CountingSite, interval: float, count: int = TARGETS, **given: Any) -> list[dict[str, Any]]:
    return [{"name": f"t{n}", "url": site.url(f"t{n}"), "interval": interval, **given} for n in range(count)]


@pytest.mark.parametrize(
    ("count", "interval"),
    [(2, 2.0), pytest.param(8, 4.0, marks=pytest.mark.only_with_all)],
    ids=["two replicas", "eight replicas"],
)
def test_every_interval_is_probed_once_by_any_number_of_replicas(
    count: int, interval: float, tmp_path: Path, store: str
) -> None:
    with counting_site() as site, replicas(count, tmp_path, store, targets(site, interval)) as fleet:
        until(lambda: len(site.counts()) == TARGETS and min(site.counts().values()) >= 3, BEGINS)
        fleet.end()
        found, missed = fleet.results(), fleet.missed()
    assert max(site.most.values()) == 1
    assert Counter(target for target, _, _ in found) == site.counts()  # each visit of the site has one result
    for name in site.counts():
        due = sorted(moment for target, moment, _ in found if target == name)
        steps = [(later - earlier) / interval for earlier, later in pairwise(due)]
        assert all(step >= 1 and abs(step - round(step)) < 0.001 for step in steps), (name, due)  # none twice
        left_out = sum(round(step) - 1 for step in steps)
        assert left_out <= missed[name], (name, due)  # and none left out, but for what is reported


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.only_with_all)], ids=["one dies", "six die"])
def test_while_replicas_are_killed_and_added_no_target_is_probed_twice_at_once(
    kills: int, tmp_path: Path, store: str
) -> None:
    with counting_site(pause=0.2) as site, replicas(2, tmp_path, store, targets(site, 2.0)) as fleet:
        until(lambda: len(site.counts()) == TARGETS, BEGINS)
        for _ in range(kills):
            fleet.kill()
            fleet.begin()
        seen = site.counts()
        until(lambda: all(site.counts()[path] >= seen[path] + 2 for path in seen), BEGINS)  # all of them go on
        fleet.end()
        found = fleet.results()
    assert max(site.most.values()) == 1
    recorded = Counter((target, moment) for target, moment, _ in found)
    assert max(recorded.values()) == 1  # no interval has two results
    visits = site.counts()
    for name, results in Counter(target for target, _ in recorded).items():
        assert results <= visits[name] <= results + 2 * kills  # at most what the dead had begun, or not yet written


def test_a_frozen_holder_loses_the_mutex_and_its_result_is_refused(tmp_path: Path, store: str) -> None:
    """A replica is stopped in the middle of a probe for longer than the lock lasts. Its target answers meanwhile: so it
    wakes up with a result, which comes too late."""
    with counting_site() as site:
        wanted = [{"name": "web", "url": site.url("web"), "interval": 1.0, "timeout": 30.0}]
        with replicas(2, tmp_path, store, wanted) as fleet:
            until(lambda: site.counts()["web"] >= 2, BEGINS)
            site.answer(False)
            until(lambda: site.at_once["web"] == 1, BEGINS)
            frozen = _prober(fleet, site)
            os.kill(frozen, signal.SIGSTOP)
            try:
                stopped = time.monotonic()
                site.answer(True)
                until(lambda: site.at_once["web"] == 0, BEGINS)
                before = site.counts()["web"]
                until(lambda: site.counts()["web"] > before, BEGINS)  # by the other one
                assert time.monotonic() - stopped > LOCK / 2 - 1  # not before the lock, renewed at its half, was over
                time.sleep(max(0.0, FREEZE - (time.monotonic() - stopped)))
            finally:
                os.kill(frozen, signal.SIGCONT)
            until(lambda: "tick_lost" in fleet.log(frozen), BEGINS)  # it learns that its probe came too late
            fleet.end()
            found = fleet.results()
        assert site.most["web"] == 1
        assert len(found) == site.counts()["web"] - 1  # all but the one that was frozen
        due = [moment for _, moment, _ in found]
        assert due == sorted(set(due))  # in the order of their fences, no interval twice


def _prober(fleet: Replicas, site: CountingSite) -> int:
    """The process that waits for the answer of the site."""
    connection = end_of(site.peers["web"], site.port)
    assert connection is not None, "the connection is gone"
    found = process_of(connection, [*fleet.all])
    assert found is not None, "none of the replicas has it"
    return found
