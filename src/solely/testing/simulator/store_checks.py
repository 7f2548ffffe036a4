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
    """What one owner finished. `ended` is cleared or lost (with all data), or empty: then it stands until its time."""

    __slots__ = ("ended", "fingerprint", "owner", "since", "until", "value")

    def __init__(self, op: Finish, fingerprint: str, now: int) -> None:
        self.owner, self.value, self.fingerprint = op.owner, op.value, fingerprint
        self.since, self.until = now, now + us(op.keep)
        self.ended = ""

    def end(self, how: str, now: int) -> None:
        """It was taken away."""
        self.ended, self.until = how, now


class OutcomeChecks:
    """Checks every answer of the store about what is finished."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.by_key: dict[str, list[FinishedOutcome]] = {}  # by key, in order

    def current(self, key: str, now: int) -> FinishedOutcome | None:
        """What is finished under this key now."""
        last = self.by_key[key][-1] if key in self.by_key else None
        return last if last is not None and now < last.until else None

    def add(self, op: Finish, fingerprint: str, now: int) -> None:
        """An outcome that stands from now on."""
        self.by_key.setdefault(op.key, []).append(FinishedOutcome(op, fingerprint, now))

    def lost_all_data(self, now: int) -> None:
        """The store came back empty."""
        for key in self.by_key:
            outcome = self.current(key, now)
            if outcome is not None:
                outcome.end("lost", now)

    def must_be_free(self, op: Acquire, now: int) -> None:
        """The key was granted: then nothing stands."""
        outcome = self.current(op.key, now)
        if outcome is not None:
            self.history.violated("no lost outcome", f"{op.key} was granted to {op.owner}: {outcome.owner} finished it")

    def repeated(self, op: Finish, entry: Entry, now: int) -> None:
        """A finish that may change nothing was answered: it shows what stands, which is its own if repeated."""
        outcome = self.current(op.key, now)
        if (entry.owner == op.owner) != (outcome is not None and outcome.owner == op.owner):
            self.history.violated("fenced publish", f"{op} was answered {entry}: that owner had lost the key")
        self.answered(op, entry, now)

    def answered(self, op: Acquire | Read | Finish, entry: Entry, now: int) -> None:
        """The answer shows what stands, to whoever asks for it."""
        outcome = self.current(op.key, now)
        if (entry.state is State.DONE) != (outcome is not None):
            self.history.violated("one outcome", f"{op} was answered {entry}; what stands is otherwise")
        elif outcome is not None and (type(op) is not Acquire or op.value):
            self._must_show(outcome, op, entry)

    def _must_show(self, outcome: FinishedOutcome, op: Acquire | Read | Finish, entry: Entry) -> None:
        if (entry.value, entry.fingerprint) != (outcome.value, outcome.fingerprint):
            self.history.violated("one outcome", f"{op} was answered {entry}, not {outcome.value!r}")


class LiveMark(NamedTuple):
    """A mark that lives until then."""

    owner: str
    until: int


class MarkChecks:
    """Exactly one first per key and mark; nobody's mark outlives a caller that could not be told of it."""

    def __init__(self, history: History, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.runs = runs
        self.latest: dict[str, LiveMark] = {}
        self._made: set[tuple[str, str]] = set()
        self._gone: set[tuple[str, str]] = set()  # taken back, or forgotten
        self._cleared: set[int] = set()  # fences

    def lost_all_data(self) -> None:
        """The store came back empty."""
        self.latest.clear()

    def performed(self, op: Op, reply: Reply, now: int, forgotten: Collection[str]) -> None:
        """The store performed this op on a mark, and answered so."""
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
        """True if the store remembers that this owner may mark nothing any more."""
        return (op.key, op.owner) in self._gone and op.owner not in forgotten

    def _live(self, key: str, now: int) -> LiveMark | None:
        mark = self.latest.get(key)
        return mark if mark is not None and now < mark.until else None

    def _check(self, op: Mark, first: bool, live: LiveMark | None) -> None:
        violated, who = self.history.violated, (op.key, op.owner)
        if first and live is not None and live.owner != op.owner:
            violated("marks", f"{op.owner} is told it is first at {op.key}, as {live.owner} was")
        elif first and live is None:
            run, expired = self.runs[op.owner], who in self._made and who not in self._gone
            # A known limit: a mark shorter than REMEMBER may be made again by a late copy, for the same short time.
            if who in self._gone or (run.over and run.undone and not run.driver.dead and not expired):
                violated("marks", f"a late copy of {op} marked the key for a caller that had left")
        elif not first and live is not None and live.owner == op.owner:
            violated("marks", f"{op.owner} marked {op.key}, and its repeat was told: seen. Nobody does the work")
        elif not first and live is None and who not in self._gone:
            violated("marks", f"{op.key} is not marked, but {op.owner} was told that it is")

    def returned(self, key: str, run: SimulatedRun, first: bool, forgotten: Collection[str]) -> None:
        """A caller was told whether it is the first."""
        who = key, run.owner
        if run.owner not in forgotten and who not in self._gone and first != (who in self._made):
            self.history.violated("marks", f"{run.owner} at {key} was told first={first}; the store has it otherwise")

    def failed(self, key: str, run: SimulatedRun, now: int) -> None:
        """A caller got an error instead of an answer: then its mark is taken back, so that the next one is first."""
        live = self._live(key, now)
        if live is not None and live.owner == run.owner and run.undone:
            self.history.violated("marks", f"{run.owner} was told {run.error!r}, but its mark at {key} stays")


PROMPT_TRIPS = 12  # messages from a release to the next grant where nothing is held up: offer, refusal, withdrawal, …


class Opening(NamedTuple):
    """From when a key can be had, and whether its first waiter was told of it."""

    at: float
    hinted: bool


class WaitChecks:
    """Measures how long a key lies free while somebody waits for it."""

    def __init__(self, history: History, *, timeout: float, latency: float, reliable: bool) -> None:
        self.history = history
        self.down_until = 0.0  # the store is down until then
        self._prompt = OFFER + PROMPT_TRIPS * latency if reliable else 0.0
        self._patience = LOOK_AGAIN + OFFER + 2 * (timeout + COMPENSATE)  # a waiter ahead may fail, and undo, first
        self._waiters: dict[str, dict[SimulatedRun, float]] = {}
        self._openings: dict[str, Opening] = {}

    def opens_at(self, key: str) -> float:
        """From when the key can be had by anyone, but for an offer."""
        return self._openings[key].at if key in self._openings else 0.0

    def opened(self, key: str, at: float, *, hinted: bool) -> None:
        """The key can be had from then on."""
        self._openings[key] = Opening(at, hinted)

    def begins(self, key: str, run: SimulatedRun) -> None:
        """Somebody waits for the key from now on."""
        self._waiters.setdefault(key, {})[run] = self.history.timeline.now

    def ends(self, key: str, run: SimulatedRun) -> None:
        """Somebody got it, or gave up."""
        self.granted(key)
        self._waiters.get(key, {}).pop(run, None)  # none, if it was told at once

    def granted(self, key: str) -> None:
        """The key is taken, or somebody stops waiting: was it free for too long before?"""
        now = self.history.timeline.now
        opening = self._openings.get(key, Opening(0.0, False))
        waiters = self._waiters.get(key)
        if not waiters or opening.at >= now:
            return
        ready = [max(since, run.driver.wakes) for run, since in waiters.items() if not run.driver.dead]
        idle = now - max(opening.at, min(ready, default=now), self.down_until)
        most = self._prompt if opening.hinted and self._prompt else self._patience
        if idle > most:
            self.history.violated("no lost wake-up", f"{key} lay free for {idle:.3f} s while somebody waited for it")
