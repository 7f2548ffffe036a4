"""The report of a run: a table for people, and one JSON object for programs."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from .faults import FAULTS
from .mutants import MutantResult
from .rounds import RoundResult
from .workloads import WORKLOADS

PACKAGES = {"solely": "solely", "redis-py": "redis", "psycopg": "psycopg", "pymongo": "pymongo"}

BEYOND_THE_TTL = ("pause client 1.5 ttl", "pause client 5 ttl")  # pauses in which the control must lose data


@dataclass
class Report:
    """What a run did and found."""

    seed: int
    rounds: list[RoundResult] = field(default_factory=list)
    mutants: list[MutantResult] = field(default_factory=list)
    not_done: list[tuple[str, str]] = field(default_factory=list)  # the kind of fault, and why not here
    servers: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)  # rounds that the battery itself could not run
    soak: list[str] = field(default_factory=list)  # its series and verdict, as text
    soak_failures: list[str] = field(default_factory=list)

    @property
    def violations(self) -> Counter[str]:
        """The promises that were broken, by workload and kind."""
        found = Counter[str]()
        for each in self.rounds:
            for workload, finding in each.findings:
                found[f"{workload} {finding.kind}"] += finding.times
        found.update({f"soak {text}": 1 for text in self.soak_failures})
        found.update({"round not run": len(self.broken)} if self.broken else {})
        return found

    @property
    def control_lost(self) -> int:
        return sum(each.control_lost for each in self.rounds)

    @property
    def ok(self) -> bool:
        """True if no promise was broken, every planted bug was found, and the control lost data if it was paused."""
        paused = any("W2" in each.plan.workloads and each.plan.fault in BEYOND_THE_TTL for each in self.rounds)
        controlled = self.control_lost > 0 or not paused
        return not self.violations and controlled and all(mutant.caught for mutant in self.mutants)

    def as_json(self) -> dict[str, Any]:
        """The object that --json prints."""
        faults = Counter[str]({kind: 0 for kind, _ in self.not_done})
        for each in self.rounds:
            if each.plan.fault != "none":
                faults[each.plan.fault] += each.injected
        return {
            "N": sum(sum(each.operations.values()) for each in self.rounds),
            "faults": dict(faults),
            "violations": dict(self.violations),
            "control_lost": self.control_lost,
            "planted_caught": sum(mutant.caught for mutant in self.mutants),
            "planted_total": len(self.mutants),
            "versions": versions() | self.servers,
            "seeds": [self.seed, *(each.plan.seed for each in self.rounds)],
        }

    def text(self) -> str:
        """The tables, and what was not promised or not done."""
        parts = [
            table(self._round_lines()),
            table(self._workload_lines()),
            "\n".join(self._details()),
            table(self._mutant_lines()) if self.mutants else "",
            "\n".join(self.soak),
            "\n".join(self._last_lines()),
        ]
        return "\n\n".join(part for part in parts if part)

    def _round_lines(self) -> Iterator[Sequence[str]]:
        yield "store", "fault", "workloads", "faults", "ops", "retries", "control", "violations", "s"
        for each in self.rounds:
            broken = sum(finding.times for _, finding in each.findings)
            yield (
                each.plan.deployment, each.plan.fault, " ".join(each.plan.workloads), str(each.injected),
                f"{sum(each.operations.values()):,}", str(each.retries), str(each.control_lost or ""), str(broken),
                f"{each.seconds:.1f}",
            )  # fmt: skip

    def _workload_lines(self) -> Iterator[Sequence[str]]:
        yield "workload", "", "rounds", "N", "violations", "rate below 3/N"
        for name, workload in WORKLOADS.items():
            done = [each for each in self.rounds if name in each.plan.workloads]
            judged = [each for each in done if name not in FAULTS[each.plan.fault].counted]
            n = sum(each.operations[name] for each in judged)
            broken = sum(finding.times for each in done for who, finding in each.findings if who == name)
            bound = f"{3 / n:.1e}" if n and not broken else ""
            yield name, workload.title, str(len(done)), f"{n:,}", str(broken), bound

    def _details(self) -> Iterator[str]:
        for each in self.rounds:
            for workload, finding in each.findings:
                yield f"VIOLATION {workload} {finding.kind} × {finding.times} · {each.plan}\n{finding.detail}"
        for each in self.rounds:
            for workload, finding in each.counted:
                yield f"not promised, counted: {workload} {finding.kind} × {finding.times} · {each.plan}"
        for text in self.broken:
            yield f"NOT RUN {text}"
        for kind, why in self.not_done:
            yield f"not done here: {kind} ({why})"

    def _mutant_lines(self) -> Iterator[Sequence[str]]:
        yield "planted bug", "where", "workload", "found", "by", "rounds", "s"
        for each in self.mutants:
            found = "yes" if each.caught else "NO"
            yield each.name, each.deployment, each.workload, found, each.by, str(each.rounds), f"{each.seconds:.1f}"

    def _last_lines(self) -> Iterator[str]:
        waits = [wait for each in self.rounds for wait in each.waits]
        if waits:
            yield f"longest wait for a free key after the last fault: {max(waits):.2f} s, of {len(waits)}"
        yield f"control: {self.control_lost} members lost without fences; not done here: {len(self.not_done)}"
        yield " · ".join(f"{name} {what}" for name, what in (versions() | self.servers).items())
        caught = sum(mutant.caught for mutant in self.mutants)
        planted = f", {caught} of {len(self.mutants)} planted bugs found" if self.mutants else ""
        yield f"{'OK' if self.ok else 'FAILED'}: {sum(self.violations.values())} violations{planted}"


def versions() -> dict[str, str]:
    """The versions of what ran in this process."""
    return {"python": platform.python_version()} | {name: version(package) for name, package in PACKAGES.items()}


def table(lines: Iterable[Sequence[str]]) -> str:
    """The lines as columns, each as wide as its widest field."""
    rows = list(lines)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
