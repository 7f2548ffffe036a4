"""`solely cron FILE` and `solely schedules …`: jobs as programs, each tick on one host, and what an operator sees."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from solely import Client
from tests.cli.conftest import ENDS_WITHIN, Run, Start

PATIENCE = 2 * ENDS_WITHIN
BECAUSE = ("--yes", "--reason", "a test")


def until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.02)


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_each_tick_of_a_job_runs_in_one_of_two_processes(url: str, start: Start, tmp_path: Path) -> None:
    ran, file = tmp_path / "ran", tmp_path / "jobs.toml"
    file.write_text(f"""
ttl = "20s"
[jobs.note]
schedule = "@every 0.5s"
command = "echo $SOLELY_TICK >> {ran}; echo noted; echo $SOLELY_FENCE | grep -q '^[0-9]*$'"
[jobs.broken]
schedule = 1
command = ["{file.parent}/missing"]
[jobs.failing]
schedule = 0.5
command = ["sh", "-c", "echo why >&2; exit 3"]
""")
    both = [start(url, "cron", str(file)) for _ in range(2)]
    with Client(url) as once:
        until(lambda: len(lines(ran)) >= 4)
        until(lambda: all(each.outcome for each in once.schedules()) and len(once.schedules()) == 3)
        found = {each.key: each.outcome for each in once.schedules()}
    for each in both:
        each.send(signal.SIGTERM)
    ends = [each.ended() for each in both]
    assert [each.code for each in ends] == [0, 0]
    assert set(Counter(lines(ran)).values()) == {1}
    assert found["note"] == "done"
    assert found["failing"] == "failed: ProgramFailed: the program exited with 3"
    assert found["broken"].startswith("failed: ProgramFailed: ")
    assert "note: noted\n" in ends[0].out + ends[1].out
    assert "failing: why\n" in ends[0].err + ends[1].err


def running(pid: str) -> bool:
    """True if it runs: one that ended, and that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_does_not_outlive_a_process_that_is_killed(url: str, start: Start, tmp_path: Path) -> None:
    """Another process repeats the tick after the ttl, and would run beside it; children that ignore SIGTERM end too."""
    pids, file = tmp_path / "pids", tmp_path / "jobs.toml"
    child = "(trap '' TERM; exec sleep 600)"
    file.write_text(f"""
[jobs.endless]
schedule = 0.3
ttl = "60s"
command = "{child} & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
""")
    killed = start(url, "cron", str(file))
    until(lambda: len(lines(pids)) == 2)
    assert all(running(pid) for pid in lines(pids))
    killed.send(signal.SIGKILL)
    until(lambda: not any(running(pid) for pid in lines(pids)))


def test_a_signal_lets_the_job_that_runs_end_and_a_second_one_ends_it(start: Start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    began, ended, file = tmp_path / "began", tmp_path / "ended", tmp_path / "jobs.toml"
    file.write_text(f"""
[jobs.slow]
schedule = 0.3
command = "echo x >> {began}; sleep 1; echo x >> {ended}"
[jobs.endless]
schedule = 0.3
command = "echo x >> {began}.2; sleep 600"
""")
    running = start(url, "cron", str(file))
    until(lambda: lines(began) and lines(tmp_path / "began.2"))
    running.send(signal.SIGINT)
    until(lambda: len(lines(ended)) == len(lines(began)))
    running.send(signal.SIGINT)
    told = running.ended()
    assert (told.code, "stopping" in told.err) == (0, True)
    assert len(lines(began)) == len(lines(ended))
    with Client(url) as once:
        info = once.schedule_info("endless")
    assert info is not None
    assert (info.state, info.last) == ("overdue", None), "another host takes it over"


def test_check_says_when_each_job_is_due(solely: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text("""
tz = "Europe/Berlin"
[jobs.report]
schedule = "0 3 * * *"
command = "true"
jitter = "10s"
[jobs.often]
schedule = "@every 90s"
command = "true"
""")
    told = solely(f"sqlite:///{tmp_path}/store.db", "cron", "--check", str(file), "-o", "json")
    assert told.code == 0
    found = {row["job"]: row["when"] for row in json.loads(told.out)}
    assert found == {"report": "0 3 * * * Europe/Berlin jitter 10s", "often": "@every 90s"}, "an interval has no zone"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no jobs"),
        ("jobs = 3", "has no jobs"),
        ("[jobs.a", "is not TOML"),
        ("color = 1\n[jobs.a]", "there is no setting 'color'; there are tz"),
        ("[jobs]\na = 3", "job 'a': must be a section"),
        ("[jobs.a]\ncommand = 'x'", "job 'a': has no schedule"),
        ("[jobs.a]\nschedule = 60", "job 'a': has no command"),
        ("[jobs.a]\nschedule = 60\ncommand = []", "command must be a text or a list of texts"),
        ("[jobs.a]\nschedule = 60\ncommand = [1]", "command must be a text or a list of texts"),
        ("[jobs.a]\nschedule = true\ncommand = 'x'", "schedule is True, which has the wrong type"),
        ("[jobs.a]\nschedule = 'daily'\ncommand = 'x'", "job 'a': 'daily' is not a cron expression"),
        ("[jobs.a]\nschedule = 60\ncommand = 'x'\nttl = 'x'", "jobs.toml, job 'a': ttl: 'x' is not a duration"),
        ("[jobs.a]\nschedule = 60\ncommand = 'x'\ntimeout = 0", "job 'a': timeout=0 must be more than 0"),
        ("[jobs.a]\nschedule = 60\ncommand = 'x'\ncolor = 1", "job 'a': there is no setting 'color'; there are tz"),
        ("[jobs.a]\nschedule = '61 * * * *'\ncommand = 'x'", "job 'a': cron expression '61 * * * *': minute: '61'"),
        ("tz = 'Mars'\n[jobs.a]\nschedule = '@daily'\ncommand = 'x'", "job 'a': there is no time zone 'Mars'"),
        ("[jobs.a]\nschedule = 60\ncommand = 'x'\nmisfire = 'x'", "misfire must be one of"),
        ("[jobs.a]\nschedule = 60\ncommand = 'x'\nenvironment = {A = 1}", "environment a table of texts"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place_and_the_reason(
    text: str, why: str, solely: Run, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    told = solely(f"sqlite:///{tmp_path}/store.db", "cron", str(file))
    assert (told.code, why in told.err) == (2, True), told.err


def test_schedules_are_listed_shown_and_forgotten(url: str, solely: Run) -> None:
    with Client(url) as once:
        for name in ("backup", "report"):
            once.every(name, "0 3 * * *").run_due(print)
    listed = json.loads(solely(url, "schedules", "list", "-o", "json").out)
    assert [(row["key"], row["when"], row["state"], row["last"]) for row in listed] == [
        ("backup", "0 3 * * *", "waiting", None),
        ("report", "0 3 * * *", "waiting", None),
    ]
    assert json.loads(solely(url, "schedules", "show", "report", "-o", "json").out)["key"] == "report"
    assert solely(url, "schedules", "show", "none").code == 3
    assert "would forget" in solely(url, "schedules", "forget", "report", "--dry-run", *BECAUSE).err
    assert solely(url, "schedules", "forget", "report", *BECAUSE).code == 0
    assert solely(url, "schedules", "forget", "report", *BECAUSE).code == 3
    assert "schedules.forget" in solely(url, "audit", "-o", "json").out
