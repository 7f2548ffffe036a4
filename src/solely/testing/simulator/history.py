"""What happened in one simulation, in order, and the first promise that was broken."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ...drivers.simulated import Timeline


class History:
    """Notes everything as plain facts; at the first violation the simulation stops."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.facts: list[tuple[Any, ...]] = []
        self.invariant = ""  # that was violated
        self.how = ""

    def note(self, *facts: Any) -> None:
        """Remembers what happened now."""
        self.facts.append((self.timeline.now, *facts))

    def violated(self, invariant: str, how: str) -> None:
        """A promise was broken: nothing more happens."""
        if not self.invariant:
            self.invariant, self.how = invariant, how
            self.note("VIOLATION", invariant, how)
            self.timeline.stop()

    def digest(self) -> str:
        """The same for the same history, and for no other."""
        return hashlib.sha256(repr(self.facts).encode()).hexdigest()

    def tail(self, count: int, about: Callable[[str], bool] = bool) -> str:
        """The last lines, those that are about something."""
        lines = [f"{fact[0]:10.6f}  " + "  ".join(map(_brief, fact[1:])) for fact in self.facts]
        return "\n".join([line for line in lines if about(line)][-count:])


def _brief(fact: Any) -> str:
    """An op or a reply without what goes without saying."""
    if not hasattr(fact, "_field_defaults"):
        return str(fact)
    said = {k: str(v) for k, v in fact._asdict().items() if v != fact._field_defaults.get(k, b"?")}
    return f"{type(fact).__name__}({', '.join(f'{k}={v}' for k, v in said.items())})"
