"""What time it is, in µs, on a clock that nobody can set.

On Linux that is CLOCK_BOOTTIME: it counts suspend, never goes back, and is the same for all processes of the host once
the offset of a container's time namespace is taken off. It starts anew at a reboot, which the boot id shows: leases end
then. What outlives a reboot (marks, results, hits) runs on the boot clock plus the `base` that the file keeps for this
boot: the wall clock as it was when the boot first used the file. So whoever sets the wall clock neither prolongs nor
shortens anything. Where there is no boot clock, all runs on wall time, and the file keeps the latest moment seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .. import Clock
from ..transitions import US

Microseconds = Callable[[], int]


class Readings(NamedTuple):
    """Where a store reads its clocks; tests give their own."""

    boot_id: str  # leases written under another one are void
    lease: Microseconds
    wall: Microseconds
    tick: Microseconds | None  # grows between any two transactions, so it can number fences; None: count them instead
    goes_back: bool = False  # True if `lease` may, so that the latest reading must be kept


def _wall() -> int:
    return time.time_ns() // 1_000


def namespace_offset(proc: Path = Path("/proc/self")) -> int:
    """µs by which this process's time namespace shifts its boot clock against the host's; 0 where there is none."""
    try:
        if os.readlink(proc / "ns/time") != os.readlink(proc / "ns/time_for_children"):
            return 0  # the file is about the children's namespace, and ours is another: the one we were born in
        for line in (proc / "timens_offsets").read_text().splitlines():
            name, seconds, nanoseconds = line.split()
            if name in ("boottime", "7"):
                return int(seconds) * US + int(nanoseconds) // 1_000
    except (OSError, ValueError):
        pass  # a kernel without time namespaces
    return 0


def boot_id() -> str:
    """The kernel's name for this boot; "" where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def readings(clock: Clock | None = None) -> Readings:
    """The host's clocks, or the injected one for everything."""
    if clock is not None:
        return injected(clock)
    boot = boot_id()
    if not boot or not hasattr(time, "CLOCK_BOOTTIME"):
        return Readings("", _wall, _wall, None, goes_back=True)
    offset, read, which = namespace_offset(), time.clock_gettime_ns, time.CLOCK_BOOTTIME

    def boot_time() -> int:
        return read(which) // 1_000 - offset

    return Readings(boot, boot_time, _wall, boot_time)


def injected(clock: Clock) -> Readings:
    """One clock for leases and wall time, as tests want it."""

    def moment() -> int:
        return round(clock() * US)

    return Readings("injected", moment, moment, None)
