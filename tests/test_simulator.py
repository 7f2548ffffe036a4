"""The promises hold in every one of 10,000 simulated histories, and the simulator finds each bug that is planted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from solely.testing.simulator import History, simulate
from solely.testing.simulator.__main__ import main
from tests.planted_bugs import BUGS

SEEDS = 10_000
CHUNK = 250  # seeds per test: some seconds each, so that they spread evenly over the workers
WITHIN = 50  # seeds in which each planted bug must show


def _report(seed: int, history: History, bug: str = "") -> str:
    replay = f"python -m solely.testing.simulator --seed {seed}" + (f" --bug tests.planted_bugs:{bug}" if bug else "")
    return f"seed {seed} violates {history.invariant!r}: {history.how}\n{history.tail(40)}\nreplay: {replay}"


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken(first: int) -> None:
    for seed in range(first, first + CHUNK):
        history = simulate(seed)
        assert not history.invariant, _report(seed, history)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with BUGS[name]():
        caught = next((seed for seed in range(WITHIN) if simulate(seed).invariant), None)
    assert caught is not None, f"{name} was not caught within {WITHIN} seeds"
    clean = simulate(caught)
    assert not clean.invariant, _report(caught, clean)


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in range(20):
        assert simulate(seed).digest() == simulate(seed).digest()
    assert len({simulate(seed).digest() for seed in range(20)}) == 20


def test_the_same_seed_gives_the_same_history_in_another_process() -> None:
    code = "from solely.testing.simulator import simulate; print([simulate(seed).digest() for seed in range(5)])"
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=50)
    assert other.stdout.strip() == str([simulate(seed).digest() for seed in range(5)]), other.stderr


def test_every_fault_happens() -> None:
    told = "\n".join(simulate(seed).tail(1_000) for seed in range(100))
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
    answers = ("gone=revoked", "gone=expired", "gone=cleared", "state=closed", "expired", "cleared", "released", "Busy")
    assert [word for word in faults + answers if word not in told] == []


def test_a_seed_can_be_replayed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulator", "--seed", "0", "--seeds", str(WITHIN)]
    monkeypatch.setattr(sys, "argv", command)
    assert main() == 0
    assert capsys.readouterr().out == f"{WITHIN} seeds, 0 violations\n"
    monkeypatch.setattr(sys, "argv", [*command, "--bug", "tests.planted_bugs:release_without_owner"])
    assert main() == 1
    said = capsys.readouterr().out
    assert "VIOLATION" in said
    assert "violates 'mutual exclusion'" in said
