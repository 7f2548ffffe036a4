"""`solely run`: the command runs while the lock is held, and no longer, whatever happens to whom."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from solely import Client
from solely.model import State
from tests.cli.conftest import Run, Start, is_alive, text_of, until
from tests.client.modes import Observer
from tests.lateness import measured_lateness
from tests.servers import Valkey, free_port

TTL = 6.0  # seconds: between SIGKILL and the deadline a sixteenth is left, for a machine that is busy
on_a_file = pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # where the store makes no difference
# Says its pid, then runs until it is ended.
LASTS = "echo $$ > {pid}; while :; do sleep 0.05; done"
IGNORES_TERM = "trap '' TERM; " + LASTS
# Says whether the process of the pid file is still there.
LOOKS = "grep -q '^State:.[^Z]' /proc/$(cat {pid})/status 2> /dev/null && echo both || echo alone"


def sh(script: str, **names: object) -> tuple[str, ...]:
    return ("--", "sh", "-c", script.format(**names))


@on_a_file
def test_the_exit_code_of_the_command_is_ours(url: str, run: Run) -> None:
    told = run(url, "run", "--lock", "a", *sh("echo out; echo err >&2; exit 7"))
    assert told == (7, "out\n", "err\n")


@on_a_file
def test_a_command_that_a_signal_ended_gives_128_and_the_signal(url: str, run: Run) -> None:
    assert run(url, "run", "--lock", "a", *sh("kill -KILL $$")).code == 128 + signal.SIGKILL


def test_the_fence_is_in_the_environment_and_grows(url: str, run: Run) -> None:
    fences = [int(run(url, "run", "--lock", "a", *sh("echo $SOLELY_FENCE")).out) for _ in range(2)]
    assert 0 < fences[0] < fences[1]


@on_a_file
def test_options_of_the_command_need_no_dashes_before_it(url: str, run: Run) -> None:
    assert run(url, "run", "--lock", "a", "sh", "-c", "echo $1", "x", "--lock").out == "--lock\n"


def test_what_somebody_else_holds_is_busy_and_is_free_after_the_command(url: str, run: Run) -> None:
    with Client(url) as once, once.lock("a", purpose="deploy"):
        told = run(url, "run", "--lock", "a", *sh("echo no"))
        assert (told.code, told.out) == (5, "")
        assert "(deploy)" in told.err
        skipped = run(url, "run", "--lock", "a", "--skip-busy", *sh("echo no"))
        assert (skipped.code, skipped.out) == (0, "")
        assert run(url, "run", "--lock", "a", "-E", "7", *sh("echo no")).code == 7
    assert run(url, "run", "--lock", "a", *sh("echo yes")).out == "yes\n"
    with Client(url) as once:
        assert once.try_lock("a") is not None


def test_since_is_when_the_command_got_the_lock_not_when_it_began_to_wait(
    url: str, observer: Observer, start: Start, solely: Run, tmp_path: Path
) -> None:
    with Client(url) as once:
        lease = once.lock("a", ttl=60)
        start(url, "run", "--lock", "a", "--wait", "60s", *sh(LASTS, pid=tmp_path / "pid"))
        until(lambda: observer.lock("a").waiters == 1, "the waiter is queued")
        queued = time.time()
        until(lambda: time.time() > queued + 2.0, "two seconds passed: the moment is stored in whole ones")
        released = datetime.fromtimestamp(int(time.time()), UTC)
        lease.release()
    text_of(tmp_path / "pid")
    (row,) = json.loads(solely(url, "locks", "list", "-o", "json").out)
    assert datetime.fromisoformat(row["since"]) >= released


def test_who_waits_gets_it(url: str, observer: Observer, start: Start) -> None:
    with Client(url) as once:
        lease = once.lock("a")
        waiter = start(url, "run", "--lock", "a", "--wait", "30s", *sh("echo at last"))
        until(lambda: observer.lock("a").waiters == 1, "the waiter is queued")
        lease.release()
        assert waiter.ended() == (0, "at last\n", "")


@on_a_file
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_ended_while_waiting_holds_nothing(
    url: str, observer: Observer, start: Start, number: signal.Signals
) -> None:
    with Client(url) as once:
        lease = once.lock("a")
        waiter = start(url, "run", "--lock", "a", "--wait", "30s", *sh("echo no"))
        until(lambda: observer.lock("a").waiters == 1, "the waiter is queued")
        waiter.send(number)
        told = waiter.ended()
        assert (told.code, told.out) == (128 + number, "")
        assert observer.lock("a").waiters == 0
        lease.release()
    assert observer.lock("a").state is State.FREE


@on_a_file
@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "USR1"])
def test_signals_are_passed_on(url: str, start: Start, tmp_path: Path, name: str) -> None:
    said = tmp_path / "said"
    script = f"trap 'echo got {name}; exit 9' {name}; echo ready > {said}; while :; do sleep 0.05; done"
    running = start(url, "run", "--lock", "a", *sh(script))
    text_of(said)
    running.send(getattr(signal, f"SIG{name}"))
    told = running.ended()
    assert (told.code, told.out) == (9, f"got {name}\n")
    with Client(url) as once:
        assert once.try_lock("a") is not None


def test_after_sigkill_of_the_holder_another_takes_over_in_time_and_finds_the_command_gone(
    url: str, observer: Observer, start: Start, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    holder = start(url, "run", "--lock", "a", "--ttl", f"{TTL}s", *sh(LASTS, pid=pid))
    command = int(text_of(pid))
    waiter = start(url, "run", "--lock", "a", "--wait", "30s", *sh(LOOKS, pid=pid))
    until(lambda: observer.lock("a").waiters == 1, "the waiter is queued")
    killed = time.monotonic()
    holder.send(signal.SIGKILL)
    assert waiter.ended() == (0, "alone\n", "")
    assert time.monotonic() - killed < 20.0  # well before its wait is over
    assert not is_alive(command)


@pytest.mark.parametrize("script", [LASTS, IGNORES_TERM])
def test_a_holder_that_is_stopped_beyond_its_lease_finds_the_command_ended(
    url: str, start: Start, tmp_path: Path, script: str
) -> None:
    pid = tmp_path / "pid"
    holder = start(url, "run", "--lock", "a", "--ttl", f"{TTL}s", *sh(script, pid=pid))
    command = int(text_of(pid))
    holder.send(signal.SIGSTOP)
    successor = start(url, "run", "--lock", "a", "--wait", "30s", *sh(LOOKS, pid=pid))
    assert successor.ended() == (0, "alone\n", "")
    assert not is_alive(command)
    holder.send(signal.SIGCONT)
    told = holder.ended()
    assert told.code == 6
    assert "the command was ended" in told.err


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(
    url: str, start: Start, run: Run, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    holder = start(url, "run", "--lock", "a", "--ttl", "3s", "--grace", "0.5s", *sh(IGNORES_TERM, pid=pid))
    command = int(text_of(pid))
    assert run(url, "locks", "clear", "a", "--yes", "--reason", "a test").code == 0
    told = holder.ended()
    assert told.code == 6
    assert "was lost (cleared)" in told.err
    assert not is_alive(command)


@on_a_file
def test_what_the_command_has_started_ends_with_it(url: str, start: Start, run: Run, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = "sh -c '" + LASTS.format(pid=pid) + "' & wait"
    holder = start(url, "run", "--lock", "a", "--ttl", "2s", "--grace", "0.2s", *sh(script))
    grandchild = int(text_of(pid))
    assert run(url, "locks", "clear", "a", "--yes", "--reason", "a test").code == 0
    assert holder.ended().code == 6
    until(lambda: not is_alive(grandchild), "the grandchild has ended")


@on_a_file
def test_without_its_watchdog_the_command_does_not_go_on(url: str, start: Start, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    holder = start(url, "run", "--lock", "a", *sh(IGNORES_TERM, pid=pid))
    command = int(text_of(pid))
    os.kill(os.getpgid(command), signal.SIGKILL)  # the watchdog leads the group
    assert holder.ended().code == 6
    assert not is_alive(command)


@on_a_file
def test_max_hold_ends_the_command(url: str, run: Run) -> None:
    told = run(url, "run", "--lock", "a", "--max-hold", "1s", "--ttl", "2s", *sh("sleep 60"))
    assert told.code == 6


def test_a_store_that_restarts_with_its_data_is_not_noticed(start: Start, tmp_path: Path) -> None:
    pid, go = tmp_path / "pid", tmp_path / "go"
    script = "echo $$ > {pid}; while [ ! -e {go} ]; do sleep 0.05; done; echo done"
    with Valkey(appendonly="yes", appendfsync="always") as server:
        holder = start(server.url, "run", "--lock", "a", "--ttl", "6s", *sh(script, pid=pid, go=go))
        text_of(pid)
        observer = Observer(server.url)
        fence = observer.lock("a").fence
        observer.close()
        server.kill()
        server.start()
        observer = Observer(server.url)
        until(lambda: observer.lock("a").left > 5.5, "the lease was renewed after the restart")
        assert observer.lock("a").fence == fence
        observer.close()
        go.touch()
        assert holder.ended() == (0, "done\n", "")


def test_a_store_that_restarts_empty_has_lost_the_lease_and_the_command_is_ended(start: Start, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with Valkey() as server:
        holder = start(server.url, "run", "--lock", "a", "--ttl", "4s", *sh(LASTS, pid=pid))
        command = int(text_of(pid))
        server.kill()
        server.start()
        assert holder.ended().code == 6
        assert not is_alive(command)


def test_a_store_that_stays_away_ends_the_command_before_the_lease_does(start: Start, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with Valkey() as server:
        holder = start(server.url, "run", "--lock", "a", "--ttl", "2s", *sh(IGNORES_TERM, pid=pid))
        command = int(text_of(pid))
        with measured_lateness() as lateness:
            away = time.monotonic()
            server.kill()
            until(lambda: not is_alive(command), "the command has ended")
            assert time.monotonic() - away < 2.0 + 0.5 + lateness.seconds
        assert holder.ended().code == 6


def test_of_two_hosts_with_the_same_cron_line_one_runs(url: str, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = ("run", "--lock", "nightly", "--at-least", "60s", "--skip-busy", *sh("echo ran >> {log}", log=log))
    hosts = [start(url, *line) for _ in range(3)]
    assert [host.ended().code for host in hosts] == [0, 0, 0]
    assert log.read_text() == "ran\n"


def test_a_store_that_is_not_there_is_75(run: Run) -> None:
    told = run(f"redis://127.0.0.1:{free_port()}", "run", "--lock", "a", "--timeout", "300ms", *sh("echo no"))
    assert (told.code, told.out) == (75, "")
    assert "Traceback" not in told.err


@on_a_file
def test_a_command_that_is_not_there_takes_no_lock(url: str, run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    with Client(url) as once, once.lock("a"):
        assert run(url, "run", "--lock", "a", "--", "no-such-command").code == 127
        assert run(url, "run", "--lock", "a", "--", str(text)).code == 126


@on_a_file
def test_a_file_that_is_no_program_is_126_and_lets_go(url: str, run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"\0no program")
    text.chmod(0o755)
    assert run(url, "run", "--lock", "a", "--", str(text)).code == 126
    with Client(url) as once:
        assert once.try_lock("a") is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ttl", "soon"), "not a duration"),
        (("--ttl", "30s", "--grace", "20s"), "third"),
        (("--ttl", "0"), "out of bounds"),
        (("--url", "memory://"), "one process"),
        (("--url", "nosuch://x"), "no store serves"),
    ],
)
def test_what_cannot_be_is_2(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    told = run(f"sqlite:///{tmp_path}/s.db", "run", "--lock", "a", *words, *sh("echo no"))
    assert (told.code, told.out) == (2, "")
    assert said in told.err
