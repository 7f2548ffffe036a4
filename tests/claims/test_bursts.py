"""The burst of many same-key callers over four processes: one execution, one value everywhere, whatever happens."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import STORES
from tests.forked import PIPE, Forked

PROCESSES, CALLERS = 4, 250
ANSWERS_WITHIN = 40.0  # seconds: a burst takes one or two, but a test machine can be very busy
PROMPT = 0.5  # seconds to hear of a result, and how late the machine is: it takes milliseconds


@pytest.fixture(params=[name for name in ("valkey", "postgres") if name in STORES])
def url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


def burst(url: str, how: str, runs: Path) -> list[dict[str, Any]]:
    """What the callers of each process that lived got."""
    runs.touch()
    words = (url, str(CALLERS), how, str(runs))
    workers = [Forked("tests.claims.burst", *words, stdin=PIPE, stdout=PIPE) for _ in range(PROCESSES)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == b"ready\n"
        for worker in workers:
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
        told = [worker.communicate(timeout=ANSWERS_WITHIN)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    return [json.loads(answer) for answer in told if answer]


@pytest.mark.parametrize("how", ["works", "fails", "killed"])
def test_a_thousand_callers_over_four_processes_get_one_value(url: str, how: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    answers = burst(url, how, runs)
    assert len(answers) == (PROCESSES - 1 if how == "killed" else PROCESSES)
    assert len({run for answer in answers for run in answer["runs"]}) == 1
    assert sum(answer["callers"] for answer in answers) == CALLERS * len(answers)
    assert runs.read_text().split() == (["1"] if how == "works" else ["1", "2"])  # one execution per attempt
    late = [seconds for answer in answers for seconds in answer["late"]]
    assert statistics.median(late) < PROMPT + max(answer["lateness"] for answer in answers)
    if how == "works":
        assert sum(answer["ops"] for answer in answers) <= 0.05 * PROCESSES * CALLERS
