"""Progress on stderr: on a terminal, a line that is updated, of what takes longer than a second; in a log, where each
line stays, a line a minute."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import click

from ..logs import printable
from .output import talk

AFTER = 1.0  # seconds without a word: what takes no longer needs none
UPDATE = 0.2  # seconds between updates on a terminal
WIDTH = 80  # columns of a terminal that does not say how many it has
IN_LOGS = 60.0  # seconds between lines in a log, and before the first: cron sends a mail for every word


class ProgressLine:
    """Shows the latest state."""

    def __init__(self) -> None:
        self._begun = monotonic()
        self._shown_at = -IN_LOGS
        self._drawn = False

    def show(self, text: str) -> None:
        """Shows this state, unless it is too early, or too soon after the last one."""
        now, terminal = monotonic(), sys.stderr.isatty()
        after, between = (AFTER, UPDATE) if terminal else (IN_LOGS, IN_LOGS)
        if now - self._begun < after or now - self._shown_at < between:
            return
        self._shown_at = now
        if not terminal:
            talk(text)
            return
        width = os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
        click.echo(f"\r\x1b[K{printable(text)[: width - 1]}", nl=False, err=True)
        self._drawn = True

    def end(self) -> None:
        """Removes the line from the terminal."""
        if self._drawn:
            self._drawn = False
            click.echo("\r\x1b[K", nl=False, err=True)


@contextmanager
def progress() -> Iterator[ProgressLine]:
    """A line of progress, until the end of the block."""
    line = ProgressLine()
    try:
        yield line
    finally:
        line.end()


@contextmanager
def showing(state: Callable[[], str]) -> Iterator[None]:
    """Shows the state once a second while the block waits; it is asked on a thread, and "" shows nothing new."""
    ended = threading.Event()

    def repeat() -> None:
        with progress() as line:
            while not ended.wait(AFTER):
                if (text := state()) and not ended.is_set():
                    line.show(text)

    thread = threading.Thread(target=repeat, name="solely-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(AFTER)  # it removes its line; a store that does not answer it must not delay us
