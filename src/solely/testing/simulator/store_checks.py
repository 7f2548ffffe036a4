"""Checks on the store's replies about outcomes and marks, and on how long a free key is left untaken."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...drivers.simulated import SimulatedRun
from ...model import Entry, State
from ...ops import Acquire, Clear, Finish, Mark, Op, Read, Release, Reply
from ...rules import COMPENSATE, LOOK_AGAIN, OFFER
from ...stores.transitions import us
from .history import History


class FinishedOutcome:
    """The outcome that one owner finished. `ended` is cleared, lost (with all data), or empty until it expires."""

    __slots__ = ("ended", "fingerprint", "owner", "since", "until", "value")

    def __init__(self, op: Finish, fingerprint: str, now: int) -> None:
        self.owner, self.value, self.fingerprint = op.owner, op.value, fingerprint
        self.since, self.until = now, now + us(op.keep)
        self.ended = ""

    def end(self, how: str, now: int) -> None:
        """Ends the outcome before it expires."""
        self.ended, self.until = how, now


class OutcomeChecks:
    """One outcome per key at a time, which nobody can overwrite or run again."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.by_key: dict[str, list[FinishedOutcome]] = {}  # by key, in order

    def current(self, key: str, now: int) -> FinishedOutcome | None:
        """Returns the outcome that this key has now."""
        last = self.by_key[key][-1] if key in self.by_key else None
        return last if last is not None and now < last.until else None

    def add(self, op: Finish, fingerprint: str, now: int) -> None:
        """Adds the key's new current outcome."""
        self.by_key.setdefault(op.key, []).append(FinishedOutcome(op, fingerprint, now))

    def lost_all_data(self, now: int) -> None:
        for key in self.by_key:
            outcome = self.current(key, now)
            if outcome is not None:
                outcome.end("lost", now)

    def must_be_free(self, op: Acquire, now: int) -> None:
        """A key can be granted only if it has no outcome."""
        outcome = self.current(op.key, now)
        if outcome is not None:
            self.history.violated("no lost outcome", f"{op.key} was granted to {op.owner}: {outcome.owner} finished it")

    def repeated(self, op: Finish, entry: Entry, now: int) -> None:
        """A finish that must change nothing returns the current outcome, which is its own only if it is a repeat."""
        outcome = self.current(op.key, now)
        if (entry.owner == op.owner) != (outcome is not None and outcome.owner == op.owner):
            self.history.violated("fenced publish", f"{op} was answered {entry}: that owner had lost the key")
        self.answered(op, entry, now)

    def answered(self, op: Acquire | Read | Finish, entry: Entry, now: int) -> None:
        """The reply must contain the current outcome if the op requested it."""
        outcome = self.current(op.key, now)
        if (entry.state is State.DONE) != (outcome is not None):
            self.history.violated("one outcome", f"{op} was answered {entry}, which is not the current state")
        elif outcome is not None and (type(op) is not Acquire or op.value):
            self._must_show(outcome, op, entry)

    def _must_show(self, outcome: FinishedOutcome, op: Acquire | Read | Finish, entry: Entry) -> None:
        if (entry.value, entry.fingerprint) != (outcome.value, outcome.fingerprint):
            self.history.violated("one outcome", f"{op} was answered {entry}, not {outcome.value!r}")


class LiveMark(NamedTuple):
    """A mark and when it expires."""

    owner: str
    until: int


