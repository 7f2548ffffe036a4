"""How late this machine is: what an upper bound in real time may be exceeded by without anybody's fault."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TICK = 0.01  # seconds: short against every bound, and few enough to cost nothing


class Lateness:
    """`seconds`: how much later than asked for a thread of this process was woken so far, summed up."""

    seconds = 0.0


@contextmanager
def measured_lateness() -> Iterator[Lateness]:
    """Measures while the block runs."""
    lateness, over = Lateness(), threading.Event()
    thread = threading.Thread(target=_measure, args=(lateness, over), daemon=True)
    thread.start()
    try:
        yield lateness
    finally:
        over.set()
        thread.join()


def _measure(lateness: Lateness, over: threading.Event) -> None:
    asked = time.monotonic()
    while not over.wait(TICK):
        woken = time.monotonic()
        lateness.seconds += max(0.0, woken - asked - TICK)
        asked = woken
