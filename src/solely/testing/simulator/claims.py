"""Simulated clients of claims: they claim one or several keys, work, publish (some of them late), fail, hand over and
reset."""

from __future__ import annotations

import math
from typing import Any

from ...cache import Cache
from ...claims.calls import claiming, recalled, resuming
from ...claims.claim import ClaimOptions
from ...claims.flights import Done, Flights
from ...claims.flow import Result, claim_many
from ...claims.policy import ALWAYS_RELEASE, RELEASE, Outcome, Park, Replay, RetryAfter
from ...claims.publish import fail, publish, release_claim, reset
from ...drivers.simulated import SimulatedDriver, SimulatedRun
from ...errors import Mismatch
from ...leases.flow import LeaseTerms
from ...leases.hold import Hold
from ...leases.token import Token
from ...model import Entry, State
from ...ops import Clear, Push, Read
from ...rules import REMEMBER
from .client_checks import ClaimCall, ClaimChecks
from .history import History
from .observer import Observer
from .scenarios import BRISK, RELIABLE, SLOW, UNRELIABLE, Behavior, Scenario
from .simulation import Perform, Script, SimulatedClient, Simulation, Task

_TTLS = (1.0, 1.0, 2.0, 5.0)
_WAITS = (0.0, 0.3, 3.0, 5.0, 12.0)
_KEEPS = (0.3, 1.0, 3.0, 20.0)  # seconds: short, so that a key lives through several claims
_PRINTS = ("", "one", "one", "one", "one", "one", "one", "two")
_FAILURES: tuple[Outcome, ...] = (RELEASE, RELEASE, RetryAfter(0.5), Replay(1.0), Park(2, "parked", 1.0))
_CACHE_TTL = 2.0  # seconds: some outcomes expire before the cache evicts them, some after
_SCENARIOS = (
    Scenario(0.35, (1, 1, 2), RELIABLE, Behavior(0.1, 0.0, BRISK)),  # many wait for few claims
    Scenario(0.65, (1, 2, 3), UNRELIABLE, Behavior(0.12, 0.0, SLOW, 0.04, 0.006, 0.008, 0.4, True)),
)


def _result(key: str, result: Result, waited: float, agreed: ClaimOptions) -> Any:
    return result, waited


