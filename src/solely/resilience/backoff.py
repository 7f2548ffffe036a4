"""Backoff: how long to pause before the next try, as data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import InvalidInput
from ..rules import seconds

Chance = Callable[[], float]  # → [0, 1), as random.random
MAX_PAUSE = 86_400.0  # seconds: who pauses longer than a day has a schedule, not a backoff


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds, one per try, each ± `spread` of itself, so that those who failed together do not return
    together. Iterating gives each step once; InvalidInput if a step or the spread cannot be."""

    steps: tuple[float, ...]
    spread: float = 0.2
    chance: Chance = random.random

    def __post_init__(self) -> None:
        steps = tuple(seconds("a step", step, least=0.0, most=MAX_PAUSE) for step in self.steps)
        if not steps:
            raise InvalidInput("a backoff without steps never pauses; give at least one")
        if not 0.0 <= self.spread < 1.0:
            raise InvalidInput(f"spread={self.spread!r} is out of bounds; give a share of the pause, from 0 to below 1")
        object.__setattr__(self, "steps", steps)

    def __iter__(self) -> Iterator[float]:
        return map(self.pause, range(len(self.steps)))

    def pause(self, attempt: int) -> float:
        """Seconds to pause after that many failed tries before this one (0 for the first); the last step goes on."""
        step = self.steps[min(attempt, len(self.steps) - 1)]
        return step * (1.0 + self.spread * (2.0 * self.chance() - 1.0))


# Someone else is at it: 2 s lets a short job end, 5 s a usual one, and asking every 10 s bothers nobody for long.
# ± 20 %: a hundred replicas that were refused at once spread their second look over 0.8 s.
HELD = Backoff((2.0, 5.0, 10.0))

# A call failed that may succeed at once: 100 ms outlasts a dropped connection, 400 ms a failover's first stumble, and
# all three together stay under the second that a person waits for.
RETRY = Backoff((0.1, 0.2, 0.4))
