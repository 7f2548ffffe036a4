"""On a terminal: what `solely run` runs can use it as if we were not there; tables, questions and `top` are at home."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from solely import Client
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

    def __init__(self, url: str, *words: str, **others: str) -> None:
        self._ours, self._theirs = os.openpty()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SOLELY_URL": url}
        environment |= {"PS1": "$ ", "TERM": "xterm", "COLUMNS": "100"} | others
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ON_TERMINAL, os.ttyname(self._theirs), *words],
            env=environment,
            start_new_session=True,
        )
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def shows(self, text: str, within: float = ENDS_WITHIN) -> bool:
        """True once this text is shown."""
        ends = time.monotonic() + within
        while text not in self.seen:
            if not select.select([self._ours], [], [], max(0.0, ends - time.monotonic()))[0]:
                return False
            self.seen += os.read(self._ours, 4096).decode()
        return True

    def expect(self, text: str) -> str:
        """What was shown since the last time, up to and with this text."""
        assert self.shows(text), f"{text!r} was not shown: {self.seen!r}"
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
def on_terminal(url: str) -> Iterator[Callable[..., Tty]]:
    """`on_terminal("locks", "list")` starts `solely locks list` on a terminal of its own."""
    started: list[Tty] = []

    def begin(*words: str, **others: str) -> Tty:
        started.append(Tty(url, sys.executable, "-m", "solely.cli", *words, **others))
        return started[-1]

    yield begin
    for tty in started:
        tty.end()


@pytest.fixture
def shell(url: str) -> Iterator[Tty]:
    tty = Tty(url, "bash", "--norc", "--noprofile", "-i")
    yield tty
    tty.end()


def test_the_command_reads_from_the_terminal(on_terminal: Callable[..., Tty]) -> None:
    tty = on_terminal("run", "--lock", "a", "--", "sh", "-c", "echo ask; read it; echo got $it")
    tty.expect("ask")
    tty.type("hello\n")
    tty.expect("got hello")
    assert tty.process.wait(ENDS_WITHIN) == 0


@pytest.mark.parametrize("reads", ["", "read it; "])
def test_interrupting_reaches_the_command_once(on_terminal: Callable[..., Tty], reads: str) -> None:
    script = f"trap 'echo interrupted; exit 9' INT; echo ready; {reads}sleep 60 & echo waits; wait"
    tty = on_terminal("run", "--lock", "a", "--", "sh", "-c", script)
    tty.expect("ready")
    if reads:
        tty.type("x\n")
    tty.expect("waits")
    tty.type("\x03")
    tty.expect("interrupted")
    assert tty.process.wait(ENDS_WITHIN) == 9
    assert "interrupted" not in tty.seen


def test_the_shell_has_its_prompt_while_the_command_is_stopped_and_can_go_on(shell: Tty) -> None:
    shell.expect("$ ")
    shell.type(f"{SOLELY} run --lock a -- sh -c 'echo rea''dy; read it; echo got $it'; echo code $?\n")
    shell.expect("ready")
    for _ in range(20):  # one that is typed in the very instant in which the terminal is lent may go unheard
        shell.type("\x1a")
        if shell.shows("Stopped", within=1.0):
            break
    shell.expect("Stopped")
    shell.type("fg\n")
    time.sleep(0.3)  # so that what is typed next is not the shell's
    shell.type("hello\n")
    shell.expect("got hello")
    shell.type("echo the en''d\n")
    shell.expect("the end")


def test_who_is_asked_can_say_no(url: str, on_terminal: Callable[..., Tty]) -> None:
    with Client(url) as once, once.lock("a") as lease:
        tty = on_terminal("locks", "clear", "a", "--reason", "a test")
        tty.expect("[y/N]")
        tty.type("n\n")
        assert tty.process.wait(ENDS_WITHIN) == 1
        lease.ensure(29.0)
        tty = on_terminal("locks", "clear", "a", "--reason", "a test")
        tty.expect("[y/N]")
        tty.type("y\n")
        tty.expect("cleared lock 'a'")
        assert tty.process.wait(ENDS_WITHIN) == 0
        assert lease.release() == "cleared"


def test_tables_are_bold_unless_that_is_unwanted(url: str, on_terminal: Callable[..., Tty]) -> None:
    with Client(url) as once:
        once.first("a[red]b\x1b[31m")
    assert "\x1b[1m" in on_terminal("marks", "list").expect("a[red]b\\x1b[31m")
    assert "\x1b[" not in on_terminal("marks", "list", NO_COLOR="1", TERM="dumb").expect("a[red]b\\x1b[31m")


def test_top_looks_again(url: str, on_terminal: Callable[..., Tty]) -> None:
    with Client(url) as once, once.lock("first"):
        tty = on_terminal("top", "--every", "100ms", "--count", "200")
        tty.expect("first")
        with once.lock("second"):
            tty.expect("second")
            tty.type("\x03")
            assert tty.process.wait(ENDS_WITHIN) == 130


def test_waiting_says_who_holds_the_lock_and_an_interrupt_ends_it(on_terminal: Callable[..., Tty], url: str) -> None:
    with Client(url) as once, once.lock("a", ttl=600, purpose="backup"):
        tty = on_terminal("run", "--lock", "a", "--wait", "10m", "--", "true")
        shown = tty.expect(" s left")
        assert "waiting for 'a', held by " in shown
        assert f"pid {os.getpid()} (backup)" in shown
        tty.type("\x03")
        assert tty.process.wait(ENDS_WITHIN) == 130
        assert not tty.shows("Traceback", within=0)


def test_an_interrupt_at_a_question_changes_nothing(on_terminal: Callable[..., Tty], url: str) -> None:
    with Client(url) as once:
        once.mark("a")
        tty = on_terminal("marks", "clear", "a", "--reason", "a test")
        tty.expect("[y/N]")
        for _ in range(10):  # Python does not see one that comes right before it reads: people press it again
            tty.type("\x03")
            with suppress(subprocess.TimeoutExpired):
                tty.process.wait(10)
                break
        assert tty.process.returncode == 130
        assert once.seen("a")


@pytest.mark.parametrize(("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_doctor_shows_levels_in_color(
    on_terminal: Callable[..., Tty], environment: dict[str, str], colored: bool
) -> None:
    tty = on_terminal("doctor", **environment)
    shown = tty.expect("click")
    assert ("\x1b[32mok" in shown) is colored
    assert "ok" in shown
