"""The injected clock: time moves when a test says so."""

from __future__ import annotations

import threading

_START = 1_800_000_000.0  # seconds since 1970, like a server's clock, because fences start from it


class ManualClock:
    """A clock that stands still until it is advanced; to be given to any store as its `clock`, from any thread."""

    def __init__(self, start: float = _START) -> None:
        self._moment = round(start * 1_000_000)  # whole µs, so that a thousand small steps add up exactly
        self._mutex = threading.Lock()

    def __call__(self) -> float:
        return self._moment / 1_000_000

    def advance(self, seconds: float) -> None:
        """Moves the clock forward; ValueError if that would be backward."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds}")
        with self._mutex:
            self._moment += round(seconds * 1_000_000)
