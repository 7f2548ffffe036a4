"""Random sequences of scheduled probes and those that callers ask for, pauses, expiries and deaths of replicas, against
a model of what each target's state and uptime must be. Replicas are paused where it is worst: in a probe whose mutex
expires and whose successor runs beside it or is over, before a result is written, before and while people are notified,
and before that is recorded."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from solely import AsyncClient, AsyncReservation
from solely.apps.probes import history as history_module
from solely.apps.probes.checks import Outcome
from solely.apps.probes.history import ProbeHistory, Turn
from solely.apps.probes.model import NOT_PERMITTED, ProbeResult, ProbeTarget
from solely.apps.probes.mutex import PREFIX, ProbeMutex
from solely.apps.probes.prober import Prober
from solely.data import Statements, migrate, open_database

# With times that no stall of the machine exceeds.
TARGETS = {name: ProbeTarget(name=name, url=f"https://{name}.example/", timeout=60.0) for name in ("web", "shop")}
OUTCOMES = {
    "pass": Outcome(status=200),
    "fail": Outcome("status 500"),
    "refuse": Outcome("no", refused=True),
}
names, replicas = st.sampled_from(["web", "web", "web", "shop"]), st.sampled_from(["a", "b"])
runs = st.sampled_from([["fail", "fail"], ["fail", "pass"], ["pass"], ["fail"], ["refuse"]])
outcomes = st.sampled_from(sorted(OUTCOMES))


class Slow:
    """Checks that end when they are told to."""

    def __init__(self) -> None:
        self.ends: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def check(self, target: ProbeTarget) -> Outcome:
        return await self.ends


@dataclass
class Expected:
    """The state of a target by the results that were written; two failures in a row make it DOWN."""

    state: str = ""
    fence: int = 0
    failures: int = 0
    up: int = 0
    down: int = 0

    def apply(self, result: ProbeResult) -> None:
        refused = result.skipped == NOT_PERMITTED
        self.up += result.passed
        self.down += not result.passed and not refused
        if result.fence <= self.fence:
            return
        self.fence = result.fence
        self.failures = 0 if result.passed or refused else self.failures + 1
        if refused or result.passed:
            self.state = "REFUSED" if refused else "UP"
        else:
            self.state = "DOWN" if self.failures >= 2 or self.state == "DOWN" else "PENDING"


class Running(NamedTuple):
    """A probe of a replica that has the mutex, or had it until it expired."""

    replica: str
    checks: Slow
    task: asyncio.Task[tuple[ProbeResult, Outcome]]


@dataclass
class Replica:
    """What one replica has found and not written, written and not announced, or is announcing."""

    history: ProbeHistory
    pending: list[tuple[str, ProbeResult]] = field(default_factory=list)
    owed: list[Turn] = field(default_factory=list)
    announcing: list[Turn] = field(default_factory=list)


class ProbesMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.at_once = mock.patch.object(history_module, "_LATE", -60.0)  # what is owed is made up for without a wait
        self.at_once.start()
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.once = AsyncClient("memory://")
        self.data = open_database("sqlite:///:memory:", timeout=20.0)
        await migrate(self.data, "probes", "solely.apps.probes")
        self.replicas = {name: Replica(ProbeHistory(self.data)) for name in ("a", "b")}
        self.expected = {name: Expected() for name in TARGETS}
        self.mutexes = {name: ProbeMutex(self.once, retries=0, lock_timeout=3600.0) for name in self.replicas}
        self.refused = set[tuple[str, str]]()  # replicas, and targets of which they could not run a scheduled probe
        self.waiting = set[str]()  # targets that callers have to leave to a scheduled probe
        self.holders: dict[str, Running] = {}
        self.overtaken: dict[str, list[Running]] = {name: [] for name in TARGETS}
        self.overlapped = set[int]()  # announcements, by id, in which another one of their target was recorded
        self.told: dict[str, list[bool]] = defaultdict(list)  # whether people were told that it is down

    def _prober(self, replica: str, checks: Slow, *, scheduled: bool = True) -> Prober:
        return Prober(self.mutexes[replica], checks, scheduled=scheduled)

    @rule(name=names, replica=replicas)
    def caller_probes(self, name: str, replica: str) -> None:
        """Its result is the caller's, and is written nowhere."""

        async def probe() -> ProbeResult:
            checks = Slow()
            checks.ends.set_result(OUTCOMES["fail"])
            return (await self._prober(replica, checks, scheduled=False).probe(TARGETS[name]))[0]

        result = self.runner.run(probe())
        assert result.skipped == ("locked" if name in self.holders or name in self.waiting else "")

    @rule(name=names, replica=replicas)
    def probe_begins(self, name: str, replica: str) -> None:
        async def begin() -> None:
            checks = Slow()
            if name in self.holders:  # it is held: this one is skipped, and checks nothing
                result, _ = await self._prober(replica, checks).probe(TARGETS[name])
                assert (result.skipped, result.fence) == ("locked", 0)
                self.refused.add((replica, name))
                self.waiting.add(name)
                return
            task = asyncio.create_task(self._prober(replica, checks).probe(TARGETS[name]))
            key = PREFIX + ProbeMutex.target_key(TARGETS[name].url)
            while not await self.once.reservations(key):
                await asyncio.sleep(0)
            self.holders[name] = Running(replica, checks, task)

        self.runner.run(begin())

    @rule(name=names, outcome=outcomes)
    def probe_ends(self, name: str, outcome: str) -> None:
        if name not in self.holders:
            return
        it = self.holders.pop(name)
        result = self.runner.run(self._ended(name, it, outcome))
        assert result.skipped == ("refused" if outcome == "refuse" else "")
        self.replicas[it.replica].history.add(TARGETS[name], result)
        self.replicas[it.replica].pending.append((name, result))

    @rule(name=names)
    def mutex_expires(self, name: str) -> None:
        """Its holder is frozen, and does not know: another replica may probe beside it from now on."""
        if name in self.holders:
            key = PREFIX + ProbeMutex.target_key(TARGETS[name].url)
            assert self.runner.run(self.once.expire_reservation(key, reason="as if its holder was frozen"))
            self.overtaken[name].append(self.holders.pop(name))

    @rule(name=names, outcome=outcomes)
    def overtaken_probe_ends(self, name: str, outcome: str) -> None:
        """It has no result, whatever it found, and takes the mutex from nobody."""
        if self.overtaken[name]:
            result = self.runner.run(self._ended(name, self.overtaken[name].pop(), outcome))
            assert (result.skipped, result.fence) == ("lost", 0)
            held = self.runner.run(self.once.reservations(PREFIX + ProbeMutex.target_key(TARGETS[name].url)))
            assert len(held) == (name in self.holders)

    async def _ended(self, name: str, it: Running, outcome: str) -> ProbeResult:
        it.checks.ends.set_result(OUTCOMES[outcome])
        if (it.replica, name) in self.refused:
            self.refused.remove((it.replica, name))
            self.waiting.discard(name)
        return (await it.task)[0]

    @rule(replica=replicas)
    def results_are_written(self, replica: str) -> None:
        it = self.replicas[replica]
        it.owed += self.runner.run(it.history.flush())
        for name, result in it.pending:
            self.expected[name].apply(result)
        it.pending.clear()

    @rule(name=names, replica=replicas, outcome=outcomes)
    def target_is_probed_and_nothing_written(self, name: str, replica: str, outcome: str) -> None:
        if name not in self.holders:
            self.probe_begins(name, replica)
            self.probe_ends(name, outcome)

    @rule(name=names, replica=replicas, several=runs)
    def target_is_probed(self, name: str, replica: str, several: list[str]) -> None:
        """Whole probes, one after the other, each written at once."""
        for outcome in several if name not in self.holders else ():
            self.probe_begins(name, replica)
            self.probe_ends(name, outcome)
            self.results_are_written(replica)
            self.states_and_uptime_are_those_of_the_results()

    @rule(name=names, outcome=outcomes, several=runs)
    def result_is_written_after_newer_ones(self, name: str, outcome: str, several: list[str]) -> None:
        self.target_is_probed_and_nothing_written(name, "a", outcome)
        self.target_is_probed(name, "b", several)
        self.results_are_written("a")
        self.states_and_uptime_are_those_of_the_results()

    @rule(name=names, outcome=outcomes, asked=replicas)
    def callers_ask_when_a_scheduled_probe_was_refused(self, name: str, outcome: str, asked: str) -> None:
        for replica in ("a", "b"):
            self.probe_begins(name, replica)
        self.probe_ends(name, outcome)
        self.caller_probes(name, asked)

    @rule(name=names, before=runs, meanwhile=runs, dies=st.booleans())
    def state_changes_while_it_is_announced(
        self, name: str, before: list[str], meanwhile: list[str], dies: bool
    ) -> None:
        self.target_is_probed(name, "a", before)
        if self.replicas["a"].owed:
            self.announcement_begins()
            self.target_is_probed(name, "b", meanwhile)
            self.announcement_ends(dies)
            self.all_is_over()

    @rule(replica=replicas)
    def what_is_owed_is_found(self, replica: str) -> None:
        it = self.replicas[replica]
        it.owed = self.runner.run(it.history.unannounced())

    @precondition(lambda self: any(each.owed for each in self.replicas.values()))
    @rule()
    def announcement_begins(self) -> None:
        it = next(each for each in self.replicas.values() if each.owed)
        turn = it.owed.pop(0)
        self.runner.run(it.history.announcing(turn))
        it.announcing.append(turn)

    @precondition(lambda self: any(each.announcing for each in self.replicas.values()))
    @rule(dies=st.booleans())
    def announcement_ends(self, dies: bool) -> None:
        """People are told, which is recorded unless the replica dies."""
        replica, it = next((name, each) for name, each in self.replicas.items() if each.announcing)
        turn = it.announcing.pop(0)
        self.told[turn.target].append(turn.state == "DOWN")
        others = [each for other in self.replicas.values() for each in other.announcing if each.target == turn.target]
        if dies and not others and id(turn) not in self.overlapped:
            self.replica_is_killed(replica)
        else:
            self.runner.run(it.history.announced(turn))
            self.overlapped.update(map(id, others))

    @rule(replica=replicas)
    def replica_is_killed(self, replica: str) -> None:
        """What it had not written is lost, and nothing else."""
        self.replicas[replica] = Replica(ProbeHistory(self.data))

    @rule(name=names)
    def target_is_paused(self, name: str) -> None:
        self.runner.run(self.replicas["a"].history.restart(name))
        expected = self.expected[name]
        if expected.state:
            expected.state, expected.failures = "PENDING", 0

    @rule()
    def all_is_over(self) -> None:
        """Whatever replicas were at, people know in the end what is down, and what is not."""
        while any(each.announcing for each in self.replicas.values()):
            self.announcement_ends(dies=False)
        for name in sorted(self.replicas):
            self.replica_is_killed(name)
        self.what_is_owed_is_found("a")
        while self.replicas["a"].owed:
            self.announcement_begins()
            self.announcement_ends(dies=False)
        for name, expected in self.expected.items():
            told = self.told[name][-1] if self.told[name] else False
            assert told == (expected.state == "DOWN"), name

    @invariant()
    def states_and_uptime_are_those_of_the_results(self) -> None:
        async def look() -> None:
            history = self.replicas["a"].history
            states, uptimes = await history.states(), await history.uptimes("24h")
            for name, expected in self.expected.items():
                assert (states[name].state if name in states else "") == expected.state
                samples = expected.up + expected.down
                share = uptimes[name].share if name in uptimes else None
                assert share == (expected.up / samples if samples else None)

        if hasattr(self, "runner"):
            self.runner.run(look())

    def teardown(self) -> None:
        async def end() -> None:
            running = [[(name, each)] for name, each in self.holders.items()]
            frozen = [[(name, each) for each in several] for name, several in self.overtaken.items()]
            for name, each in chain(*running, *frozen):
                await self._ended(name, each, "pass")
            await self.once.close()
            await self.data.close()

        if hasattr(self, "runner"):
            self.at_once.stop()
            self.runner.run(end())
            self.runner.close()


