"""Progress and report of a copy: plain data, without values and owner ids."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class CopyOutcome(StrEnum):
    """What happened to one entry of the source."""

    COPIED = "copied"  # the target has it now, and did not before
    KEPT = "kept"  # the target had it, or something newer, and that stays
    EXPIRED = "expired"  # it expired before it could be sent
    LEFT_BEHIND = "left behind"  # it is held at the source, or closed there by a delay
    FAILED = "failed"  # the target refused it


class Progress(NamedTuple):
    """How far a copy is. The total is unknown, since the source is read page by page."""

    seen: int = 0
    copied: int = 0
    kept: int = 0
    expired: int = 0
    left_behind: int = 0
    failed: int = 0
    elapsed: float = 0.0

    @property
    def rate(self) -> float:
        """Entries read per second."""
        return self.seen / self.elapsed if self.elapsed > 0 else 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{getattr(self, outcome.name.lower()):,} {outcome}" for outcome in CopyOutcome)
        return f"{self.seen:,} seen: {counts}; {self.rate:,.0f}/s"


class LeftBehind(NamedTuple):
    """A key that is held (or closed) at the source, who holds it, and for how many seconds more."""

    key: str
    state: str
    holder: str
    left: float


class CopyFailure(NamedTuple):
    """An entry that the target refused, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class CopyReport:
    """What a copy did, or with `dry_run` would do. The lists have at most copier.MOST_LISTED rows; counts are exact."""

    progress: Progress
    left_behind: tuple[LeftBehind, ...] = ()
    failures: tuple[CopyFailure, ...] = ()
    dry_run: bool = False

    @property
    def complete(self) -> bool:
        """True if no entry failed. An entry that is left behind is no failure: it belongs to its holder."""
        return not self.progress.failed

    def __str__(self) -> str:
        lines = [f"{'would be ' if self.dry_run else ''}done in {self.progress.elapsed:.1f} s: {self.progress}"]
        for key, state, holder, left in self.left_behind:
            lines.append(f"left behind: {key!r} {state} for {left:.1f} s more" + (f", by {holder}" if holder else ""))
        lines += [f"failed: {key!r}: {reason}" for key, reason in self.failures]
        for name, count, listed in (
            ("left behind", self.progress.left_behind, self.left_behind),
            ("failed", self.progress.failed, self.failures),
        ):
            if count > len(listed):
                lines.append(f"{name}: {count - len(listed):,} more, not listed")
        return "\n".join(lines)
