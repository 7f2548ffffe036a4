"""A command that is killed leaves no program behind: after the ttl another process does the same work, and this one
would go on beside it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from solely import Client
from tests.cli.conftest import Start, is_alive, text_of, until

CHILDREN = ("ignores", "limited", "apart")
# Starts one child that ignores SIGTERM, and two in groups of their own; each writes its pid to a file of its name.
FAMILY = """
sh -c 'trap "" TERM; echo $$ > {folder}/ignores; while :; do sleep 0.05; done' &
timeout 600 sh -c 'echo $$ > {folder}/limited; sleep 600; true' &
setsid sh -c 'echo $$ > {folder}/apart; sleep 600; true' &
wait
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def script(tmp_path: Path) -> str:
    return FAMILY.format(folder=tmp_path)


def words_of(command: str, script: str, url: str, folder: Path) -> tuple[str, ...]:
    """The command that runs the script, and what it needs."""
    if command == "cron":
        file = folder / "jobs.toml"
        file.write_text(f"[jobs.endless]\nschedule = 0.2\nttl = '60s'\ncommand = {json.dumps(script)}\n")
        return ("cron", str(file))
    if command == "dlq":
        with Client(url) as once:
            once.dead_letters("mails").push("a payload", error="away")
        return ("dlq", "replay", "mails", "--all", "--handler", script)
    return (*{"run": ("run", "--lock", "a"), "once": ("once", "a")}[command], "--grace", "1s", "--", "sh", "-c", script)


def pids(folder: Path) -> list[int]:
    return [int(text_of(folder / name)) for name in CHILDREN]


@pytest.mark.parametrize("command", ["run", "once", "cron", "dlq"])
def test_a_command_that_is_killed_leaves_no_program_behind(
    command: str, url: str, script: str, start: Start, tmp_path: Path
) -> None:
    running = start(url, *words_of(command, script, url, tmp_path))
    started = pids(tmp_path)
    assert all(map(is_alive, started))
    running.send(signal.SIGKILL)
    until(lambda: not any(map(is_alive, started)), "the end of all that it started")


def test_a_cron_that_is_killed_leaves_no_daemon_behind(url: str, start: Start, tmp_path: Path) -> None:
    """A daemon has left its parent, its group and its session."""
    daemon = f"setsid sh -c 'sh -c \"echo \\$\\$ > {tmp_path}/daemon; exec sleep 600\" & exit'"
    running = start(url, *words_of("cron", f"{daemon}; sleep 600; true", url, tmp_path))
    started = int(text_of(tmp_path / "daemon"))
    assert is_alive(started)
    running.send(signal.SIGKILL)
    until(lambda: not is_alive(started), "the end of the daemon")


def test_a_lease_that_is_lost_ends_what_left_the_group(url: str, script: str, start: Start, tmp_path: Path) -> None:
    running = start(url, *words_of("run", script, url, tmp_path))
    started = pids(tmp_path)
    with Client(url) as once:
        assert once.clear_lock("a", reason="a test")
    assert running.ended().code == 6
    until(lambda: not any(map(is_alive, started)), "the end of all that it started")


def test_a_signal_for_the_command_reaches_what_left_the_group(url: str, start: Start, tmp_path: Path) -> None:
    """Else it would work on when the lock is released."""
    script = f"timeout 600 sh -c 'echo $$ > {tmp_path}/limited; sleep 600; true'; true"
    running = start(url, "run", "--lock", "a", "--", "sh", "-c", script)
    limited = int(text_of(tmp_path / "limited"))
    running.send(signal.SIGTERM)
    assert running.ended().code == 128 + signal.SIGTERM
    until(lambda: not is_alive(limited), "the end of what it started")
