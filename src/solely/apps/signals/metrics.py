"""Metrics of a process that generates signals, and the three alert rules on them."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from ... import Breaker, Circuit
from ...kit import get_logger
from .model import GroupResult

log = get_logger("solely.signals")

COUNTS = ("generated", "deduplicated", "lock_acquired", "lock_contention", "dead_lettered", "unprotected", "refused")
LATENCIES = 1_000  # groups over which P50 and P99 are taken: the last minutes of a busy process
MOST_CONTENTION = 0.5  # of the attempts at locks
FEWEST = 10  # attempts before their share says anything

ABOUT = {
    "dead_lettered": "Investigate the failed signals, then replay or purge them",
    "lock_contention": "More processes poll a group than it needs, or the lock's ttl needs tuning",
    "breaker": "The store is unreachable from this process",
}


class SignalAlert(NamedTuple):
    """A rule that began or ceased to apply."""

    name: str  # dead_lettered, lock_contention or breaker
    firing: bool
    summary: str


class SignalMetrics:
    """Counts of this process since it started, and the latency of its last groups; threads may share it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._seconds: deque[float] = deque(maxlen=LATENCIES)
        self._judged: Counter[str] = Counter()  # the counts when the rules were last applied
        self._firing: set[str] = set()

    def record(self, result: GroupResult) -> None:
        """Counts the result of a group."""
        with self._mutex:
            for name in ("generated", "deduplicated", "dead_lettered"):
                self._counts[name] += getattr(result, name)
            self._counts["lock_acquired"] += result.outcome == "generated"
            self._counts["lock_contention"] += result.outcome == "contended"
            self._counts["refused"] += result.outcome == "refused"
            self._counts["unprotected"] += result.outcome == "unprotected"
            if result.outcome == "generated":
                self._seconds.append(result.seconds)

    def snapshot(self) -> dict[str, float]:
        """All metrics by name: `signals.generated` and so on; the latencies are those of whole groups."""
        with self._mutex:
            counts, seconds = dict(self._counts), sorted(self._seconds)
        latencies = {f"signals.latency_ms.p{share}": 1000 * _quantile(seconds, share) for share in (50, 99)}
        return {f"signals.{name}": float(count) for name, count in counts.items()} | latencies

    def line(self) -> str:
        """All metrics as one line for the log."""
        return " ".join(f"{name}={value:.10g}" for name, value in self.snapshot().items())

    def prometheus(self) -> str:
        """All metrics in Prometheus's text format, for a process that has its own endpoint."""
        lines = []
        for name, value in self.snapshot().items():
            metric, _, quantile = name.replace(".", "_").partition("_latency_ms_p")
            if quantile:
                lines.append(f'{metric}_latency_ms{{quantile="0.{quantile}"}} {value:.10g}')
            else:
                lines += [f"# TYPE {metric}_total counter", f"{metric}_total {value:.10g}"]
        return "\n".join(lines) + "\n"

    def judge(self, breaker: Breaker) -> list[SignalAlert]:
        """Applies the rules to what was counted since the last call; returns those that began or ceased to apply."""
        with self._mutex:
            since = Counter(self._counts)
            since.subtract(self._judged)
            self._judged = Counter(self._counts)
            applies = {
                "dead_lettered": since["dead_lettered"] > 0,
                "lock_contention": _contended(since["lock_acquired"], since["lock_contention"]),
                "breaker": breaker.state() is not Circuit.CLOSED,
            }
            changed = [name for name, firing in applies.items() if firing != (name in self._firing)]
            self._firing.symmetric_difference_update(changed)
        return [SignalAlert(name, applies[name], ABOUT[name]) for name in changed]


def _contended(acquired: float, contended: float) -> bool:
    attempts = acquired + contended
    return attempts >= FEWEST and contended / attempts > MOST_CONTENTION


def _quantile(seconds: Sequence[float], share: int) -> float:
    """The value below which this share (in %) of the sorted values lies; 0 without any."""
    return seconds[max(0, math.ceil(len(seconds) * share / 100) - 1)] if seconds else 0.0
