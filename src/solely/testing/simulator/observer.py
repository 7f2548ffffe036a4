"""An observer that sees every op when the store performs it, and checks the reply.

It models holds independently of the store: a hold begins with a grant or when it is resumed, is extended by a renewal,
and ends by release, expiry, finish, clear, data loss or when another resumes it. Each reply of the store is compared
with this model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...drivers.simulated import SimulatedRun
from ...errors import StoreError
from ...model import Entry, Released, State
from ...ops import Acquire, Clear, Finish, Op, Read, Release, Renew, Reply, Resume
from ...rules import OFFER, REMEMBER
from ...stores.transitions import US, us
from .history import History
from .network import START
from .store_checks import MarkChecks, OutcomeChecks, WaitChecks

_OFFER = us(OFFER)
_REMEMBER = us(REMEMBER)


class Held:
    """One hold of one key. `ended` is released, expired, finished, cleared, resumed (by another), lost (with all data),
    or empty."""

    __slots__ = (
        "attempts", "delay", "ended", "ended_at", "fence", "fingerprint", "forgotten", "kept", "key", "opens", "order",
        "owner", "until",
    )  # fmt: skip

    def __init__(self, op: Acquire, entry: Entry, now: int, order: int) -> None:
        self.key, self.owner, self.fingerprint = op.key, op.owner, op.fingerprint
        self.fence, self.attempts = entry.fence, entry.attempts
        self.until, self.delay = now + us(op.ttl), us(op.delay)
        self.order = order  # among all grants of the key
        self.opens = 0  # after the hold ended, the key stays closed until then
        self.kept = 0  # after the hold ended, its attempt counts until then
        self.ended = ""
        self.ended_at = 0
        self.forgotten = False  # the store has lost all data since the grant

    def end(self, how: str, now: int) -> None:
        """Records how and when the hold ended."""
        self.ended, self.ended_at = how, now

    def live(self, now: int) -> bool:
        """True while the store must not grant the key to anyone else."""
        return not self.ended and now < self.until

    @property
    def excused(self) -> bool:
        """True if the hold was cleared, resumed or lost: until the next renewal only the fence protects from its
        holder."""
        return self.ended in ("cleared", "resumed", "lost")


class Observer:
    """Checks every reply of the store: mutual exclusion, fence growth, release replies, late copies."""

    def __init__(self, history: History, waiting: WaitChecks, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.waiting = waiting
        self.runs = runs
        self.marks = MarkChecks(history, runs)
        self.outcomes = OutcomeChecks(history)
        self.holds: dict[tuple[str, str], Held] = {}  # by key and owner: the last one
        self.grants: dict[tuple[str, int], Held] = {}  # by key and fence: all of them
        self.latest: dict[str, Held] = {}
        self.forgotten: set[str] = set()  # owners from before the last data loss
        self.revoked: set[tuple[str, str]] = set()  # keys and owners
        self.unremembered: set[tuple[str, str]] = set()  # revocations that were lost with all data
        self._cleared: set[int] = set()  # fences
        self._offered_until: dict[str, int] = {}
        self._relied_on_until: dict[str, int] = {}  # by key: by a holder that may not know yet that it was resumed
        self._waits_for: dict[SimulatedRun, str] = {}
        self._kinds: dict[str, Callable[[Any, Any, int], None]] = {"mark": self._marked}  # kinds with their own checks
        self._check: dict[type, Callable[[Any, Any, int], None]] = {
            Acquire: self._acquired,
            Renew: self._renewed,
            Resume: self._resumed,
            Release: self._released,
            Clear: self._was_cleared,
            Finish: self._finished,
            Read: self._read,
        }

    def performed(self, ops: Sequence[Op], replies: list[Reply | StoreError], rejected: int) -> None:
        """Checks the replies to a batch, of which the store rejected that many ops on purpose."""
        history = self.history
        now = self.now()
        for op, reply in zip(ops, replies, strict=True):
            history.note("store", op, reply)
            if isinstance(reply, StoreError):
                rejected -= 1
            else:
                self._kinds.get(getattr(op, "key", "").partition("/")[0], self._entry)(op, reply, now)
        if rejected < 0:
            history.violated("batch isolation", f"the error of one op made others fail: {ops} {replies}")

    def _entry(self, op: Op, reply: Reply, now: int) -> None:
        if type(op) in self._check:
            self._check[type(op)](op, reply, now)

    def _marked(self, op: Op, reply: Reply, now: int) -> None:
        self.marks.performed(op, reply, now, self.forgotten)

    def lost_all_data(self) -> None:
        """Ends every hold, mark and outcome: the store came back empty."""
        now = self.now()
        for held in self.grants.values():
            held.forgotten = True
            if not held.ended:
                held.end("lost", now)
        self.marks.lost_all_data()
        self.outcomes.lost_all_data(now)
        self.forgotten.update(self.runs)
        self.unremembered |= self.revoked
        self.revoked.clear()
        self._offered_until.clear()
        for key in self.latest:
            self.waiting.opened(key, self.history.timeline.now, hinted=False)

    def now(self) -> int:
        """Returns the time on the store's clock, in µs."""
        return round((START + self.history.timeline.now) * US)

    def moment(self, stored: int) -> float:
        """Returns the virtual time at which the store's clock shows `stored`."""
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
            violated("attempts grow", f"{op.owner} was granted {op.key} as attempt {entry.attempts}")
        self.outcomes.must_be_free(op, now)
        if self._abandoned(op):
            violated("no leaked hold", f"{op.key} was granted to {op.owner}, whose caller had left")
        self._waits_for.pop(self.runs[op.owner], None)
        held = Held(op, entry, now, latest.order + 1 if latest is not None else 1)
        self.holds[op.key, op.owner] = self.latest[op.key] = self.grants[op.key, held.fence] = held
        self.waiting.granted(op.key)
        self.waiting.opened(op.key, self.moment(held.until + held.delay), hinted=False)

    def _repeated(self, op: Acquire | Resume, entry: Entry, now: int, held: Held) -> None:
        violated = self.history.violated
        if not held.live(now):
            violated("no leaked hold", f"{op.key} was granted to {held.owner} again, which had released or lost it")
        elif entry.fence != held.fence or entry.left * US > held.until - now + 1:
            violated("idempotence", f"a repeat of {op} was answered with a new fence or more time: {entry}")

    def _refused(self, op: Acquire, entry: Entry, now: int, held: Held | None, latest: Held | None) -> None:
        violated = self.history.violated
        if held is not None and held.live(now):
            violated("idempotence", f"{op.owner} holds {op.key}, and its repeated acquire was refused")
        self.outcomes.answered(op, entry, now)
        free_at = max(self.waiting.opens_at(op.key), self.moment(self._offered_until.get(op.key, 0)))
        if not entry.gone and not self.outcomes.current(op.key, now) and free_at < self.history.timeline.now - 1e-5:
            violated("no lost wake-up", f"{op.key} is free since {free_at:.6f}, but {op.owner} was refused: {entry}")
        if op.client and not entry.gone and entry.state is not State.DONE:
            run = self.runs[op.owner]
            if self._abandoned(op):
                violated("no leaked waiter", f"{op.owner} was queued at {op.key}, whose caller had left")
            self._waits_for[run] = op.key
            self._find_deadlock(run, now)

    def _abandoned(self, op: Acquire) -> bool:
        """True if this owner may not be granted anything: its flow is over, and its compensation could run."""
        return self._has_left(op.owner) and not self._may_return(self.holds.get((op.key, op.owner)))

    def _has_left(self, owner: str) -> bool:
        run = self.runs[owner]
        return run.over and run.undone and not run.driver.dead and owner not in self.forgotten

    def _may_return(self, held: Held | None) -> bool:
        """True if a late copy of the owner's acquire may take the key again. A known limit: an owner that finished for
        less than REMEMBER, and did not or could not revoke, may then hold the key for one more ttl."""
        return held is not None and held.ended == "finished" and (held.key, held.owner) not in self.revoked

    def _find_deadlock(self, first: SimulatedRun, now: int) -> None:
        run, path = first, list[str]()
        while run in self._waits_for and not run.over and not run.driver.dead and len(path) < 10:
            path.append(self._waits_for[run])
            latest = self.latest.get(path[-1])
            if latest is None or not latest.live(now) or latest.owner in self.forgotten:
                return  # an owner whose revocation was wiped may hold it once more by a late copy, until its ttl ends
            run = self.runs[latest.owner]
            if run is first:
                self.history.violated("no deadlock", f"flows wait for each other in a cycle over {path}")
                return

    def _resumed(self, op: Resume, entry: Entry, now: int) -> None:
        """A hold passes once from one holder to the next, under a greater fence; each holder learns of its own."""
        held, mine = self.holds.get((op.key, op.owner)), self.holds.get((op.key, op.successor))
        live = held is not None and held.live(now)
        if entry.owner != op.successor:
            if live and (op.key, op.successor) not in self.revoked:
                self.history.violated("no lost lease", f"{op} was refused, although {op.owner} holds the key: {entry}")
        elif mine is not None:
            if entry.state is not State.DONE:
                self._repeated(op, entry, now, mine)
        elif held is None or not live:
            self.history.violated(
                "resumed once", f"{op} was granted, although {op.owner} did not hold the key any more"
            )
        else:
            self._passed_on(op, entry, now, held)

    def _passed_on(self, op: Resume, entry: Entry, now: int, held: Held) -> None:
        violated, latest = self.history.violated, self.latest[op.key]
        if entry.fence <= latest.fence:
            violated("fence growth", f"{op.key}: fence {entry.fence} after {latest.fence}")
        if self._has_left(op.successor):
            violated("no leaked hold", f"{op.key} was resumed by {op.successor}, whose caller had left")
        if (entry.attempts, entry.fingerprint) != (held.attempts, held.fingerprint):
            violated("resumed once", f"{op} changed the attempts or the payload of the hold: {entry}")
        self._relied_on_until[op.key] = max(held.until, self._relied_on_until.get(op.key, 0))
        held.end("resumed", now)
        granted = Acquire(op.key, op.successor, op.ttl, delay=held.delay / US, fingerprint=held.fingerprint)
        heir = Held(granted, entry, now, latest.order + 1)
        self.holds[op.key, op.successor] = self.latest[op.key] = self.grants[op.key, heir.fence] = heir
        self.waiting.opened(op.key, self.moment(heir.until + heir.delay), hinted=False)

    def _all_are_hinted(self, key: str, now: int) -> bool:
        """False while a process may wait for a hold of its own that was resumed: it is not in the store's queue."""
        return now >= self._relied_on_until.get(key, 0)

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

    def _released(self, op: Release, reply: Released, now: int) -> None:
        held = self.holds.get((op.key, op.owner))
        self._offered_until[op.key] = now + _OFFER
        if op.revoke:
            self.revoked.add((op.key, op.owner))
            self.unremembered.discard((op.key, op.owner))
        absent = Released.ABSENT if op.fence else Released.RELEASED
        correct = {Released.RELEASED, absent}
        if held is not None and held.live(now):
            held.end("released", now)
            held.opens, held.kept = now + us(op.delay), now + us(op.keep)
            hinted = not op.delay and self._all_are_hinted(op.key, now)
            self.waiting.opened(op.key, self.history.timeline.now + op.delay, hinted=hinted)
            correct = {Released.RELEASED}
            if self.grants.get((op.key, op.fence), held) is not held:  # a late copy took the key again after that grant
                correct = {absent}
        elif held is not None and held.ended in ("", "expired"):
            correct = {Released.EXPIRED} if now < held.until + _REMEMBER else {Released.EXPIRED, absent}
            if not held.ended:
                held.end("expired", now)
                held.opens, held.kept = held.until + held.delay, now + _REMEMBER
        elif held is not None and held.ended == "resumed":
            correct = {Released.RESUMED} if now < held.until + _REMEMBER else {Released.RESUMED, absent}
        elif held is not None and held.ended == "cleared":
            correct = {Released.CLEARED} if now < held.ended_at + _REMEMBER else {Released.CLEARED, absent}
        granted = self.grants.get((op.key, op.fence), held)
        if (
            granted is not None and granted.forgotten
        ):  # the store has lost this grant, whatever else it has of the owner
            correct = {Released.LOST} if op.fence else {Released.RELEASED}
            if held is not granted:  # a late copy took the key again, and that hold may have ended differently
                correct |= {Released.EXPIRED, Released.CLEARED, Released.RESUMED}
        if reply not in correct:
            fact = "it was never granted" if granted is None else f"the hold ended: {granted.ended}"
            self.history.violated("correct release replies", f"{op} was answered {reply!r}; {fact}")

    def _finished(self, op: Finish, entry: Entry, now: int) -> None:
        """A finish is accepted once, from the last owner, even after expiry, until another takes the key."""
        held, latest = self.holds.get((op.key, op.owner)), self.latest.get(op.key)
        if held is None or held.forgotten or held is not latest or held.ended:
            self.outcomes.repeated(op, entry, now)
        elif entry.owner == op.owner:
            held.end("finished", now)
            self.outcomes.add(op, held.fingerprint, now)
            self.waiting.opened(op.key, self.history.timeline.now, hinted=self._all_are_hinted(op.key, now))
        elif now < held.until + held.delay + _REMEMBER:
            self.history.violated("no lost outcome", f"{op} was refused, although nobody took the key since: {entry}")

    def _read(self, op: Read, entry: Entry, now: int) -> None:
        self.outcomes.answered(op, entry, now)

    def _was_cleared(self, op: Clear, done: bool, now: int) -> None:
        latest, outcome = self.latest.get(op.key), self.outcomes.current(op.key, now)
        if latest is not None and latest.fence == op.fence and (latest.live(now) or outcome is not None):
            if not done:
                self.history.violated("clear", f"{op} removed nothing, although the entry existed")
            latest.end("cleared", now)
            if outcome is not None:
                outcome.end("cleared", now)
            self._cleared.add(op.fence)
            self._offered_until[op.key] = now + _OFFER
            # hinted=False: a waiter in the process that held the key is not in the store's queue; it looks again later
            self.waiting.opened(op.key, self.history.timeline.now, hinted=False)
        elif done and op.fence not in self._cleared:
            self.history.violated("clear", f"{op} reports that it removed a hold that had ended")


def _attempts(latest: Held | None, now: int) -> set[int]:
    """Returns the valid numbers of the next attempt: one more than the last while the store remembers that one."""
    if latest is None or latest.forgotten or latest.ended in ("finished", "cleared", "lost"):
        return {1}
    if latest.ended:
        return {latest.attempts + 1 if now < latest.kept else 1}
    remembered = now < latest.until + latest.delay + _REMEMBER
    return {latest.attempts + 1} if remembered else {1, latest.attempts + 1}
