"""The checks of the battery find what they are for, and only that; a round runs; a broken store is found out."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chaos.battery import LONG, SHORT, Choice, all_workloads, planned
from chaos.deployments import DEPLOYMENTS
from chaos.deployments.single import Redis
from chaos.evidence import Evidence, Finding
from chaos.faults import FAULTS
from chaos.mutants import MUTANTS, ONE_BY_ONE
from chaos.mutants.planting import altered
from chaos.observations import Note, ObservationLog, Observations, read_logs
from chaos.report import Report
from chaos.resources import Sets
from chaos.rounds import RoundPlan, RoundResult, run_round
from chaos.soak import Measurement, drifts
from chaos.workloads import (
    WORKLOADS,
    w1_mutex,
    w2_unfenced_set,
    w3_fenced_set,
    w4_fences,
    w5_dedup,
    w6_reservations,
    w7_claims,
    w8_liveness,
    w9_queue,
)
from solely import StaleFence, StoreUnavailable
from solely.testing.linearizability import UNANSWERED, Operation
from solely.testing.linearizability.__main__ import main as check_again
from tests.servers import Valkey

ROOT = Path(__file__).parent.parent


HISTORIES = Path(__file__).parent.parent / "docs" / "histories"


def op(key: str, name: str, owner: str, output: Any, begin: float, end: float = math.inf, *given: Any) -> Operation:
    return Operation(key, name, owner, output, begin, end, given)


def note(kind: str, key: str, detail: Any, at: float = 1.0, worker: int = 0) -> Note:
    return Note(worker, kind, key, at, detail)


def evidence(tmp_path: Path, *seen: Operation | Note, **settings: Any) -> Evidence:
    operations = [each for each in seen if isinstance(each, Operation)]
    notes = [each for each in seen if isinstance(each, Note)]
    url = f"sqlite:///{tmp_path / 'store.db'}"
    return Evidence(Observations(operations, notes), {"ttl": 1.0, **settings}, url, tmp_path)


def fail(text: str) -> None:
    raise StoreUnavailable(text)


def kinds(found: Any) -> list[str]:
    return [finding.kind for finding in found]


# -- logs


def test_a_log_of_a_killed_worker_has_the_call_that_was_under_way(tmp_path: Path) -> None:
    path = tmp_path / "0.jsonl"
    with ObservationLog(path, 0) as log:
        with log.call("k", "acquire", "a", 1.0) as call:
            call.output = 7
        with log.call("k", "claim", "b"):
            fail("gone")
        log.note("write", "k", 7, at=3.0)
    with path.open("ab") as file:
        file.write(
            b'{"worker": 0, "call": 9, "key": "k", "name": "release", "owner": "a", "begin": 9e9, "input": []}\n'
        )
        file.write(b'{"worker": 0, "call": 10, "ke')
    seen = read_logs([path])
    assert [(each.name, each.output, each.answered) for each in seen.operations] == [
        ("acquire", 7, True), ("claim", UNANSWERED, False), ("release", UNANSWERED, False),
    ]  # fmt: skip
    assert seen.operations[0].input == (1.0,)
    assert seen.errors == {"StoreUnavailable": 1}
    assert seen.of("write") == [Note(0, "write", "k", 3.0, 7)]


# -- checks


def test_w1_finds_two_holders_and_calls_without_an_order(tmp_path: Path) -> None:
    held = [note("write", "kept-1", 5, at) for at in (1.0, 2.0)]
    later, within = note("write", "kept-1", 6, 3.0, worker=1), note("write", "kept-1", 6, 1.5, worker=1)
    assert kinds(w1_mutex.check(evidence(tmp_path, *held, later))) == []
    assert kinds(w1_mutex.check(evidence(tmp_path, *held, within))) == ["two holders"]
    first, second = op("k", "acquire", "a", 1, 1, 2, 10.0), op("k", "acquire", "b", 2, 3, 4, 10.0)
    assert kinds(w1_mutex.check(evidence(tmp_path, first, second))) == ["not linearizable"]
    wiped = evidence(tmp_path, first, second)._replace(wipes=((2.2, 2.4),))
    assert kinds(w1_mutex.check(wiped)) == []


def test_w1_allows_for_a_call_that_may_have_been_granted_and_undone(tmp_path: Path) -> None:
    refused = op("k", "acquire", "b", 0, 1, 2, 10.0)
    unanswered = op("k", "acquire", "a", UNANSWERED, 0.5, math.inf, 10.0)
    granted, undone = op("k", "acquire", "c", 9, 3, 4, 10.0), note("unknown", "k", ["release", "a", 0.5])
    assert kinds(w1_mutex.check(evidence(tmp_path, unanswered, refused, granted))) == ["not linearizable"]
    assert kinds(w1_mutex.check(evidence(tmp_path, unanswered, refused, granted, undone))) == []


def test_w2_counts_a_loss_as_the_controls_only_after_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "sets.db"
    sets = Sets(path, fenced=False)
    sets.create()
    sets.write("s", ["b"], 2)
    both = [note("added", "s", ["a", False]), note("added", "s", ["b", False])]
    found = w2_unfenced_set.check(evidence(tmp_path, *both, sets=str(path), pauses=False))
    assert kinds(found) == ["lost without a pause"]
    assert kinds(w2_unfenced_set.check(evidence(tmp_path, *both, sets=str(path), pauses=True))) == ["control lost"]
    late = note("added", "s", ["c", True])  # the machine itself kept its writer waiting
    assert kinds(w2_unfenced_set.check(evidence(tmp_path, *both, late, sets=str(path), pauses=False))) == [
        "control lost"
    ]


def test_w3_finds_what_a_resource_without_fences_would_accept(tmp_path: Path) -> None:
    path = tmp_path / "sets.db"
    sets, open_to_all = Sets(path, fenced=True), Sets(path, fenced=False)
    sets.create()
    assert sets.read("s", 2) == []
    with pytest.raises(StaleFence):
        sets.write("s", ["stale"], 1)
    sets.write("s", ["a"], 2)
    added = note("added", "s", ["a", False])
    assert kinds(w3_fenced_set.check(evidence(tmp_path, added, sets=str(path)))) == []
    open_to_all.write("s", ["stale"], 1)
    assert kinds(w3_fenced_set.check(evidence(tmp_path, added, sets=str(path)))) == [
        "member lost",
        "stale write accepted",
    ]


@pytest.mark.parametrize(("fence", "count"), [(6, 0), (5, 1), (4, 1)])
def test_w4_finds_a_fence_that_did_not_grow(fence: int, count: int) -> None:
    grants = [op("k", "acquire", "a", 5, 1, 2), op("k", "acquire", "b", fence, 3, 4), op("l", "acquire", "c", 1, 5, 6)]
    assert w4_fences.regressions(grants) == count


def test_w4_orders_only_what_was_not_at_the_same_time() -> None:
    assert w4_fences.regressions([op("k", "acquire", "a", 5, 1, 3), op("k", "acquire", "b", 4, 2, 4)]) == 0


def test_w5_finds_ids_that_two_or_nobody_got_and_marks_that_are_gone(tmp_path: Path) -> None:
    first, again = op("i", "first", "a", True, 1, 2, 60.0), op("i", "first", "b", True, 3, 4, 60.0)
    seen, doubtful = op("j", "first", "a", False, 1, 2, 60.0), op("j", "first", "b", UNANSWERED, 0, math.inf, 60.0)
    assert kinds(w5_dedup.check(evidence(tmp_path, first, again))) == ["first twice", "not linearizable", "mark lost"]
    assert kinds(w5_dedup.check(evidence(tmp_path, seen))) == ["nobody was first", "not linearizable"]
    assert kinds(w5_dedup.check(evidence(tmp_path, seen, doubtful))) == []


def test_w6_finds_a_second_sender_and_a_hit_too_many(tmp_path: Path) -> None:
    sent = [op("s", "reserve", "a", 1, 1, 2, 30.0), op("s", "record", "a", True, 3, 4, 60.0)]
    assert kinds(w6_reservations.check(evidence(tmp_path, *sent))) == []
    again = op("s", "reserve", "b", 2, 5, 6, 30.0)
    assert kinds(w6_reservations.check(evidence(tmp_path, *sent, again))) == ["not linearizable"]
    hits = [op("l", "hit", str(n), True, n / 10, n / 10 + 0.05, 3, 1.0) for n in range(4)]
    assert w6_reservations.over_limit(hits[:3]) == 0
    assert w6_reservations.over_limit(hits) == 1
    assert w6_reservations.over_limit([*hits[:3], hits[3]._replace(begin=1.2, end=1.25)]) == 0
    refused = [*hits[:3], hits[3]._replace(output=False)]
    assert w6_reservations.over_limit(refused) == 0


def test_w7_finds_two_results_and_results_that_are_gone(tmp_path: Path) -> None:
    won, published = op("c", "claim", "a", 1, 1, 2, 9.0), op("c", "publish", "a", True, 3, 4, "x", 60.0)
    other = op("c", "claim", "b", ("value", "y"), 5, 6, 9.0)
    assert kinds(w7_claims.check(evidence(tmp_path, won, published))) == ["result lost"]
    found = kinds(w7_claims.check(evidence(tmp_path, won, published, other)))
    assert found == ["results differ", "not linearizable", "result lost"]
    twice = op("c", "publish", "b", True, 7, 8, "y", 60.0)
    assert "published twice" in kinds(w7_claims.check(evidence(tmp_path, won, published, twice)))


def test_w8_counts_the_time_in_which_the_machine_did_not_run_the_worker(tmp_path: Path) -> None:
    def found(granted: bool, waited: float, delay: float) -> list[str]:
        waits = [note("waited", f"live-{number}", [granted, waited, delay]) for number in range(w8_liveness.KEYS)]
        return kinds(w8_liveness.check(evidence(tmp_path, *waits)))

    assert found(True, 1.9, 0.0) == []
    assert found(True, 3.0, 0.0) == ["acquired late"]
    assert found(True, 3.0, 0.6) == []
    assert found(False, 60.0, 0.0) == ["waited for ever"]
    assert kinds(w8_liveness.check(evidence(tmp_path))) == ["waited for ever"]


def test_w8_misses_no_fresh_worker_that_did_not_end(tmp_path: Path) -> None:
    waits = [note("waited", f"live-{number}", [True, 0.1, 0.0]) for number in range(w8_liveness.KEYS)]
    one, two = [note("fresh", "", None)], [note("fresh", "", None), note("fresh", "", None)]
    assert kinds(w8_liveness.check(evidence(tmp_path, *one, *waits))) == []
    assert kinds(w8_liveness.check(evidence(tmp_path, *two, *waits))) == ["waited for ever"]


def test_w9_finds_items_that_are_lost_and_deliveries_after_an_ack(tmp_path: Path) -> None:
    pushed, taken = op("q/i", "push", "", True, 1, 2, "i"), op("q", "take", "a", "i", 3, 4, 5.0)
    acked, again = op("q/i", "ack", "a", True, 5, 6, "i"), op("q", "take", "b", "i", 7, 8, 5.0)
    assert kinds(w9_queue.check(evidence(tmp_path, pushed))) == ["item lost"]
    assert kinds(w9_queue.check(evidence(tmp_path, pushed, taken, acked))) == []
    found = kinds(w9_queue.check(evidence(tmp_path, pushed, taken, acked, again)))
    assert found == ["delivered after its ack", "not linearizable"]


def test_w9_allows_that_a_push_without_a_reply_is_repeated_after_the_ack(tmp_path: Path) -> None:
    pushed, taken = op("q/3.1", "push", "", True, 1, 9, "3.1"), op("q", "take", "a", "3.1", 3, 4, 5.0)
    acked, again = op("q/3.1", "ack", "a", True, 5, 6, "3.1"), op("q", "take", "b", "3.1", 10, 11, 5.0)
    retried = note("retry", "", "Push", at=7.0, worker=3)
    assert kinds(w9_queue.check(evidence(tmp_path, pushed, taken, acked, again, retried))) == []
    other = retried._replace(worker=4)
    assert kinds(w9_queue.check(evidence(tmp_path, pushed, taken, acked, again, other))) == [
        "delivered after its ack", "not linearizable",
    ]  # fmt: skip


def test_w9_allows_that_a_give_back_without_a_reply_is_repeated_after_another_take(tmp_path: Path) -> None:
    pushed, taken = op("q/i", "push", "", True, 1, 2, "i"), op("q", "take", "3.1", "i", 3, 4, 50.0)
    returned, again = op("q/i", "give_back", "3.1", False, 5, 9, "i"), op("q", "take", "b", "i", 6, 7, 50.0)
    acked = op("q/i", "ack", "b", True, 10, 11, "i")
    retried = note("retry", "", "Return", at=8.0, worker=3)
    assert kinds(w9_queue.check(evidence(tmp_path, pushed, taken, returned, again, acked, retried))) == []
    assert kinds(w9_queue.check(evidence(tmp_path, pushed, taken, returned, again, acked))) == ["not linearizable"]


def test_an_error_that_no_client_should_see_is_a_finding(tmp_path: Path) -> None:
    seen = evidence(tmp_path, note("error", "k", "Busy"), note("error", "k", "unexpected StoreFailed: no"))
    assert kinds(WORKLOADS["W4"].check(seen)) == ["unexpected error"]
    assert kinds(WORKLOADS["W4"].check(seen._replace(expects=("StoreFailed: no",)))) == []


# -- histories as files


def test_a_kept_history_can_be_checked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [op("mutex-1", "acquire", "a", 1, 1, 2, 10.0), op("mutex-1", "release", "a", True, 3, 4)]
    assert kinds(w1_mutex.check(evidence(tmp_path, *good))) == []
    assert check_again(["lock", str(tmp_path / "lock.jsonl")]) == 0
    assert "linearizable: 2 operations on 1 keys" in capsys.readouterr().out
    bad = [*good, op("mutex-1", "acquire", "b", 1, 5, 6, 10.0)]  # the same fence again
    assert kinds(w1_mutex.check(evidence(tmp_path, *bad))) == ["not linearizable"]
    assert check_again(["lock", str(tmp_path / "lock.jsonl")]) == 1
    with pytest.raises(SystemExit):
        check_again(["lock", str(tmp_path / "missing.jsonl")])


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.gz")), ids=lambda path: path.name.partition(".jsonl")[0])
def test_the_histories_of_the_documentation_are_judged_as_it_says(path: Path) -> None:
    model = path.name.split(".")[1]
    assert check_again([model, str(path)]) == (1 if path.name.startswith("planted-") else 0)


def test_a_history_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    whole = next(iter(HISTORIES.glob("*.lock.jsonl.gz"))).read_bytes()
    for content in (whole[:-20], whole[:500] + b"\0" * 20 + whole[520:], b"no history"):
        path = tmp_path / "lock.jsonl.gz"
        path.write_bytes(content)
        with pytest.raises(SystemExit):
            check_again(["lock", str(path)])


# -- plans


def test_every_round_that_is_planned_can_be_run() -> None:
    for length in (SHORT, LONG):
        plans = list(planned(length, Choice(), 1))
        assert len({plan.seed for plan in plans}) == len(plans)
        for plan in plans:
            fault = FAULTS[plan.fault]
            assert plan.deployment in fault.deployments, plan
            assert plan.deployment in DEPLOYMENTS
            assert set(plan.workloads) <= set(all_workloads(plan.deployment, plan.fault)), plan


def test_a_run_has_every_workload_and_every_fault() -> None:
    plans = list(planned(SHORT, Choice(), 1))
    assert {name for plan in plans for name in plan.workloads} == set(WORKLOADS)
    assert set(FAULTS) - {plan.fault for plan in plans} == {"kill primary"}  # needs three members: only in a long run
    assert {plan.fault for plan in planned(LONG, Choice(), 1)} == set(FAULTS)


def test_a_choice_leaves_out_the_rest() -> None:
    plans = list(planned(SHORT, Choice(("postgres",), ("W3",), ("data wiped",)), 1))
    assert [(plan.deployment, plan.fault, plan.workloads) for plan in plans] == [("postgres", "data wiped", ("W3",))]


def test_there_are_enough_planted_bugs_and_all_can_be_planted() -> None:
    assert len(MUTANTS) >= 15
    assert {mutant.workload for mutant in MUTANTS} == set(WORKLOADS) - {"W2"}
    for mutant in MUTANTS:
        assert callable(mutant.plant)
        assert mutant.deployment in FAULTS[mutant.fault].deployments


def test_a_bug_is_not_planted_where_there_is_nothing_to_alter() -> None:
    text = "function a()\n  x\nend\nfunction b()\n  x\nend\n"
    assert altered(text, ("x", "y"), within="function b(") == "function a()\n  x\nend\nfunction b()\n  y\nend\n"
    with pytest.raises(ValueError, match="nothing to alter"):
        altered(text, ("z", "y"))


# -- the report


def result(*findings: tuple[str, Finding], fault: str = "none", control: int = 0) -> RoundResult:
    plan = RoundPlan("redis", ("W1", "W2"), fault, 7)
    return RoundResult(plan, Counter({"W1": 10, "W2": 5}), 3, list(findings), [], control, 0, 1.0, [0.5])


def test_a_report_is_ok_only_if_nothing_broke_and_the_control_lost_data() -> None:
    assert Report(1, [result()]).ok
    assert not Report(1, [result(fault="pause client 5 ttl")]).ok
    assert Report(1, [result(fault="pause client 5 ttl", control=2)]).ok
    assert not Report(1, [result(("W1", Finding("two holders", 1)))]).ok
    assert not Report(1, [result()], soak_failures=["redis: rows +9%"]).ok
    assert not Report(1, [result()], broken=["a round"]).ok


def test_the_json_has_exactly_what_is_promised() -> None:
    report = Report(1, [result(("W1", Finding("two holders", 2)), fault="kill client")], not_done=[("partition", "no")])
    told = json.loads(json.dumps(report.as_json()))
    assert told.keys() == {
        "N", "faults", "violations", "control_lost", "planted_caught", "planted_total", "versions", "seeds",
    }  # fmt: skip
    assert (told["N"], told["faults"]) == (15, {"kill client": 3, "partition": 0})
    assert told["violations"] == {"W1 two holders": 2}
    assert "not done here: partition (no)" in report.text()


def test_a_figure_that_grows_is_not_flat() -> None:
    flat = [Measurement(minute, 150.0, 30, 8, 4, 300 + minute % 3) for minute in range(60)]
    assert drifts(flat) == {}
    grown = [each._replace(rss_mb=150.0 + each.minute, files=30 + int(each.minute) // 10) for each in flat]
    assert drifts(grown).keys() == {"rss_mb", "files"}


# -- real servers


@pytest.mark.timeout(600)
def test_a_round_on_a_real_server_breaks_no_promise(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chaos", "--short", "--json", "--no-mutants", "--store", "redis"]
    command += ["--fault", "kill server", "--workload", "W1", "--workload", "W9", "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["violations"] == {}
    assert told["faults"] == {"kill server": 2}
    [history] = tmp_path.glob("*/W1/lock.jsonl")
    assert check_again(["lock", str(history)]) == 0


@pytest.mark.timeout(600)
def test_a_server_that_keeps_nothing_is_found_out(tmp_path: Path) -> None:
    deployment = Redis()
    deployment.server = Valkey()
    plan = RoundPlan("redis", ("W5",), "kill server", 1, 1.0, 1, settings=ONE_BY_ONE)
    with deployment:
        found = run_round(deployment, FAULTS["kill server"], plan, tmp_path).findings
    assert "first twice" in {finding.kind for _, finding in found}
