"""Checks on what clients rely on and what their callers receive, against what the observer saw the store do."""

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
from .observer import Held, Observer
from .store_checks import FinishedOutcome

_STORE_TICK = 2e-6  # seconds: the store counts whole µs
_ROUNDING = 1e-6  # seconds by which rounding may shorten a wait
_RELEASING = (Failing.RELEASED, Failing.DELAYED)


class LeaseChecks:
    """Two clients never rely on one key at a time, and no write under an older hold follows one under a newer."""

    def __init__(self, history: History, observer: Observer) -> None:
        self.history = history
        self.observer = observer
        self._leases: dict[str, dict[Hold, tuple[SimulatedDriver, Held]]] = {}
        self._written: dict[str, int] = {}  # by key: the greatest fence that the fenced resource has seen
        self._last_writer: dict[str, int] = {}  # by key: the order of the hold that wrote last

    def begins(self, driver: SimulatedDriver, hold: Hold) -> None:
        """Records that this client relies on this lease from now on."""
        now = driver.timeline.now
        held = self.observer.holds.get((hold.key, hold.owner))
        if held is None:
            self.history.violated("mutual exclusion", f"{hold.owner} relies on {hold.key}, which it was never granted")
            return
        if driver.moment(hold.deadline) <= now:
            return  # the reply came too late: this lease was lost before it began
        others = self._leases.setdefault(hold.key, {})
        for other, (its_driver, its_held) in list(others.items()):
            if its_driver.dead or its_held.excused or its_driver.moment(other.deadline) <= now:
                del others[other]
            elif not held.excused:  # also of one owner: no guard could tell them apart
                self.history.violated("mutual exclusion", f"{hold.owner} and {other.owner} both rely on {hold.key}")
        others[hold] = driver, held
        self.extended(hold)

    def extended(self, hold: Hold) -> None:
        """The holder's local deadline must not be later than the expiry in the store."""
        driver, held = self._leases.get(hold.key, {}).get(hold, (None, None))
        if driver is None or held is None or held.excused:
            return
        until = self.observer.moment(held.until)
        if held.ended or driver.moment(hold.deadline) > until + _STORE_TICK:
            self.history.violated(
                "mutual exclusion",
                f"{hold.owner} relies on {hold.key} until {driver.moment(hold.deadline):.6f}; "
                f"in the store it ends at {until:.6f} {held.ended}",
            )

    def ends(self, hold: Hold) -> None:
        """Records that the holder no longer relies on the lease."""
        self._leases.get(hold.key, {}).pop(hold, None)

    def write(self, key: str, owner: str, fence: int) -> None:
        """A write arrives at the fenced resource, which rejects a fence smaller than the greatest it has seen."""
        if fence < self._written.get(key, 0):
            return
        order = self.observer.holds[key, owner].order
        self._written[key] = fence
        if order < self._last_writer.get(key, 0):
            self.history.violated("mutual exclusion", f"a write under an older hold of {key} was accepted ({fence})")
        self._last_writer[key] = order


class ClaimCall(NamedTuple):
    """A caller requested a claim. The cache may return an outcome that was removed up to `cached` seconds ago."""

    driver: SimulatedDriver
    key: str
    fingerprint: str
    began: int
    cached: float = 0.0

    def __str__(self) -> str:
        return f"the call of {self.driver.name} for {self.key} as {self.fingerprint!r}"

    @property
    def slack(self) -> int:
        """How old (in µs) a reply in flight to this process may be at the beginning of the call."""
        return us(ONE_TRY * self.driver.timeout + self.driver.slept())


class ClaimChecks:
    """All callers receive the same value while it is current, and no caller a value that never was."""

    def __init__(self, history: History, observer: Observer) -> None:
        self.history = history
        self.observer = observer

    def finished(self, call: ClaimCall, done: Done) -> None:
        """A returned outcome must have been current during the call and belong to the same payload."""
        outcomes = self.observer.outcomes.by_key.get(call.key, [])
        current = [outcome for outcome in outcomes if outcome.value == done.kept and _was_current(outcome, call)]
        if not current:
            self.history.violated("convergence", f"{call} returned {done}, which was not current then")
        elif all(_differs(outcome.fingerprint, call.fingerprint) for outcome in current):
            self.history.violated("mismatch", f"{call} returned {done}, which belongs to another payload")

    def mismatched(self, call: ClaimCall) -> None:
        """After Mismatch, a claim of another payload must have existed during the call."""
        held = [held for (key, _), held in self.observer.holds.items() if key == call.key]
        theirs = [h.fingerprint for h in held if (h.ended_at if h.ended else h.until) > call.began - call.slack]
        theirs += [o.fingerprint for o in self.observer.outcomes.by_key.get(call.key, []) if _was_current(o, call)]
        if not any(_differs(fingerprint, call.fingerprint) for fingerprint in theirs):
            self.history.violated("mismatch", f"{call} raised Mismatch, but no claim had another payload")

    def timed_out(self, call: ClaimCall, wait: float, waited: float) -> None:
        """A caller may time out only after its full wait, and only if no outcome was current all the time."""
        if waited < wait - _ROUNDING:
            self.history.violated("no early timeout", f"{call} timed out after {waited} of {wait} s")
        outcome = self.observer.outcomes.current(call.key, self.observer.now())
        if outcome is not None and outcome.since < call.began:
            self.history.violated("convergence", f"{call} timed out, but {outcome.value!r} was current all the time")

    def published(self, call: ClaimCall, kept: bytes, accepted: bool, result: Done | Entry) -> None:
        """A winner must learn whether its value is the outcome, and if not, which value is."""
        outcomes = self.observer.outcomes.by_key.get(call.key, [])
        if accepted and all(outcome.value != kept for outcome in outcomes):
            self.history.violated("convergence", f"{call} reported {kept!r} as published; it never was")
        now = self.observer.outcomes.current(call.key, self.observer.now())
        theirs = result.kept if isinstance(result, Done) else None
        if not accepted and now is not None and now.value == kept != theirs:
            self.history.violated("convergence", f"{call} reported {kept!r} as superseded; it is current")
        if not accepted and isinstance(result, Done):
            self.finished(call, result)

    def failed(self, hold: Hold, kept: bytes, returned: Failing) -> None:
        """A winner that failed must learn what was done; its successor's claim must be unchanged."""
        held = self.observer.grants[hold.key, hold.fence]
        kept_it = any(outcome.value == kept for outcome in self.observer.outcomes.by_key.get(hold.key, []))
        released = held.ended == Released.RELEASED
        lost = not released or held.forgotten  # the release by an earlier copy may be lost with all data
        keeping, releasing = returned in (Failing.REPLAYED, Failing.PARKED), returned in _RELEASING
        correct = kept_it if keeping else released if releasing else lost
        if not correct:
            how = f"{hold.owner} got {returned!r}; its hold was {held.ended}"
            self.history.violated("correct failure replies", how)


def _was_current(outcome: FinishedOutcome, call: ClaimCall) -> bool:
    """True if the caller may receive it: it was current during the call, or the cache still had it."""
    remembered = us(call.cached) if outcome.ended else 0
    return outcome.until + remembered > call.began - call.slack


def _differs(one: str, other: str) -> bool:
    return bool(one and other and one != other)