class ClaimingClient(SimulatedClient):
    """One process that claims."""

    simulation: ClaimSimulation

    def __init__(self, simulation: Simulation, driver: SimulatedDriver, tasks: int) -> None:
        cached = simulation.chance.random() < 0.5
        super().__init__(simulation, driver, tasks, Cache(ttl=_CACHE_TTL, clock=driver.clock) if cached else None)
        self.flights = Flights(self.context)

    def _call(self, key: str, fingerprint: str = "", cached: float = 0.0) -> ClaimCall:
        return ClaimCall(self.driver, key, fingerprint, self.simulation.observer.now(), cached)

    def _agreement(self, wait: float) -> ClaimOptions:
        terms = LeaseTerms(self.pick(_TTLS), wait, 0.0, self.driver.name)
        return ClaimOptions(terms, self.pick(_KEEPS), ALWAYS_RELEASE, "", self.chance() < 0.6)

    def claim(self) -> Script:
        """Wins one claim, or receives its outcome."""
        checks = self.simulation.claim_checks
        key, wait, fingerprint = self.pick(self.simulation.keys), self.pick(_WAITS), self.pick(_PRINTS)
        agreed, call = self._agreement(wait), self._call(key, fingerprint, _CACHE_TTL)
        try:
            known: Any = recalled(self.flights, key, fingerprint, agreed, _result)
        except Mismatch:
            checks.mismatched(call)
            return
        if known is not None:
            checks.finished(call, known[0])
            return
        run: SimulatedRun = yield Perform(claiming(self.flights, key, fingerprint, agreed, _result), wait, key)
        call = call._replace(cached=0.0)
        if run.error is not None:
            self._refused(run, call, [key])
        elif isinstance(run.result[0], Hold):
            yield from self._work(run.result[0], agreed)
        elif isinstance(run.result[0], Done):
            checks.finished(call, run.result[0])
        else:
            checks.timed_out(call, wait, run.result[1])
            self.check_nothing_left(run, [key])

    def claim_many(self) -> Script:
        """Requests several claims at once; if a key is given twice, the first may win."""
        keys = [self.pick(self.simulation.keys) for _ in range(3)]
        calls = {key: self._call(key, self.pick(_PRINTS)) for key in keys}
        agreed = self._agreement(0.0)
        run: SimulatedRun = yield Perform(
            claim_many(keys, agreed.terms.ttl, [calls[key].fingerprint for key in keys], "")
        )
        if run.error is not None:
            self._refused(run, calls.get(f"claim/{getattr(run.error, 'key', '')}", calls[keys[0]]), keys)
            return
        holds = [result for result in run.result if isinstance(result, Hold)]
        for hold in holds:
            hold.keep(agreed.renew, math.inf)
            self.context.keep(hold)
        for key, result in zip(keys, run.result, strict=True):
            if isinstance(result, Done):
                self.simulation.claim_checks.finished(calls[key], result)
        for hold in holds:
            yield from self._work(hold, agreed)

    def _refused(self, run: SimulatedRun, call: ClaimCall, keys: list[str]) -> None:
        if isinstance(run.error, Mismatch):
            self.simulation.claim_checks.mismatched(call)
        self.check_nothing_left(run, keys)

    # -- the winner

    def _work(self, hold: Hold, agreed: ClaimOptions) -> Script:
        self.rely_on(hold)
        for _ in range(int(self.chance() * 3)):
            yield self.chance() * self.pick(self.simulation.behavior.work)
            self.simulation.inject_fault(self)
        self.simulation.leases.ends(hold)
        chance = self.chance()
        if chance < 0.6:
            yield from self._publish(hold, agreed)
        elif chance < 0.85:
            yield from self._fail(hold, agreed)
        elif chance < 0.92:
            run: SimulatedRun = yield Perform(release_claim(hold, self.flights))
            if run.error is None:
                self.check_released(hold, run.result)
        else:  # stuck: it publishes when another may have the claim, or never
            if self.chance() < 0.5:
                self._hand_over(hold, agreed)
            self._drop(hold)
            yield self.chance() * 3.0 * hold.ttl
            if chance < 0.97:
                yield from self._publish(hold, agreed)

    def _hand_over(self, hold: Hold, agreed: ClaimOptions) -> None:
        """One or two clients resume the claim from its token."""
        token = Token(hold.key, hold.owner, hold.ttl, hold.fence, 0.0, hold.fingerprint)
        for _ in range(1 if self.chance() < 0.6 else 2):
            receiver: ClaimingClient = self.pick(self.simulation.clients)
            if not receiver.driver.dead:
                receiver.tasks.append(Task(receiver, receiver._resume(token, agreed)))
                receiver.driver.after(self.chance() * 0.5, receiver.tasks[-1].step)

    def _resume(self, token: Token, agreed: ClaimOptions) -> Script:
        run: SimulatedRun = yield Perform(resuming(self.context, token, agreed, _result))
        if run.error is None:
            yield from self._work(run.result[0], agreed)
        else:
            self.check_nothing_left(run, [token.key])

    def _publish(self, hold: Hold, agreed: ClaimOptions) -> Script:
        kept, flights = b"b" + hold.owner.encode(), self.flights
        call = self._call(hold.key, hold.fingerprint)
        for _ in range(3):
            run: SimulatedRun = yield Perform(
                publish(hold, kept, agreed.keep, agreed.terms, flights, lambda: ""), agreed.terms.wait
            )
            if run.error is None:
                self.simulation.claim_checks.published(call, kept, *run.result)
                self._check_revoked(hold, agreed.keep)
                if self.chance() < 0.9:
                    return
            else:
                self.check_nothing_left(run, [hold.key])
        self._drop(hold)

    def _check_revoked(self, hold: Hold, keep: float) -> None:
        """If a late copy of the acquire may outlive the outcome, the owner must be revoked."""
        observer = self.simulation.observer
        revoked = (hold.key, hold.owner) in observer.revoked or hold.owner in observer.forgotten
        if hold.doubtful and keep < REMEMBER and not revoked:
            self.violated("no leaked hold", f"a late copy may grant {hold.key} to {hold.owner} again")

    def _fail(self, hold: Hold, agreed: ClaimOptions) -> Script:
        what: Outcome = self.pick(_FAILURES)
        kept = b'f["Failed","%b"]' % hold.owner.encode()

        def letter(park: Park) -> Push:
            return Push(park.group, hold.owner, kept)

        run: SimulatedRun = yield Perform(fail(hold, what, kept, agreed.keep, self.flights, letter))
        if run.error is None:
            self.simulation.claim_checks.failed(hold, kept, run.result)
        else:
            self._drop(hold)

    def _drop(self, hold: Hold) -> None:
        """Stops renewing the hold; it expires."""
        self.context.keeper.remove(hold)
        self.context.keeper.wake(hold.key)

    # -- admin

    def reset(self) -> Script:
        """Removes the current outcome, or one that the admin wrongly expects."""
        key, observer = self.pick(self.simulation.keys), self.simulation.observer
        outcome = observer.outcomes.current(key, observer.now())
        expected = outcome.value if outcome is not None and self.chance() < 0.8 else b"b?"
        self.flights.forget(key)
        run: SimulatedRun = yield Perform(reset(key, lambda kept: kept == expected))
        if run.error is None and run.result:
            outcomes = observer.outcomes.by_key.get(key, [])
            gone = [outcome for outcome in outcomes if outcome.ended and outcome.value == expected]
            if not gone:
                self.violated("reset", f"the reset of {expected!r} at {key} succeeded; it did not exist")

    def clear(self) -> Script:
        """Clears the hold of a claim."""
        if not self.simulation.behavior.clears:
            yield from self.claim()
            return
        key = self.pick(self.simulation.keys)
        run: SimulatedRun = yield Perform(self.one(Read(key)))
        entry: Entry = run.result
        if run.error is None and entry.state is State.HELD:
            yield Perform(self.one(Clear(key, entry.fence, "stuck")))


ClaimingClient.actions = (
    (0.78, ClaimingClient.claim),
    (0.12, ClaimingClient.claim_many),
    (0.07, ClaimingClient.reset),
    (1.00, ClaimingClient.clear),
)


class ClaimSimulation(Simulation):
    """A simulation of claims."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "claim", _SCENARIOS)
        self.observe_with(Observer(self.history, self.waiting, self.runs))
        self.claim_checks = ClaimChecks(self.history, self.observer)
        self.add_clients(ClaimingClient)


def simulate_claims(seed: int) -> History:
    """Simulates claims, and returns the history, which is the same for the same seed."""
    return ClaimSimulation(seed).run()
