"""scripts/bench measures what it says and prints what programs can read. No figure is asserted: machines differ."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import redis

from bench.__main__ import CASES
from bench.drawing import CHARTS, draw
from bench.harness import Goal, Row, interleave, ratios
from bench.libraries import LIBRARIES
from bench.peer_processes import Peers
from bench.relay import relay
from bench.report import flat_json, table
from bench.workers import fairness, thread_rate, thread_turns
from tests.servers import Valkey

ROOT = Path(__file__).parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)


def test_json_is_one_flat_object_of_numbers_on_stdout() -> None:
    done = bench("--only", "seen", "--json", "--quick")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert list(figures) == ["seen.cache.us"]
    assert all(isinstance(figure, float) and figure > 0 for figure in figures.values())
    assert "seen.cache.us" in done.stderr


def test_a_prefix_that_fits_nothing_is_answered_with_the_keys_there_are() -> None:
    done = bench("--only", "nothing")
    assert done.returncode == 2
    assert not done.stdout
    assert "pair.redis.sync.1.vs_redispy" in done.stderr


def test_keys_are_unique_and_only_times_and_costs_have_an_upper_bound() -> None:
    goals = [goal for case in CASES for goal in case.goals]
    assert len({goal.key for goal in goals}) == len(goals)
    bounded_above = {goal.key for goal in goals if goal.at_most}
    costs = (".us", "_us", "_ms", ".total_s", "_mb", "_per_caller", "_per_probe")
    assert bounded_above == {goal.key for goal in goals if goal.key.endswith(costs)}


def test_sides_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def side(name: str) -> int:
        calls.append(name)
        return len(calls)

    results = interleave({"ours": lambda: side("ours"), "peer": lambda: side("peer")}, 2)
    assert calls == ["ours", "peer"] * 3
    assert results == {"ours": [3, 5], "peer": [4, 6]}
    assert ratios(results["ours"], results["peer"]) == [3 / 4, 5 / 6]


def test_the_table_shows_median_range_and_a_missed_goal() -> None:
    rows = [
        Row(Goal("fast", 2.0, "a peer"), "one core", [1.0, 4.0, 3.0]),
        Row(Goal("slow", 2.0, "a peer"), "one core", [1.0, 1.5, 3.0]),
        Row(Goal("time", 2.0, "a clock", at_most=True), "one core", [2.5]),
    ]
    _, fast, slow, time = table(rows).splitlines()
    assert fast.split()[:5] == ["fast", "3.00", "1.00-4.00", ">=", "2"]
    assert "MISSED" not in fast
    assert slow.split()[:6] == ["slow", "1.50", "1.00-3.00", ">=", "2", "MISSED"]
    assert time.split()[3:6] == ["<=", "2", "MISSED"]
    assert json.loads(flat_json(rows)) == {"fast": 3.0, "slow": 1.5, "time": 2.5}


def test_each_thread_has_a_key_of_its_own_and_every_call_counts() -> None:
    keys: list[str] = []
    assert thread_rate(keys.append, 3, 0.02) > 0
    assert set(keys) == {"key-0", "key-1", "key-2"}


def test_a_turn_counts_when_it_was_held_in_time() -> None:
    assert thread_turns(lambda hold: hold(), 2, 0.0, 0.0) == [0, 0]
    assert fairness([8, 10]) == pytest.approx(0.8)


def test_a_library_works_in_a_process_of_its_own(tmp_path: Path) -> None:
    with Peers("ours", f"sqlite:///{tmp_path}/locks.db", processes=2) as ours:
        assert ours.rate("pairs", 0.01) > 0
        assert ours.rate("fresh", 0.01) > 0
        assert ours.rate("replays", 0.01) > 0
        assert len(ours.turns(0.01)) == 2


def test_every_library_is_compared() -> None:
    compared = {match[1] for case in CASES for goal in case.goals if (match := re.search(r"\.vs_(\w+)$", goal.key))}
    assert set(LIBRARIES) - {"ours"} <= compared


def test_a_relay_counts_what_passes(valkey: Valkey) -> None:
    with relay((valkey.host, valkey.port)) as counting, redis.Redis(port=counting.port) as client:
        client.ping()
        before = counting.traffic()
        for _ in range(3):
            client.ping()
        after = counting.traffic()
    sent, received, round_trips = (late - early for late, early in zip(after, before, strict=True))
    assert (sent, received, round_trips) == (3 * len("*1\r\n$4\r\nPING\r\n"), 3 * len("+PONG\r\n"), 3)


def test_drawings_show_every_curve_in_light_and_dark() -> None:
    point = {"client_us": 100.0, "store_us": 50.0, "per_s": 1000.0}
    for chart in CHARTS:
        keys = [f"{family}.{store}" for family in chart.families for store in ("redis", "sqlite")]
        curves = {key: [{"x": x, **point} for x in (1, 10, 100)] for key in keys}
        drawn = ElementTree.fromstring(draw(chart, curves))
        shown = [each for each in drawn.iter() if each.get("class", "").startswith("line")]
        assert len(shown) == len(curves)
        assert "prefers-color-scheme: dark" in draw(chart, curves)
