"""The workloads: each module has `work`, which its processes do, and `check`, which judges what they observed."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from ..evidence import Evidence, Finding


class Workload(NamedTuple):
    """A workload: its module, how many processes do it, and its settings."""

    name: str
    title: str
    module: str
    processes: int = 2
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """The promises that were broken."""
        for error, count in evidence.observations.errors.items():
            if error.startswith("unexpected") and not any(text in error for text in evidence.expects):
                yield Finding("unexpected error", count, error)
        found: Iterator[Finding] = import_module(f"{__name__}.{self.module}").check(evidence)
        yield from found


WORKLOADS = {
    each.name: each
    for each in (
        Workload("W1", "mutex history", "w1_mutex", 4),
        Workload("W2", "unfenced set (control)", "w2_unfenced_set", 3),
        Workload("W3", "fenced set", "w3_fenced_set", 2),
        Workload("W4", "fence growth", "w4_fences"),
        Workload("W5", "dedup", "w5_dedup", 2),
        Workload("W6", "reservations, limits", "w6_reservations"),
        Workload("W7", "claims", "w7_claims"),
        Workload("W8", "liveness", "w8_liveness"),
        Workload("W9", "leased queue", "w9_queue"),
    )
}
