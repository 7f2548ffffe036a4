"""`solely once`: at most once per key; whoever asks again is told how it ended."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from solely import Client
from tests.cli.conftest import Run, Start, is_alive, text_of, until

on_a_file = pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # where the store makes no difference


def sh(script: str, **names: object) -> tuple[str, ...]:
    return ("--", "sh", "-c", script.format(**names))


def test_the_second_call_is_told_code_and_output_of_the_first(url: str, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    call = ("once", "k", *sh("echo ran >> {log}; echo out; echo err >&2; exit 3", log=log))
    assert run(url, *call) == (3, "out\n", "err\n")
    again = run(url, *call)
    assert (again.code, again.out) == (3, "out\n")
    assert "ran before" in again.err
    assert again.err.endswith("err\n")
    assert log.read_text() == "ran\n"
    shown = json.loads(run(url, "claims", "show", "k", "-o", "json").out)
    assert shown["value"]["exit_code"] == 3


@on_a_file
def test_only_the_end_of_the_output_is_remembered_and_all_of_it_is_passed_on(url: str, run: Run) -> None:
    call = ("once", "k", "--tail", "10", *sh("seq 1 20000"))
    assert run(url, *call).out.count("\n") == 20_000
    assert run(url, *call).out == "9\n20000\n".rjust(10, "9")[-10:]


@on_a_file
def test_the_worst_output_is_remembered_with_its_code(url: str, run: Run) -> None:
    call = ("once", "k", "--tail", "20000", *sh("head -c 30000 /dev/zero; head -c 30000 /dev/zero >&2; exit 5"))
    assert run(url, *call).code == 5
    again = run(url, *call)
    assert (again.code, again.out) == (5, "\0" * 20_000)


def test_of_many_at_once_one_runs_and_the_others_are_told(url: str, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    call = ("once", "k", "--wait", "30s", *sh("echo ran >> {log}; sleep 0.5; echo out; exit 4", log=log))
    told = [each.ended() for each in [start(url, *call) for _ in range(3)]]
    assert [(each.code, each.out) for each in told] == [(4, "out\n")] * 3
    assert log.read_text() == "ran\n"


@on_a_file
def test_what_runs_elsewhere_is_busy(url: str, start: Start, run: Run, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    start(url, "once", "k", *sh("echo $$ > {pid}; exec sleep 60", pid=pid))
    text_of(pid)
    told = run(url, "once", "k", *sh("echo no"))
    assert (told.code, told.out) == (5, "")
    assert "is run by" in told.err


def test_what_died_without_an_outcome_is_not_run_again_unless_asked(
    url: str, start: Start, run: Run, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    first = start(url, "once", "k", "--ttl", "1s", *sh("echo $$ > {pid}; exec sleep 60", pid=pid))
    command = int(text_of(pid))
    first.send(signal.SIGKILL)
    until(lambda: not is_alive(command), "its watchdog has ended the command")
    told = run(url, "once", "k", "--wait", "20s", *sh("echo no"))
    assert (told.code, told.out) == (1, "")
    assert "started before" in told.err
    assert "once:k" in told.err
    again = run(url, "once", "k", "--wait", "20s", "--until-success", *sh("echo again"))
    assert (again.code, again.out) == (0, "again\n")
    assert run(url, "once", "k", *sh("echo no")).out == "again\n"


@on_a_file
def test_until_success_a_failure_is_run_again(url: str, run: Run) -> None:
    assert run(url, "once", "k", "--until-success", *sh("exit 8")).code == 8
    assert run(url, "once", "k", "--until-success", *sh("echo done")) == (0, "done\n", "")
    assert run(url, "once", "k", "--until-success", *sh("exit 8")).out == "done\n"


@on_a_file
def test_a_finished_one_that_is_cleared_runs_again(url: str, run: Run) -> None:
    assert run(url, "once", "k", *sh("exit 8")).code == 8
    assert run(url, "claims", "clear", "k", "--yes", "--reason", "fixed").code == 0
    assert run(url, "once", "k", *sh("echo new")) == (0, "new\n", "")


@on_a_file
def test_a_daemon_that_keeps_the_pipe_does_not_keep_us(url: str, run: Run, tmp_path: Path) -> None:
    began = time.monotonic()
    told = run(url, "once", "k", *sh("sleep 8 & echo out"))
    assert (told.code, told.out) == (0, "out\n")
    assert time.monotonic() - began < 8.0


@on_a_file
def test_what_is_no_outcome_of_ours_is_said_so(url: str, run: Run) -> None:
    with Client(url) as once:
        once.claim("k").publish([1, 2])
    told = run(url, "once", "k", *sh("echo no"))
    assert (told.code, told.out) == (1, "")
    assert "another program" in told.err