class MarkChecks:
    """Exactly one caller is first per mark, and a caller that got an error leaves no mark."""

    def __init__(self, history: History, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.runs = runs
        self.latest: dict[str, LiveMark] = {}
        self._made: set[tuple[str, str]] = set()
        self._gone: set[tuple[str, str]] = set()  # released or cleared
        self._cleared: set[int] = set()  # fences

    def lost_all_data(self) -> None:
        self.latest.clear()

    def performed(self, op: Op, reply: Reply, now: int, forgotten: Collection[str]) -> None:
        """Checks the store's reply to an op on a mark."""
        live = self._live(op.key, now)  # type: ignore[union-attr]
        if type(op) is Mark:
            if op.owner not in forgotten:
                self._check(op, reply is True, live)
            if reply is True and live is None:
                self._made.add((op.key, op.owner))
                self.latest[op.key] = LiveMark(op.owner, now + us(op.ttl))
            elif live is not None and op.extend and not self._refused(op, forgotten):
                self.latest[op.key] = live._replace(until=max(live.until, now + us(op.ttl)))
        elif type(op) is Release:
            if live is not None and live.owner == op.owner:
                del self.latest[op.key]
            self._gone.add((op.key, op.owner))
        elif type(op) is Clear and reply is True and op.fence not in self._cleared:
            self._cleared.add(op.fence)
            if live is not None:
                self._gone.add((op.key, live.owner))
                del self.latest[op.key]

    def _refused(self, op: Mark, forgotten: Collection[str]) -> bool:
        """True if the store remembers that this owner may not mark the key again."""
        return (op.key, op.owner) in self._gone and op.owner not in forgotten

    def _live(self, key: str, now: int) -> LiveMark | None:
        mark = self.latest.get(key)
        return mark if mark is not None and now < mark.until else None

    def _check(self, op: Mark, first: bool, live: LiveMark | None) -> None:
        violated, who = self.history.violated, (op.key, op.owner)
        if first and live is not None and live.owner != op.owner:
            violated("marks", f"{op.owner} is first at {op.key}, although {live.owner} already is")
        elif first and live is None:
            run, expired = self.runs[op.owner], who in self._made and who not in self._gone
            # A known limit: a late copy may renew a mark shorter than REMEMBER, for the same short time.
            if who in self._gone or (run.over and run.undone and not run.driver.dead and not expired):
                violated("marks", f"a late copy of {op} marked the key for a caller that had left")
        elif not first and live is not None and live.owner == op.owner:
            violated("marks", f"{op.owner} marked {op.key}, but its repeat returned seen: nobody does the work")
        elif not first and live is None and who not in self._gone:
            violated("marks", f"{op.key} is not marked, but the mark of {op.owner} returned seen")

    def returned(self, key: str, run: SimulatedRun, first: bool, forgotten: Collection[str]) -> None:
        """A caller must receive the store's decision whether it is first."""
        who = key, run.owner
        if run.owner not in forgotten and who not in self._gone and first != (who in self._made):
            self.history.violated("marks", f"{run.owner} got first={first} at {key}; the store decided otherwise")

    def failed(self, key: str, run: SimulatedRun, now: int) -> None:
        """After an error the caller's mark must be gone, so that the next caller is first."""
        live = self._live(key, now)
        if live is not None and live.owner == run.owner and run.undone:
            self.history.violated("marks", f"{run.owner} got {run.error!r}, but its mark at {key} stays")


PROMPT_TRIPS = 12  # messages from a release to the next grant without faults: offer, refusal, withdrawal, …


class Opening(NamedTuple):
    """When a key becomes free, and whether its first waiter was sent a hint."""

    at: float
    hinted: bool


class WaitChecks:
    """A free key does not stay free for long while a client waits for it."""

    def __init__(self, history: History, *, timeout: float, latency: float, reliable: bool) -> None:
        self.history = history
        self.down_until = 0.0
        self._prompt = OFFER + PROMPT_TRIPS * latency if reliable else 0.0
        self._at_most = LOOK_AGAIN + OFFER + 2 * (timeout + COMPENSATE)  # a waiter ahead may fail and compensate first
        self._waiters: dict[str, dict[SimulatedRun, float]] = {}
        self._openings: dict[str, Opening] = {}

    def opens_at(self, key: str) -> float:
        """Returns when the key becomes free, apart from an offer to a waiter."""
        return self._openings[key].at if key in self._openings else 0.0

    def opened(self, key: str, at: float, *, hinted: bool) -> None:
        """Records that the key becomes free at that time."""
        self._openings[key] = Opening(at, hinted)

    def begins(self, key: str, run: SimulatedRun) -> None:
        """Records that this run waits for the key from now on."""
        self._waiters.setdefault(key, {})[run] = self.history.timeline.now

    def ends(self, key: str, run: SimulatedRun) -> None:
        """Records that this run no longer waits: it got the key or gave up."""
        self.granted(key)
        self._waiters.get(key, {}).pop(run, None)  # absent if the run ended without waiting

    def granted(self, key: str) -> None:
        """Checks, when the key is taken or a run stops waiting, that it was not free for too long before."""
        now = self.history.timeline.now
        opening = self._openings.get(key, Opening(0.0, False))
        waiters = self._waiters.get(key)
        if not waiters or opening.at >= now:
            return
        ready = [max(since, run.driver.wakes) for run, since in waiters.items() if not run.driver.dead]
        idle = now - max(opening.at, min(ready, default=now), self.down_until)
        most = self._prompt if opening.hinted and self._prompt else self._at_most
        if idle > most:
            self.history.violated("no lost wake-up", f"{key} was free for {idle:.3f} s while a client waited for it")
