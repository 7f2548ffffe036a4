"""Checks on what clients rely on and what their callers receive, against what the observer saw the store do."""

from __future__ import annotations

from typing import NamedTuple

from ...claims.flights import Done
from ...claims.policy import Failing
from ...drivers.simulated import SimulatedDriver
from ...drivers.trying import ONE_TRY
from ...leases.hold import Hold
from ...model import Entry, Released
from ...stores.transitions import us
from .history import History
from .observer import Held, Observer
from .store_checks import FinishedOutcome

_TICK = 2e-6  # seconds: the store counts whole µs


class LeaseChecks:
    """The leases that clients rely on now."""

    def __init__(self, history: History, observer: Observer) -> None:
        self.history = history
        self.observer = observer
        self._leases: dict[str, dict[Hold, tuple[SimulatedDriver, Held]]] = {}
        self._written: dict[str, int] = {}  # the greatest fence that the fenced resource saw
        self._last_writer: dict[str, int] = {}

    def begins(self, driver: SimulatedDriver, hold: Hold) -> None:
        """This client relies on this lease from now on."""
        now = driver.timeline.now
        held = self.observer.holds.get((hold.key, hold.owner))
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
        until = self.observer.moment(held.until)
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
        order = self.observer.holds[key, owner].order
        self._written[key] = fence
        if order < self._last_writer.get(key, 0):
            self.history.violated("mutual exclusion", f"a write under an older hold of {key} was accepted ({fence})")
        self._last_writer[key] = order


_TICK = 1e-6  # seconds: what rounding may take from a wait
_ENDS = {Failing.RELEASED: Released.RELEASED, Failing.DELAYED: Released.RELEASED}


class ClaimCall(NamedTuple):
    """Somebody asked for a claim. `cached`: until so long ago, in seconds, an outcome may have been taken away."""

    driver: SimulatedDriver
    key: str
    fingerprint: str
    began: int
    cached: float = 0.0

    def __str__(self) -> str:
        return f"the call of {self.driver.name} for {self.key} as {self.fingerprint!r}"

    @property
    def slack(self) -> int:
        """How old, at the beginning of the call, an answer may have been that was then on its way to this process."""
        return us(ONE_TRY * self.driver.timeout + self.driver.slept())


class ClaimChecks:
    """Compares what callers are told with what the onlooker saw."""

    def __init__(self, history: History, observer: Observer) -> None:
        self.history = history
        self.observer = observer

    def finished(self, call: ClaimCall, done: Done) -> None:
        """A caller was told an outcome: it stood at some time during the call, and is of no other payload."""
        outcomes = self.observer.outcomes.by_key.get(call.key, [])
        stood = [outcome for outcome in outcomes if outcome.value == done.kept and _was_current(outcome, call)]
        if not stood:
            self.history.violated("convergence", f"{call} was told {done}, which did not stand then")
        elif all(_differs(outcome.fingerprint, call.fingerprint) for outcome in stood):
            self.history.violated("mismatch", f"{call} was told {done}, which is another payload's")

    def mismatched(self, call: ClaimCall) -> None:
        """A caller was told Mismatch: another payload's claim was there at some time during the call."""
        held = [held for (key, _), held in self.observer.holds.items() if key == call.key]
        theirs = [h.fingerprint for h in held if (h.ended_at if h.ended else h.until) > call.began - call.slack]
        theirs += [o.fingerprint for o in self.observer.outcomes.by_key.get(call.key, []) if _was_current(o, call)]
        if not any(_differs(fingerprint, call.fingerprint) for fingerprint in theirs):
            self.history.violated("mismatch", f"{call} was told Mismatch, but nobody asked for another payload")

    def timed_out(self, call: ClaimCall, wait: float, waited: float) -> None:
        """A caller was told neither: its wait is over, and no outcome stood all the time."""
        if waited < wait - _TICK:
            self.history.violated("no early end", f"{call} timed out after {waited} of {wait} s")
        outcome = self.observer.outcomes.current(call.key, self.observer.now())
        if outcome is not None and outcome.since < call.began:
            self.history.violated("convergence", f"{call} timed out, although {outcome.value!r} stood all the time")

    def published(self, call: ClaimCall, kept: bytes, stands: bool, result: Done | Entry) -> None:
        """A winner was told whether its value stands, and if not, which one does."""
        outcomes = self.observer.outcomes.by_key.get(call.key, [])
        if stands and all(outcome.value != kept for outcome in outcomes):
            self.history.violated("convergence", f"{call} was told that {kept!r} is published; it never was")
        now = self.observer.outcomes.current(call.key, self.observer.now())
        theirs = result.kept if isinstance(result, Done) else None
        if not stands and now is not None and now.value == kept != theirs:
            self.history.violated("convergence", f"{call} was told that {kept!r} is superseded; it stands")
        if not stands and isinstance(result, Done):
            self.finished(call, result)

    def failed(self, hold: Hold, kept: bytes, told: Failing) -> None:
        """A winner that failed was told what was done: just that, and nothing to its successor's claim."""
        held = self.observer.grants[hold.key, hold.fence]
        kept_it = any(outcome.value == kept for outcome in self.observer.outcomes.by_key.get(hold.key, []))
        let_go = held.ended == Released.RELEASED
        lost = not let_go or held.forgotten  # that a copy let go of it before was then lost with all data
        right = kept_it if told in (Failing.REPLAYED, Failing.PARKED) else let_go if told in _ENDS else lost
        if not right:
            self.history.violated("right failure answers", f"{hold.owner} was told {told!r}; its hold was {held.ended}")


def _was_current(outcome: FinishedOutcome, call: ClaimCall) -> bool:
    """True if the caller could know it: it stood during the call, or a cache remembered what was taken away."""
    remembered = us(call.cached) if outcome.ended else 0
    return outcome.until + remembered > call.began - call.slack


def _differs(one: str, other: str) -> bool:
    return bool(one and other and one != other)
