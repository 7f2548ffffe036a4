"""What clients believe to hold, and what they write under it: never two at a time, never an older after a newer."""

from __future__ import annotations

from ...drivers.simulated import SimulatedDriver
from ...leases.hold import Hold
from .history import History
from .truth import Held, Truth

_TICK = 2e-6  # seconds: the store counts whole µs


class Beliefs:
    """The leases that clients rely on now."""

    def __init__(self, history: History, truth: Truth) -> None:
        self.history = history
        self.truth = truth
        self._leases: dict[str, dict[Hold, tuple[SimulatedDriver, Held]]] = {}
        self._written: dict[str, int] = {}  # the greatest fence that the fenced resource saw
        self._last_writer: dict[str, int] = {}

    def begins(self, driver: SimulatedDriver, hold: Hold) -> None:
        """This client relies on this lease from now on."""
        now = driver.timeline.now
        held = self.truth.holds.get((hold.key, hold.owner))
        if held is None:
            self.history.violated("mutual exclusion", f"{hold.owner} believes to hold {hold.key}: never granted")
            return
        if driver.moment(hold.deadline) <= now:
            return  # the answer came too late: this lease was lost before it began
        others = self._leases.setdefault(hold.key, {})
        for other, (neighbour, theirs) in list(others.items()):
            if neighbour.dead or theirs.excused or neighbour.moment(other.deadline) <= now:
                del others[other]
            elif other.owner != hold.owner and not held.excused:
                self.history.violated(
                    "mutual exclusion", f"{hold.owner} and {other.owner} both believe to hold {hold.key}"
                )
        others[hold] = driver, held
        self.extended(hold)

    def extended(self, hold: Hold) -> None:
        """Its holder relies on it until its local deadline: it must give up before the store does."""
        driver, held = self._leases.get(hold.key, {}).get(hold, (None, None))
        if driver is None or held is None or held.excused:
            return
        until = self.truth.moment(held.until)
        if held.ended or driver.moment(hold.deadline) > until + _TICK:
            self.history.violated(
                "mutual exclusion",
                f"{hold.owner} relies on {hold.key} until {driver.moment(hold.deadline):.6f}; "
                f"for the store it ends at {until:.6f} {held.ended}",
            )

    def ends(self, hold: Hold) -> None:
        """Its holder relies on it no more."""
        self._leases.get(hold.key, {}).pop(hold, None)

    def write(self, key: str, owner: str, fence: int) -> None:
        """A write reaches the fenced resource, which refuses a smaller fence than it has seen."""
        if fence < self._written.get(key, 0):
            return
        order = self.truth.holds[key, owner].order
        self._written[key] = fence
        if order < self._last_writer.get(key, 0):
            self.history.violated("mutual exclusion", f"a write under an older hold of {key} was accepted ({fence})")
        self._last_writer[key] = order
