"""The history of one simulation: its events in order, and the first promise that was broken."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ...drivers.simulated import Timeline


class History:
    """Records every event; the first violation stops the simulation."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.facts: list[tuple[Any, ...]] = []
        self.invariant = ""  # the promise that was broken
        self.how = ""

    def note(self, *facts: Any) -> None:
        """Records an event at the current virtual time."""
        self.facts.append((self.timeline.now, *facts))

    def violated(self, invariant: str, how: str) -> None:
        """Records that a promise was broken, and stops the simulation."""
        if not self.invariant:
            self.invariant, self.how = invariant, how
            self.note("VIOLATION", invariant, how)
            self.timeline.stop()

    def digest(self) -> str:
        """Returns a hash of the history."""
        return hashlib.sha256(repr(self.facts).encode()).hexdigest()

    def tail(self, count: int, about: Callable[[str], bool] = bool) -> str:
        """Returns the last `count` lines for which `about` is true."""
        lines = [f"{fact[0]:10.6f}  " + "  ".join(map(_brief, fact[1:])) for fact in self.facts]
        return "\n".join([line for line in lines if about(line)][-count:])


def _brief(fact: Any) -> str:
    """Formats an op or a reply without the fields that have their default value."""
    if not hasattr(fact, "_field_defaults"):
        return str(fact)
    fields = {k: str(v) for k, v in fact._asdict().items() if v != fact._field_defaults.get(k, b"?")}
    return f"{type(fact).__name__}({', '.join(f'{k}={v}' for k, v in fields.items())})"
