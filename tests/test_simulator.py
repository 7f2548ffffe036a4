"""The promises hold in each of 4,500 simulated histories (18,000 with `--all`), and each planted bug is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from solely.testing.simulator import (
    History,
    simulate,
    simulate_claims,
    simulate_queues,
    simulate_reservations,
    simulate_schedules,
)
from solely.testing.simulator.sweep import Violation
from tests import (
    planted_bugs,
    planted_claim_bugs,
    planted_queue_bugs,
    planted_reservation_bugs,
    planted_schedule_bugs,
)
from tests.planted_bugs import Plant

ROOT = Path(__file__).parents[1]
CHUNK = 250  # seeds per test: some seconds each, so that they spread evenly over the workers
ALWAYS = 8  # one of so many seeds is run without `--all` too: many more than WITHIN, in which a planted bug shows
WITHIN = 50  # seeds in which each planted bug must show


class Simulation(NamedTuple):
    """One kind of simulation, how many of its seeds to run, the bugs to find in it, and the texts that must occur."""

    of: str
    run: Callable[[int], History]
    seeds: int
    bugs: dict[str, Plant]
    module: str
    answers: tuple[str, ...]

    def report(self, seed: int, history: History, bug: str = "") -> str:
        """Returns which promise was broken, and how to replay that."""
        violation = Violation(self.of, seed, history.invariant, history.how)
        replay = violation.replay(f"{self.module}:{bug}" if bug else "")
        return f"seed {seed} violates {history.invariant!r}: {history.how}\n{history.tail(40)}\nreplay: {replay}"


SIMULATIONS = (
    Simulation(
        "locks", simulate, 10_000, planted_bugs.BUGS, planted_bugs.__name__,
        (
            "gone=revoked", "gone=expired", "gone=cleared", "gone=resumed", "state=closed", "expired", "cleared",
            "released", "returned  resumed", "Busy", "is not resumed: it is held by",
        ),
    ),
    Simulation(
        "claims", simulate_claims, 2_000, planted_claim_bugs.BUGS, planted_claim_bugs.__name__,
        (
            "state=done", "state=closed", "attempts=3", "gone=expired", "gone=cleared", "gone=resumed", "reason=reset",
            "Mismatch(",
            "(Done(", "(True, Entry(", "(False, Done(", "(False, Entry(", "returned  released", "returned  delayed",
            "returned  replayed", "returned  parked", "returned  lost", "returned  expired",
        ),
    ),
    Simulation(
        "reservations", simulate_reservations, 2_000, planted_reservation_bugs.BUGS, planted_reservation_bugs.__name__,
        (
            "reason=reserved", "reason=quiet", "reason=limited", "ticket=", "ReservationMismatch(",
            "UnknownReservation(", "returned  True", "returned  False", "by hand", "trial=<", "returned  open",
            "returned  closed", "is half-open",
        ),
    ),
    Simulation(
        "queues", simulate_queues, 2_000, planted_queue_bugs.BUGS, planted_queue_bugs.__name__,
        (
            "NoItem(left=inf)", "NoItem(left=0", "LeasedItem(", "attempts=3", "returned  TakenItem(", "returned  None",
            "returned  True", "returned  False", "Amend(", "uncounted=True", "Count(", "Busy(", "queue=parked",
            "Release(key=line/", "Resume(key=item/",
        ),
    ),
    Simulation(
        "schedules", simulate_schedules, 2_000, planted_schedule_bugs.BUGS, planted_schedule_bugs.__name__,
        (
            "returned  DueTick(", "attempts=2", "attempts=3", "returned  RunReport(", "state=done", "gone=revoked",
            "keep=1e-06", "Advance(key=schedule/", "Read(key=schedule/", "StoreUnavailable(", "StoreFull(", "missed=1",
        ),
    ),
)  # fmt: skip
only_with_all = pytest.mark.only_with_all
every_simulation = pytest.mark.parametrize("simulation", SIMULATIONS, ids=[one.of for one in SIMULATIONS])


@pytest.mark.parametrize(
    ("simulation", "first"),
    [
        pytest.param(one, first, id=f"{one.of}-{first}", marks=() if first < one.seeds / ALWAYS else only_with_all)
        for one in SIMULATIONS
        for first in range(0, one.seeds, CHUNK)
    ],
)
def test_no_promise_is_broken(simulation: Simulation, first: int) -> None:
    for seed in range(first, first + CHUNK):
        history = simulation.run(seed)
        assert not history.invariant, simulation.report(seed, history)


@pytest.mark.parametrize(
    ("simulation", "name"),
    [pytest.param(one, name, id=f"{one.of}-{name}") for one in SIMULATIONS for name in one.bugs],
)
def test_a_planted_bug_is_caught(simulation: Simulation, name: str) -> None:
    with simulation.bugs[name]():
        caught = next((seed for seed in range(WITHIN) if simulation.run(seed).invariant), None)
    assert caught is not None, f"{name} was not caught within {WITHIN} seeds"
    clean = simulation.run(caught)
    assert not clean.invariant, simulation.report(caught, clean)


@every_simulation
def test_the_same_seed_gives_the_same_history(simulation: Simulation) -> None:
    for seed in range(20):
        assert simulation.run(seed).digest() == simulation.run(seed).digest()
    assert len({simulation.run(seed).digest() for seed in range(20)}) == 20


@every_simulation
def test_the_same_seed_gives_the_same_history_in_another_process(simulation: Simulation) -> None:
    name = simulation.run.__name__
    code = f"from solely.testing import {name}; print([{name}(seed).digest() for seed in range(5)])"
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=50)
    assert other.stdout.strip() == str([simulation.run(seed).digest() for seed in range(5)]), other.stderr


@every_simulation
def test_every_fault_and_every_answer_happens(simulation: Simulation) -> None:
    lines = "\n".join(simulation.run(seed).tail(1_000) for seed in range(100))
    faults = (
        "paused",
        "killed",
        "restarts",
        "with its data",
        "empty",
        "Cancelled",
        "StoreFull",
        "no answer",
        "refused",
    )
    assert [word for word in faults + simulation.answers if word not in lines] == []


def simulator(*arguments: str) -> tuple[int, list[str]]:
    """Runs the command with these arguments; returns its exit code and the lines that it printed."""
    command = [sys.executable, "-m", "solely.testing.simulator", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def test_many_seeds_of_all_simulations_run_at_once_and_are_counted() -> None:
    code, printed = simulator("--seed", "3", "--seeds", "5", "--processes", "2")
    names = ", ".join(one.of for one in SIMULATIONS)
    assert code == 0
    assert re.fullmatch(
        rf"25 seeds, 0 violations: seeds 3 to 7 of {names}; \d+ s, \d+ seeds per second in 2 processes", printed[0]
    )


def test_a_planted_bug_is_printed_with_a_command_that_replays_it() -> None:
    bug = "tests.planted_queue_bugs:ack_by_anyone"
    code, printed = simulator("--of", "queues", "--of", "schedules", "--seeds", "3", "--bug", bug)
    assert code == 1
    assert printed[-1].startswith("6 seeds, ")
    found, replay = printed[:2]
    program, *module, command = replay.removeprefix("  replay: ").split(" ", 3)
    assert [program, *module] == ["python", "-m", "solely.testing.simulator"]
    code, again = simulator(*command.split())
    assert code == 1
    assert "VIOLATION" in again[-2]
    assert again[-1] == found
    assert simulator(*command.removesuffix(f" --bug {bug}").split())[0] == 0


def test_a_run_ends_when_its_time_is_over() -> None:
    code, printed = simulator("--of", "queues", "--seeds", "1000000", "--seconds", "0", "--processes", "1")
    assert code == 0
    assert printed[0].startswith("0 seeds, 0 violations: seeds of queues; ")
