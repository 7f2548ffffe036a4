"""What the store's answers must be, kept by an onlooker who sees every op at the moment it is performed.

This is a second, independent account of holds: a hold begins with a grant, is extended by a renewal, and ends by
release, expiry, finish, clear, or with all data. Each answer of the store is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...drivers.simulated import SimulatedRun
from ...errors import StoreError
from ...model import Entry, Released, State
from ...ops import Acquire, Clear, Finish, Op, Read, Release, Renew, Reply
from ...rules import OFFER, REMEMBER
from ...stores.transitions import US, us
from .history import History
from .network import START
from .store_checks import MarkChecks, OutcomeChecks, WaitChecks

_OFFER = us(OFFER)
_REMEMBER = us(REMEMBER)


class Held:
    """One hold of one key. `ended` is released, expired, finished, cleared or lost (with all data), or empty."""

    __slots__ = (
        "attempts", "delay", "ended", "ended_at", "fence", "fingerprint", "forgotten", "kept", "key", "opens", "order",
        "owner", "since", "until",
    )  # fmt: skip

    def __init__(self, op: Acquire, entry: Entry, now: int, order: int) -> None:
        self.key, self.owner, self.fingerprint = op.key, op.owner, op.fingerprint
        self.fence, self.attempts = entry.fence, entry.attempts
        self.since, self.until, self.delay = now, now + us(op.ttl), us(op.delay)
        self.order = order  # among all grants of the key
        self.opens = 0  # released: the key stays closed until then
        self.kept = 0  # let go: until then its attempt is counted
        self.ended = ""
        self.ended_at = 0
        self.forgotten = False  # the store lost all data since

    def end(self, how: str, now: int) -> None:
        """It is over, and how."""
        self.ended, self.ended_at = how, now

    def live(self, now: int) -> bool:
        """True while the store must not grant the key to anyone else."""
        return not self.ended and now < self.until

    @property
    def excused(self) -> bool:
        """True if it was taken from its holder by force: only the fence tells, until its next renewal."""
        return self.ended in ("cleared", "lost")


class Observer:
    """Checks every answer of the store: mutual exclusion, fence growth, release answers, ghosts."""

    def __init__(self, history: History, waiting: WaitChecks, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.waiting = waiting
        self.runs = runs
        self.marks = MarkChecks(history, runs)
        self.outcomes = OutcomeChecks(history)
        self.holds: dict[tuple[str, str], Held] = {}  # the last of each key and owner
        self.grants: dict[tuple[str, int], Held] = {}  # each of them, by key and fence
        self.latest: dict[str, Held] = {}
        self.forgotten: set[str] = set()  # owners from before the last loss of all data
        self.revoked: set[tuple[str, str]] = set()  # keys and owners
        self.unremembered: set[tuple[str, str]] = set()  # those of them that were lost with all data
        self._cleared: set[int] = set()
        self._offering: dict[str, int] = {}  # until when the key may be kept for a waiter
        self._wants: dict[SimulatedRun, str] = {}
        self._kinds: dict[str, Callable[[Any, Any, int], None]] = {
            "mark": self._marked
        }  # those with rules of their own
        self._check: dict[type, Callable[[Any, Any, int], None]] = {
            Acquire: self._acquired,
            Renew: self._renewed,
            Release: self._released,
            Clear: self._was_cleared,
            Finish: self._finished,
            Read: self._read,
        }

    def performed(self, ops: Sequence[Op], replies: list[Reply | StoreError], refusals: int) -> None:
        """The store performed these, and answered so; that many it meant to refuse."""
        history = self.history
        now = self.now()
        for op, reply in zip(ops, replies, strict=True):
            history.note("store", op, reply)
            if isinstance(reply, StoreError):
                refusals -= 1
            else:
                self._kinds.get(getattr(op, "key", "").partition("/")[0], self._entry)(op, reply, now)
        if refusals < 0:
            history.violated("neighbours in a batch", f"more than one op failed by the error of one: {ops} {replies}")

    def _entry(self, op: Op, reply: Reply, now: int) -> None:
        if type(op) in self._check:
            self._check[type(op)](op, reply, now)

    def _marked(self, op: Op, reply: Reply, now: int) -> None:
        self.marks.performed(op, reply, now, self.forgotten)

    def lost_all_data(self) -> None:
        """The store came back empty: what was held is held no more, and nobody is remembered."""
        now = self.now()
        for held in self.holds.values():
            held.forgotten = True
            if not held.ended:
                held.end("lost", now)
        self.marks.lost_all_data()
        self.outcomes.lost_all_data(now)
        self.forgotten.update(self.runs)
        self.unremembered |= self.revoked
        self.revoked.clear()
        self._offering.clear()
        for key in self.latest:
            self.waiting.opened(key, self.history.timeline.now, hinted=False)

    def now(self) -> int:
        """What the store's clock shows."""
        return round((START + self.history.timeline.now) * US)

    def moment(self, stored: int) -> float:
        """The virtual time at which the store's clock shows this."""
        return stored / US - START

    def _acquired(self, op: Acquire, entry: Entry, now: int) -> None:
        held, latest = self.holds.get((op.key, op.owner)), self.latest.get(op.key)
        if entry.owner != op.owner or entry.state is State.DONE:  # which may be its own
            self._refused(op, entry, now, held, latest)
        elif held is not None and not held.forgotten and not self._may_return(held):
            self._repeated(op, entry, now, held)
        else:
            self._granted(op, entry, now, latest)

    def _granted(self, op: Acquire, entry: Entry, now: int, latest: Held | None) -> None:
        violated = self.history.violated
        if latest is not None:
            if latest.live(now):
                violated("mutual exclusion", f"{op.key} was granted to {op.owner} while {latest.owner} held it")
            elif not latest.forgotten and now < (latest.opens if latest.ended else latest.until + latest.delay):
                violated("mutual exclusion", f"{op.key} was granted to {op.owner} within the delay of {latest.owner}")
            if entry.fence <= latest.fence:
                violated("fence growth", f"{op.key}: fence {entry.fence} after {latest.fence}")
        if entry.attempts not in _attempts(latest, now):
            violated("attempts grow", f"{op.owner} is told to be attempt {entry.attempts} of {op.key}")
        self.outcomes.must_be_free(op, now)
        if self._abandoned(op):
            violated("no leaked hold", f"{op.key} was granted to {op.owner}, whose caller had left")
        self._wants.pop(self.runs[op.owner], None)
        held = Held(op, entry, now, latest.order + 1 if latest is not None else 1)
        self.holds[op.key, op.owner] = self.latest[op.key] = self.grants[op.key, held.fence] = held
        self.waiting.granted(op.key)
        self.waiting.opened(op.key, self.moment(held.until + held.delay), hinted=False)

    def _repeated(self, op: Acquire, entry: Entry, now: int, held: Held) -> None:
        violated = self.history.violated
        if not held.live(now):
            violated("no leaked hold", f"{op.key} was granted to {op.owner} again, which had let it go or lost it")
        elif entry.fence != held.fence or entry.left * US > held.until - now + 1:
            violated("idempotence", f"a repeat of {op} was answered with a new fence or more time: {entry}")

    def _refused(self, op: Acquire, entry: Entry, now: int, held: Held | None, latest: Held | None) -> None:
        violated = self.history.violated
        if held is not None and held.live(now):
            violated("idempotence", f"{op.owner} holds {op.key}, and its repeated acquire was refused")
        self.outcomes.answered(op, entry, now)
        kept = max(self.waiting.opens_at(op.key), self.moment(self._offering.get(op.key, 0)))
        if not entry.gone and not self.outcomes.current(op.key, now) and kept < self.history.timeline.now - 1e-5:
            violated("no lost wake-up", f"{op.key} is free since {kept:.6f}, but {op.owner} was refused: {entry}")
        if op.client and not entry.gone and entry.state is not State.DONE:
            run = self.runs[op.owner]
            if self._abandoned(op):
                violated("no leaked place", f"{op.owner} was queued at {op.key}, whose caller had left")
            self._wants[run] = op.key
            self._find_deadlock(run, now)

    def _abandoned(self, op: Acquire) -> bool:
        """True if nothing may be granted to this owner any more: its flow is over, and nothing kept it from undoing."""
        run = self.runs[op.owner]
        over = run.over and run.undone and not run.driver.dead and op.owner not in self.forgotten
        return over and not self._may_return(self.holds.get((op.key, op.owner)))

    def _may_return(self, held: Held | None) -> bool:
        """True if a late copy of its own acquire may take the key again. A known limit: who finished for less than
        REMEMBER, and did not or could not revoke, may then hold the key for one ttl more."""
        return held is not None and held.ended == "finished" and (held.key, held.owner) not in self.revoked

    def _find_deadlock(self, first: SimulatedRun, now: int) -> None:
        run, path = first, list[str]()
        while run in self._wants and not run.over and not run.driver.dead and len(path) < 10:
            path.append(self._wants[run])
            latest = self.latest.get(path[-1])
            if latest is None or not latest.live(now):
                return
            run = self.runs[latest.owner]
            if run is first:
                self.history.violated("no deadlock", f"flows wait for each other in a ring over {path}")
                return

    def _renewed(self, op: Renew, entry: Entry, now: int) -> None:
        held = self.holds.get((op.key, op.owner))
        if held is None or (held.ended == "finished" and entry.state is State.DONE):
            return
        if entry.owner == op.owner:
            if not held.live(now):
                self.history.violated("mutual exclusion", f"{op} revived a lease that was over ({held.ended})")
            held.until = now + round(entry.left * US)
            self.waiting.opened(op.key, self.moment(held.until + held.delay), hinted=False)
        elif held.live(now):
            self.history.violated("no lost lease", f"{op} was refused, although {op.owner} holds the key: {entry}")

    def _released(self, op: Release, answer: Released, now: int) -> None:
        held = self.holds.get((op.key, op.owner))
        self._offering[op.key] = now + _OFFER
        if op.revoke:
            self.revoked.add((op.key, op.owner))
            self.unremembered.discard((op.key, op.owner))
        absent = Released.ABSENT if op.fence else Released.RELEASED
        right = {Released.RELEASED, absent}
        if held is not None and held.live(now):
            held.end("released", now)
            held.opens, held.kept = now + us(op.delay), now + us(op.keep)
            self.waiting.opened(op.key, self.history.timeline.now + op.delay, hinted=not op.delay)
            right = {Released.RELEASED}
        elif held is not None and held.ended in ("", "expired"):
            right = {Released.EXPIRED} if now < held.until + _REMEMBER else {Released.EXPIRED, absent}
            if not held.ended:
                held.end("expired", now)
                held.opens, held.kept = held.until + held.delay, now + _REMEMBER
        elif held is not None and held.ended == "cleared":
            right = {Released.CLEARED} if now < held.ended_at + _REMEMBER else {Released.CLEARED, absent}
        granted = self.grants.get((op.key, op.fence), held)
        if granted is not None and granted.forgotten:  # whatever it has of this owner now is not what it had granted
            right = {Released.LOST} if op.fence else {Released.RELEASED}
            if held is not granted:  # a late copy took the key again, and may have lost it in another way
                right |= {Released.EXPIRED, Released.CLEARED}
        if answer not in right:
            fact = "never held it" if granted is None else f"ended: {granted.ended}"
            self.history.violated("right release answers", f"{op} was answered {answer!r}; its owner {fact}")

    def _finished(self, op: Finish, entry: Entry, now: int) -> None:
        """Accepted from the last owner, also when its time has run out, until another took the key; and once."""
        held, latest = self.holds.get((op.key, op.owner)), self.latest.get(op.key)
        if held is None or held.forgotten or held is not latest or held.ended:
            self.outcomes.repeated(op, entry, now)
        elif entry.owner == op.owner:
            held.end("finished", now)
            self.outcomes.add(op, held.fingerprint, now)
            self.waiting.opened(op.key, self.history.timeline.now, hinted=True)  # to all who wait for its outcome
        elif now < held.until + held.delay + _REMEMBER:
            self.history.violated("no lost outcome", f"{op} was refused, although nobody took the key since: {entry}")

    def _read(self, op: Read, entry: Entry, now: int) -> None:
        self.outcomes.answered(op, entry, now)

    def _was_cleared(self, op: Clear, done: bool, now: int) -> None:
        latest, outcome = self.latest.get(op.key), self.outcomes.current(op.key, now)
        if latest is not None and latest.fence == op.fence and (latest.live(now) or outcome is not None):
            if not done:
                self.history.violated("clear", f"{op} removed nothing, although it was there")
            latest.end("cleared", now)
            if outcome is not None:
                outcome.end("cleared", now)
            self._cleared.add(op.fence)
            self._offering[op.key] = now + _OFFER
            # hinted=False: who waits in the process that held it stands in no queue of the store, and only looks again
            self.waiting.opened(op.key, self.history.timeline.now, hinted=False)
        elif done and op.fence not in self._cleared:
            self.history.violated("clear", f"{op} says it removed what was over")


def _attempts(latest: Held | None, now: int) -> set[int]:
    """What the next attempt may be numbered: one more than the last, as long as that is remembered."""
    if latest is None or latest.forgotten or latest.ended in ("finished", "cleared", "lost"):
        return {1}
    if latest.ended:
        return {latest.attempts + 1 if now < latest.kept else 1}
    remembered = now < latest.until + latest.delay + _REMEMBER
    return {latest.attempts + 1} if remembered else {1, latest.attempts + 1}
