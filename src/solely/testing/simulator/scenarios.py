"""The kinds of simulations: how unreliable the network is, and what clients do and suffer."""

from __future__ import annotations

from typing import NamedTuple

BRISK, SLOW = (0.02, 0.05, 0.5), (0.05, 1.0, 3.0)  # kinds of work, in seconds


class Faults(NamedTuple):
    """How bad the network is: chances in [0, 1], per message."""

    latency: float  # seconds, at most, for a message that nothing holds up
    lost: float = 0.0  # a request, or a reply, never arrives
    late: float = 0.0  # a request arrives long after its sender gave it up, up to _LIFE
    slow: float = 0.0  # a request, or a reply, takes up to a second: others overtake it
    hint_lost: float = 0.0  # a hint is lost
    full: float = 0.0  # the store refuses to grow, for one op


RELIABLE = Faults(latency=0.008)
UNRELIABLE = Faults(latency=0.01, lost=0.02, late=0.015, slow=0.03, hint_lost=0.35, full=0.015)


class Behavior(NamedTuple):
    """What the clients do and suffer: chances per action."""

    cancel: float
    several: float  # that a client takes several keys at once: then its waiting is not measured
    work: tuple[float, ...]  # seconds, at most, between two looks at a lease
    pause: float = 0.0
    kill: float = 0.0
    restart: float = 0.0
    wipe: float = 0.0  # of a restart: the data is gone
    clears: bool = False  # an admin removes holds: their processes learn of it only when they renew


class Scenario(NamedTuple):
    """A kind of simulation; `share` of all seeds are of this kind."""

    share: float
    keys: tuple[int, ...]
    faults: Faults
    behavior: Behavior

    @property
    def reliable(self) -> bool:
        """True if nothing is lost or held up, nobody dies and nothing is cleared: then a free key is taken promptly."""
        return self.faults == RELIABLE
