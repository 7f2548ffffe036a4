"""Backoff: the pauses between tries, as data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import InvalidInput
from ..functions import plain_function
from ..rules import DAY, seconds

Chance = Callable[[], float]  # → [0, 1), as random.random
MAX_PAUSE = DAY  # a longer pause is a schedule, not a backoff


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds, one per try, each ± `spread` of itself, so that callers that failed together do not retry
    together. Iteration yields each step once. Raises InvalidInput for an invalid step or spread."""

    steps: tuple[float, ...]
    spread: float = 0.2
    chance: Chance = random.random

    def __post_init__(self) -> None:
        steps = tuple(seconds("a step", step, least=0.0, most=MAX_PAUSE) for step in self.steps)
        if not steps:
            raise InvalidInput("a backoff needs at least one step")
        if not 0.0 <= self.spread < 1.0:
            raise InvalidInput(f"spread={self.spread!r} is out of bounds; give a share of the pause, from 0 to below 1")
        plain_function("chance", self.chance)
        object.__setattr__(self, "steps", steps)

    def __iter__(self) -> Iterator[float]:
        return map(self.pause, range(len(self.steps)))

    def pause(self, attempt: int) -> float:
        """Seconds to pause after failed try number `attempt`, counted from 0; the last step repeats."""
        step = self.steps[min(attempt, len(self.steps) - 1)]
        return step * (1.0 + self.spread * (2.0 * self.chance() - 1.0))


# For work that another process does: a short job ends within 2 s, a usual one within 5 s, and a poll every 10 s is
# cheap. ± 20 %: a hundred replicas that were refused at once spread their second try over 0.8 s.
HELD = Backoff((2.0, 5.0, 10.0))

# For a call that may succeed at once: 100 ms is enough for a dropped connection, 400 ms for the start of a failover,
# and all three pauses stay under the second that a person waits.
RETRY = Backoff((0.1, 0.2, 0.4))
