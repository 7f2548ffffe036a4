"""A server killed under load breaks no promise, and the verdict would report each broken one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.observations import Observation
from chaos.runner import SERVERS, Plan, run
from chaos.verdict import Outage, Verdict, judge
from tests.servers import Valkey

ROOT = Path(__file__).parent.parent
# The promise is 2 s, and docs/chaos.md has measured times; a test must also pass on a busy machine.
GOES_ON_WITHIN = 5.0


SHORT = Plan(processes=4, seconds=5.0, kills=2)
LONG = Plan()  # as docs/chaos.md has it


@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", SERVERS)
def test_kills_under_load_break_no_promise(store: str, thorough: bool) -> None:
    plan = LONG if thorough else SHORT
    command = [sys.executable, "-m", "chaos", "--json", "--store", store, "--processes", str(plan.processes)]
    command += ["--seconds", str(plan.seconds), "--kills", str(plan.kills)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    verdict = Verdict(**json.loads(done.stdout)[store])
    assert verdict.broken == {}
    assert verdict.kills == plan.kills
    assert verdict.retries >= plan.kills, "the kills met no op under way"
    assert min(verdict.grants, verdict.marks, verdict.results) >= 10 * plan.kills, "too little work to tell"
    assert verdict.first_grant_after_return_s is not None
    assert verdict.first_grant_after_return_s <= GOES_ON_WITHIN


def test_a_server_that_keeps_nothing_is_found_out() -> None:
    verdict = run(Valkey(), Plan(processes=2, seconds=2.0, kills=1))
    assert verdict.marks_lost > 0
    assert verdict.results_lost > 0


def write(worker: int, turn: int, at: float, fence: int, key: str = "k") -> Observation:
    return Observation(worker, "write", turn, at, key, fence)


def judged(
    *observations: Observation, seen: frozenset[str] = frozenset(), results: dict[str, str] | None = None
) -> Verdict:
    return judge(list(observations), [Outage(1.0, 2.0)], 1, set(seen), results or {})


def test_holds_one_after_the_other_are_no_violation() -> None:
    verdict = judged(write(0, 0, 1.0, 5), write(0, 0, 3.0, 5), write(1, 0, 4.0, 6), write(1, 1, 2.0, 1, "other"))
    assert verdict.broken == {}
    assert (verdict.grants, verdict.writes) == (3, 4)


def test_a_hold_that_begins_within_another_is_a_violation() -> None:
    verdict = judged(write(0, 0, 1.0, 5), write(0, 0, 3.0, 5), write(1, 0, 2.0, 6))
    assert verdict.broken == {"exclusion_violations": 1}


@pytest.mark.parametrize("later", [4, 5])
def test_a_later_hold_without_a_greater_fence_is_a_regression(later: int) -> None:
    assert judged(write(0, 0, 1.0, 5), write(1, 0, 2.0, later)).broken == {"fence_regressions": 1}


def test_an_acknowledged_mark_must_be_seen_afterwards_and_be_one_workers_alone() -> None:
    first, again = Observation(0, "first", 0, 1.0, "m", True), Observation(1, "first", 0, 1.0, "m", True)
    assert judged(first, seen=frozenset("m")).broken == {}
    assert judged(first).broken == {"marks_lost": 1}
    assert judged(first, again, seen=frozenset("m")).broken == {"marks_given_twice": 1}


def test_a_mark_that_nobody_got_is_a_fault_unless_somebody_was_left_in_doubt() -> None:
    seen, in_doubt = (
        Observation(0, "first", 0, 1.0, "m", False),
        Observation(1, "error", 0, 1.0, "m", "StoreUnavailable"),
    )
    assert judged(seen).broken == {"marks_given_to_nobody": 1}
    assert judged(seen, in_doubt).broken == {}


def test_an_acknowledged_result_must_be_the_one_that_is_read_afterwards() -> None:
    ours, theirs = Observation(0, "result", 0, 1.0, "j", "ours"), Observation(1, "result", 0, 1.0, "j", "theirs")
    assert judged(ours, results={"j": "ours"}).broken == {}
    assert judged(ours).broken == {"results_lost": 1}
    assert judged(ours, theirs, results={"j": "ours"}).broken == {"results_lost": 1, "results_given_twice": 1}


def test_an_error_that_no_client_should_see_is_a_fault() -> None:
    assert judged(Observation(0, "error", 0, 1.0, "k", "Busy")).broken == {}
    assert judged(Observation(0, "error", 0, 1.0, "k", "unexpected StoreFailed: no")).broken == {
        "unexpected StoreFailed: no": 1
    }


def test_recovery_counts_grants_after_the_return_only() -> None:
    before, after = write(0, 0, 1.9, 1), write(0, 1, 2.5, 2)
    assert judged(before).first_grant_after_return_s is None
    assert judged(before, after).first_grant_after_return_s == pytest.approx(0.5)
    assert judged(before, after).all_at_work_after_return_s == pytest.approx(0.5)
