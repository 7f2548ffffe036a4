"""Hold: a held key, as the holder's process knows it. Until the local `deadline`, no other owner has it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..model import FREE, LOST, RELEASED, Entry, Gone, Released
from ..rules import REMEMBER, Seconds, deadline, local_clock, renewal, seconds

if TYPE_CHECKING:
    import asyncio

# Values of `lost` besides those of Gone and Released:
FORKED = "forked"  # in the child of a fork: the parent keeps the hold
HANDED_OVER = "handed over"  # passed on to another process
ELSEWHERE = frozenset((FORKED, HANDED_OVER))  # held by another process, so never released here
PUBLISHED = "published"  # ended with its own outcome
_IN_WORDS: dict[str, str] = {
    LOST: "the store no longer had it",
    Gone.RESUMED: "another process resumed it by its token",
}


def why_lost(how: str) -> str:
    """How a lease was lost, for the text of an error."""
    return _IN_WORDS.get(how, how)


def longest_hold(max_hold: Seconds | None) -> float:
    """`max_hold` in float seconds, infinite if it is None; raises InvalidInput if it is out of bounds."""
    return math.inf if max_hold is None else seconds("max_hold", max_hold, least=0.001, most=math.inf)


class Hold:
    """A key granted to one owner. `doubtful`: a copy of the request may still be in flight, so its release revokes.

    `lost` is how it ended, or empty; `how` also checks the clock. A renewal, if requested by `keep`, is due at
    `renew_at` and never extends the hold beyond `ends`. If it is released before `opens`, the key stays closed until
    then. All times are of `clock`. `leaving`: a release was sent; `released` is the reply to it. `caller` is the id of
    the thread that acquired it, or the task, if known.
    """

    __slots__ = (
        "attempts", "caller", "clock", "deadline", "doubtful", "ends", "fence", "fingerprint", "key", "leaving", "lost",
        "on_lost", "opens", "owner", "released", "renew_at", "sent", "since", "ttl", "waited",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        owner: str,
        ttl: float,
        entry: Entry,
        sent: float,
        doubtful: bool,
        clock: Callable[[], float],
    ) -> None:
        self.key = key
        self.owner = owner
        self.ttl = ttl
        self.fence = entry.fence
        self.fingerprint = entry.fingerprint
        self.attempts = entry.attempts
        self.since = self.sent = sent
        self.deadline = deadline(sent, entry.left)
        self.doubtful = doubtful
        self.clock = clock
        self.waited = 0.0
        self.ends = self.renew_at = math.inf
        self.opens = 0.0
        self.lost = ""
        self.on_lost: Callable[[Hold], None] | None = None
        self.leaving = False
        self.released: Released | None = None
        self.caller: int | asyncio.Task[object] | None = None

    def keep(self, renew: bool, max_hold: float) -> None:
        """Schedules renewals, if `renew`, and bounds the hold to `max_hold` seconds."""
        if max_hold == math.inf:  # the usual case
            self.renew_at = renewal(self.sent, self.ttl) if renew else math.inf
        else:
            self.ends = self.sent + max_hold
            self._plan(self.ttl, renew)

    def extended(self, entry: Entry, ttl: float, sent: float) -> None:
        """Sets the new deadline after a renewal, counted from before the request was sent."""
        self.sent = sent
        self.deadline = deadline(sent, entry.left)
        self._plan(ttl, self.renew_at != math.inf)

    def _plan(self, ttl: float, renew: bool) -> None:
        if self.sent + ttl >= self.ends:  # the last period: max_hold ends the hold, so no renewal follows
            self.ends = self.deadline = min(self.deadline, self.ends)
            renew = False
        self.renew_at = renewal(self.sent, ttl) if renew else math.inf

    def ended(self, outcome: Released, lost: str) -> Released:
        """Notes the reply to a release; `lost` is how the hold was lost before it, or empty. Returns UNKNOWN in place
        of RELEASED if the release came so late that the store may have forgotten the hold."""
        if outcome is RELEASED and lost and lost != PUBLISHED and self.clock() > self.deadline + REMEMBER:
            outcome = Released.UNKNOWN
        self.lost = lost or outcome
        self.released = outcome
        return outcome

    def absent(self, lost: str, repeated: bool, doubtful: bool) -> Released:
        """The outcome of a release to which the store replied ABSENT. RELEASED only if an earlier copy of the release
        may have arrived and the hold was not lost before.

        `lost` is how it was lost before, or empty; `repeated`: another release was sent before this one; `doubtful`: a
        try of this one was not answered (for a lost hold it would have revoked the owner, which the store remembers).
        """
        if lost == PUBLISHED or (not lost and (repeated or doubtful)):
            return RELEASED  # by an earlier copy
        if repeated or self.clock() > self.deadline + REMEMBER:
            return Released.UNKNOWN
        return LOST

    def holder(self) -> str:
        """Who holds it, for another caller of this process: "this process, thread MainThread"."""
        caller = self.caller
        if caller is not None and not isinstance(caller, int):
            return f"this process, task {caller.get_name()}"
        named = [thread.name for thread in threading.enumerate() if thread.ident == caller]
        return f"this process, thread {named[0]}" if named else "this process"

    def gone(self, how: str) -> str:
        """How it was lost: `how` if the store knows, else expired, or lost by the store."""
        return how or self.how(self.clock()) or LOST

    def how(self, now: float) -> str:
        """How it was lost, or "" while it is held."""
        if not self.lost and now >= self.deadline:
            return "max_hold" if now >= self.ends else "expired"
        return self.lost

    def __repr__(self) -> str:  # without the owner, which is a secret
        return f"<{type(self).__name__} {self.key!r} fence={self.fence} {self.lost}>"


class Unguarded(Hold):
    """The hold of a caller that proceeded without its store: it has no owner, and is never renewed, lost or released.
    Its fence is 0, which every guarded resource that has seen a real fence refuses."""

    __slots__ = ()

    def __init__(self, key: str, ttl: float, now: float) -> None:
        super().__init__(key, "", ttl, Entry(key, FREE), now, False, local_clock)
        self.deadline = math.inf

    def keep(self, renew: bool, max_hold: float) -> None:
        """Does nothing: there is no hold to renew."""


class Missed(Hold):
    """The hold of a caller that did not get the key: only the facts of the current holder. It sets just the fields that
    a caller can read, since there may be thousands at once."""

    __slots__ = ()

    def __init__(self, key: str, ttl: float, fence: int, attempts: int, waited: float, how: str) -> None:
        self.key = key
        self.owner = ""
        self.ttl = ttl
        self.fence = fence
        self.attempts = attempts
        self.waited = waited
        self.lost = how
        self.since = self.deadline = 0.0