def run_machine(examples: int, *, shrink: bool = True) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        ProbesMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, derandomize=True, database=None, deadline=None,
            phases=phases, suppress_health_check=list(HealthCheck), print_blob=False,
        ),
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_states_uptime_and_announcements_are_those_of_the_results(thorough: bool) -> None:
    run_machine(1_000 if thorough else 100)


async def _always_ours(self: ProbeMutex, url: str, held: AsyncReservation, *, scheduled: bool = True) -> bool:
    await held.release()
    return True


async def _not_recorded(self: ProbeHistory, turn: Turn) -> None:
    pass


async def _nothing_owed(self: ProbeHistory) -> list[Turn]:
    return []


_text = Statements.text


def _without_fences(self: Statements, name: str, dialect: Any) -> str:
    return _text(self, name, dialect).replace("WHERE excluded.fence > probes_states.fence", "WHERE true")


async def _nobody_waits(self: AsyncClient, key: str) -> bool:
    return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "name", "broken"),
    [
        (ProbeMutex, "release", _always_ours),  # a result counts although the mutex was lost
        (ProbeHistory, "announcing", _not_recorded),  # nobody knows that a dead replica has announced something
        (ProbeHistory, "unannounced", _nothing_owed),
        (Statements, "text", _without_fences),  # an older result replaces the state of a newer one
        (AsyncClient, "seen", _nobody_waits),  # callers go first
    ],
)
def test_the_machine_finds_a_planted_bug(place: type, name: str, broken: Callable[..., Any]) -> None:
    with mock.patch.object(place, name, broken), pytest.raises((AssertionError, ExceptionGroup)):
        run_machine(100, shrink=False)
