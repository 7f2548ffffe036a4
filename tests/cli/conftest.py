"""The command line as a real process, and within this one where no process is what is asked about."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from solely.cli.program import perform
from tests.client.modes import Observer
from tests.conftest import STORES
from tests.forked import DEVNULL, PIPE, Forked

# A shell ignores SIGINT for what it starts in the background, and so would every process that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

ENDS_WITHIN = 120.0  # seconds: a command takes a fraction of one, but a test machine can be very busy


class Told(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


class Running:
    """`solely …` in a process of its own."""

    def __init__(self, url: str, words: tuple[str, ...], **environment: str) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        variables = {**os.environ, "PYTHONPATH": path, "SOLELY_URL": url, **environment}
        self.process = Forked(
            "solely.cli", *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True, env=variables
        )  # fmt: skip

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> Told:
        out, err = self.process.communicate(timeout=ENDS_WITHIN)
        return Told(self.process.wait(), out, err)

    def end(self) -> None:
        """Kills it if it runs still; its watchdog then ends the command."""
        self.process.kill()
        self.process.send_signal(signal.SIGCONT)
        with suppress(ValueError):  # it was read to its end
            self.process.communicate(timeout=ENDS_WITHIN)


Start = Callable[..., Running]
Run = Callable[..., Told]


@pytest.fixture(params=["sqlite", "valkey"])
def url(request: pytest.FixtureRequest) -> str:
    """A fresh store that processes share: by a file, then by a server."""
    return STORES[request.param](request)


@pytest.fixture
def observer(url: str) -> Iterator[Observer]:
    """Reads the store at hand directly."""
    watching = Observer(url)
    yield watching
    watching.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(url, "run", …)` starts `solely run …`."""
    started: list[Running] = []

    def begin(url: str, *words: str, **environment: str) -> Running:
        started.append(Running(url, words, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.end()


@pytest.fixture
def run(start: Start) -> Run:
    """`run(url, "run", …)` answers how `solely run …` ended."""
    return lambda url, *words, **environment: start(url, *words, **environment).ended()


@pytest.fixture
def solely(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """As `run`, within this process: quicker, and for everything but `run` and `once` the same. One try may take as
    long as a command: a server of a busy machine is not away."""
    monkeypatch.setattr("solely.cli.options.ONE_TRY", ENDS_WITHIN / 5)

    def within(url: str, *words: str) -> Told:
        monkeypatch.setenv("SOLELY_URL", url)
        capfd.readouterr()
        return Told(perform(words), *capfd.readouterr())

    return within


def text_of(path: Path, *, lines: int = 1) -> str:
    """What the file says, once it has so many lines."""
    until(lambda: path.exists() and path.read_text().count("\n") >= lines, f"{lines} lines in {path.name}")
    return path.read_text()


def is_alive(pid: int) -> bool:
    """True if the process is there and is no zombie."""
    with suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + ENDS_WITHIN
    while not condition():
        assert time.monotonic() < ends, f"{what}: not within {ENDS_WITHIN:g} s"
        time.sleep(0.02)
