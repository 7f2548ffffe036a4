"""Scenarios of a simulation: how unreliable the network is, and how the clients behave and fail."""

from __future__ import annotations

from typing import NamedTuple

BRISK, SLOW = (0.02, 0.05, 0.5), (0.05, 1.0, 3.0)  # seconds of work: shorter than every lease, or longer than some


class Faults(NamedTuple):
    """The latency of the network, and the probability of each fault per message."""

    latency: float  # seconds, at most, for a message without a fault
    lost: float = 0.0  # a request or a reply never arrives
    late: float = 0.0  # a request arrives long after its sender gave up
    slow: float = 0.0  # a request or a reply takes up to a second: others overtake it
    hint_lost: float = 0.0  # a hint never arrives
    full: float = 0.0  # the store rejects one op because it is full


RELIABLE = Faults(latency=0.008)
UNRELIABLE = Faults(latency=0.01, lost=0.02, late=0.015, slow=0.03, hint_lost=0.35, full=0.015)


class Behavior(NamedTuple):
    """How clients work, and the probability per action that they or the store fail."""

    cancel: float
    several: float  # the client takes several keys at once: then its waiting time is not checked
    work: tuple[float, ...]  # seconds, at most, between two uses of a lease
    pause: float = 0.0
    kill: float = 0.0
    restart: float = 0.0
    wipe: float = 0.0  # a restart loses all data
    clears: bool = False  # an admin clears holds: their holders notice only when they renew


class Scenario(NamedTuple):
    """One kind of simulation; `share` is the fraction of seeds that run it."""

    share: float
    keys: tuple[int, ...]
    faults: Faults
    behavior: Behavior

    @property
    def reliable(self) -> bool:
        """True if no message is lost or late and no client dies: then a free key is taken promptly."""
        return self.faults == RELIABLE
