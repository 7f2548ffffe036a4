"""What work costs: CPU time of the client and of the store's processes, by the kernel's own account.

CPU time varies far less than elapsed time when other programs share the machine, so costs are given in it.
"""

import gc
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .harness import CORES

TICK = os.sysconf("SC_CLK_TCK")  # per second: the unit of /proc/<pid>/stat


class Spent(NamedTuple):
    """What a number of calls took, per call: µs of the client's CPU and of the store's, and calls per second."""

    client_us: float
    store_us: float
    per_s: float

    def rounded(self) -> dict[str, float]:
        return {name: float(f"{value:.4g}") for name, value in self._asdict().items()}


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns the CPU time of all threads of these processes so far, and of the children that they have waited for."""
    total = 0.0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[13]) + int(fields[14])) / TICK  # cutime and cstime
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    total += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def spend(work: Callable[[], int], pids: Callable[[], Iterable[int]], repetitions: int) -> Spent:
    """Returns the median cost of a call, where `work` makes some calls and returns how many; the first round is a
    warm-up."""
    rounds: list[Spent] = []
    for _ in range(repetitions + 1):
        gc.collect()
        store, client, begun = cpu_seconds(pids()), time.process_time(), time.perf_counter()
        calls = work()
        took, client = time.perf_counter() - begun, time.process_time() - client
        store = cpu_seconds(pids()) - store
        rounds.append(Spent(client / calls * 1e6, store / calls * 1e6, calls / took))
    return Spent(*(median(column) for column in zip(*rounds[1:], strict=True)))


def machine() -> dict[str, str | int]:
    """Describes the machine of a run, and how busy it was when the run began."""
    model = "unknown"
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {
        "cpu": model,
        "cores": len(CORES),
        "load_at_begin": f"{os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
