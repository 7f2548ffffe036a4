"""What callers are told of claims: everyone the same value while it stands, and nobody a value that never was."""

from __future__ import annotations

from typing import NamedTuple

from ...claims.flights import Done
from ...claims.policy import Failing
from ...drivers.retrying import ONE_TRY
from ...drivers.simulated import SimulatedDriver
from ...leases.hold import Hold
from ...model import Entry, Released
from ...stores.transitions import us
from .history import History
from .outcomes import FinishedOutcome
from .truth import Truth

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


class Convergence:
    """Compares what callers are told with what the onlooker saw."""

    def __init__(self, history: History, truth: Truth) -> None:
        self.history = history
        self.truth = truth

    def finished(self, call: ClaimCall, done: Done) -> None:
        """A caller was told an outcome: it stood at some time during the call, and is of no other payload."""
        outcomes = self.truth.outcomes.of.get(call.key, [])
        stood = [outcome for outcome in outcomes if outcome.value == done.kept and _stood(outcome, call)]
        if not stood:
            self.history.violated("convergence", f"{call} was told {done}, which did not stand then")
        elif all(_differs(outcome.fingerprint, call.fingerprint) for outcome in stood):
            self.history.violated("mismatch", f"{call} was told {done}, which is another payload's")

    def mismatched(self, call: ClaimCall) -> None:
        """A caller was told Mismatch: another payload's claim was there at some time during the call."""
        held = [held for (key, _), held in self.truth.holds.items() if key == call.key]
        theirs = [h.fingerprint for h in held if (h.ended_at if h.ended else h.until) > call.began - call.slack]
        theirs += [o.fingerprint for o in self.truth.outcomes.of.get(call.key, []) if _stood(o, call)]
        if not any(_differs(fingerprint, call.fingerprint) for fingerprint in theirs):
            self.history.violated("mismatch", f"{call} was told Mismatch, but nobody asked for another payload")

    def timed_out(self, call: ClaimCall, wait: float, waited: float) -> None:
        """A caller was told neither: its wait is over, and no outcome stood all the time."""
        if waited < wait - _TICK:
            self.history.violated("no early end", f"{call} timed out after {waited} of {wait} s")
        outcome = self.truth.outcomes.standing(call.key, self.truth.now())
        if outcome is not None and outcome.since < call.began:
            self.history.violated("convergence", f"{call} timed out, although {outcome.value!r} stood all the time")

    def published(self, call: ClaimCall, kept: bytes, stands: bool, result: Done | Entry) -> None:
        """A winner was told whether its value stands, and if not, which one does."""
        outcomes = self.truth.outcomes.of.get(call.key, [])
        if stands and all(outcome.value != kept for outcome in outcomes):
            self.history.violated("convergence", f"{call} was told that {kept!r} is published; it never was")
        now = self.truth.outcomes.standing(call.key, self.truth.now())
        theirs = result.kept if isinstance(result, Done) else None
        if not stands and now is not None and now.value == kept != theirs:
            self.history.violated("convergence", f"{call} was told that {kept!r} is superseded; it stands")
        if not stands and isinstance(result, Done):
            self.finished(call, result)

    def failed(self, hold: Hold, kept: bytes, told: Failing) -> None:
        """A winner that failed was told what was done: just that, and nothing to its successor's claim."""
        held = self.truth.grants[hold.key, hold.fence]
        kept_it = any(outcome.value == kept for outcome in self.truth.outcomes.of.get(hold.key, []))
        let_go = held.ended == Released.RELEASED
        lost = not let_go or held.forgotten  # that a copy let go of it before was then lost with all data
        right = kept_it if told in (Failing.REPLAYED, Failing.PARKED) else let_go if told in _ENDS else lost
        if not right:
            self.history.violated("right failure answers", f"{hold.owner} was told {told!r}; its hold was {held.ended}")


def _stood(outcome: FinishedOutcome, call: ClaimCall) -> bool:
    """True if the caller could know it: it stood during the call, or a cache remembered what was taken away."""
    remembered = us(call.cached) if outcome.ended else 0
    return outcome.until + remembered > call.began - call.slack


def _differs(one: str, other: str) -> bool:
    return bool(one and other and one != other)
