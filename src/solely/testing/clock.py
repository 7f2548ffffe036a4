"""A clock for tests, which moves only when the test advances it."""

from __future__ import annotations

import threading

_START = 1_800_000_000.0  # seconds since 1970, like a server's clock, because fences start from it


class ManualClock:
    """A clock that stands still until `advance` is called, from any thread. Pass it to a store as its `clock`."""

    def __init__(self, start: float = _START) -> None:
        self._moment = round(start * 1_000_000)  # whole µs, so that a thousand small steps add up exactly
        self._mutex = threading.Lock()

    def __call__(self) -> float:
        return self._moment / 1_000_000

    def advance(self, seconds: float) -> None:
        """Moves the clock forward; raises ValueError if `seconds` is negative."""
        if seconds < 0:
            raise ValueError(f"the clock cannot go back: {seconds}")
        with self._mutex:
            self._moment += round(seconds * 1_000_000)
