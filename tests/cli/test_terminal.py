"""`solely run` on a terminal: the command can use it as if we were not there."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import ENDS_WITHIN

# Makes the terminal that of its session, and itself the program that is to be run there.
ON_TERMINAL = """
import os, sys
tty = os.open(sys.argv[1], os.O_RDWR)
for standard in (0, 1, 2):
    os.dup2(tty, standard)
os.execvp(sys.argv[2], sys.argv[2:])
"""
SOLELY = f"{sys.executable} -m solely.cli"


class Tty:
    """A terminal with a program on it."""

    def __init__(self, url: str, *words: str) -> None:
        self._ours, self._theirs = os.openpty()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SOLELY_URL": url}
        environment |= {"PS1": "$ ", "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ON_TERMINAL, os.ttyname(self._theirs), *words],
            env=environment,
            start_new_session=True,
        )
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def expect(self, text: str) -> str:
        """What was shown up to and with this text."""
        ends = time.monotonic() + ENDS_WITHIN
        while text not in self.seen:
            ready = select.select([self._ours], [], [], max(0.0, ends - time.monotonic()))[0]
            assert ready, f"{text!r} was not shown: {self.seen!r}"
            self.seen += os.read(self._ours, 4096).decode()
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/solely.db"


@pytest.fixture
def shell(url: str) -> Iterator[Tty]:
    tty = Tty(url, "bash", "--norc", "--noprofile", "-i")
    yield tty
    tty.end()


def test_the_command_reads_from_the_terminal(url: str) -> None:
    tty = Tty(url, *SOLELY.split(), "run", "--lock", "a", "--", "sh", "-c", "echo ask; read it; echo got $it")
    try:
        tty.expect("ask")
        tty.type("hello\n")
        tty.expect("got hello")
        assert tty.process.wait(ENDS_WITHIN) == 0
    finally:
        tty.end()


@pytest.mark.parametrize("lent", [False, True])
def test_interrupting_reaches_the_command_once(url: str, lent: bool) -> None:
    script = (
        "trap 'echo interrupted; exit 9' INT; echo ready; " + ("read it; " if lent else "") + "sleep 60 & wait; wait"
    )
    tty = Tty(url, *SOLELY.split(), "run", "--lock", "a", "--", "sh", "-c", script)
    try:
        tty.expect("ready")
        if lent:
            tty.type("x\n")
            time.sleep(0.3)  # so that it has read, and the terminal is its own
        tty.type("\x03")
        tty.expect("interrupted")
        assert tty.process.wait(ENDS_WITHIN) == 9
        assert "interrupted" not in tty.seen
    finally:
        tty.end()


def test_the_shell_has_its_prompt_while_the_command_is_stopped_and_can_go_on(shell: Tty) -> None:
    shell.expect("$ ")
    shell.type(f"{SOLELY} run --lock a -- sh -c 'echo rea''dy; read it; echo got $it'; echo code $?\n")
    shell.expect("ready")
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.type("fg\n")
    time.sleep(0.3)  # so that what is typed next is not the shell's
    shell.type("hello\n")
    shell.expect("got hello")
    shell.type("echo the en''d\n")
    shell.expect("the end")
