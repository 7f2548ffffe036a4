"""How late this machine is: what an upper bound in real time may be exceeded by without anybody's fault."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TICK = 0.01  # seconds


class Lateness:
    """`seconds` is how much later than asked for a thread of this process was woken so far, summed up."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ended = threading.Event()

    def _measure(self) -> None:
        asked = time.monotonic()
        while not self._ended.wait(TICK):
            woken = time.monotonic()
            self.seconds += max(0.0, woken - asked - TICK)
            asked = woken

    def end(self) -> None:
        self._ended.set()


@contextmanager
def measured_lateness() -> Iterator[Lateness]:
    """Measures while the block runs."""
    lateness = Lateness()
    thread = threading.Thread(target=lateness._measure, daemon=True)
    thread.start()
    yield lateness
    lateness.end()
    thread.join()
