"""Hold: a key in hand, as its holder's process knows it. Until the local `deadline` nobody else has it."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..model import FREE, LOST, RELEASED, Entry, Released
from ..rules import REMEMBER, deadline, local_clock, renewal

FORKED = "forked"  # how a hold is lost to the child of a fork: it stays the parent's
HANDED_OVER = "handed over"  # how it is lost to who gave it to another process
ELSEWHERE = frozenset((FORKED, HANDED_OVER))  # so nobody lets go of it here
PUBLISHED = "published"  # how a hold ends whose outcome stands


class Hold:
    """What was granted to one owner. `doubtful`: a copy of the request may still be under way, so its release revokes.

    `lost` says how it ended, or is empty; `how` also looks at the clock. Renewal, where asked for by `keep`, happens
    at `renew_at` and never goes beyond `ends`. Let go of before `opens`, the key stays closed until then. All of it is
    told on `clock`. `leaving`: a release was sent; `released` is what the store answered to it.
    """

    __slots__ = (
        "attempts", "clock", "deadline", "doubtful", "ends", "fence", "fingerprint", "key", "leaving", "lost",
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

    def keep(self, renew: bool, max_hold: float) -> None:
        """From now on it is to be renewed, if asked, and ends at the latest after `max_hold` seconds."""
        if max_hold == math.inf:  # the usual case
            self.renew_at = renewal(self.sent, self.ttl) if renew else math.inf
        else:
            self.ends = self.sent + max_hold
            self._plan(self.ttl, renew)

    def extended(self, entry: Entry, ttl: float, sent: float) -> None:
        """The store renewed it: a new deadline, counted from before the request was sent."""
        self.sent = sent
        self.deadline = deadline(sent, entry.left)
        self._plan(ttl, self.renew_at != math.inf)

    def _plan(self, ttl: float, renew: bool) -> None:
        if self.sent + ttl >= self.ends:  # the last stretch: whoever renews, it ends with max_hold
            self.ends = self.deadline = min(self.deadline, self.ends)
            renew = False
        self.renew_at = renewal(self.sent, ttl) if renew else math.inf

    def ended(self, outcome: Released, lost: str) -> Released:
        """A release was answered so; `lost` is how the hold was lost before that, or empty. What comes so late that the
        store may have forgotten is not believed to be released."""
        if outcome is RELEASED and lost and lost != PUBLISHED and self.clock() > self.deadline + REMEMBER:
            outcome = Released.UNKNOWN
        self.lost = lost or outcome
        self.released = outcome
        return outcome

    def absent(self, lost: str, repeated: bool, doubtful: bool) -> Released:
        """What it means that the store had nothing of this hold when it was let go of, and is not known to have lost
        its data. Who asked once, or knows that the lease was lost, is not told that it was released.

        `lost` is how it was lost before, or empty; `repeated`: another release was sent before this one; `doubtful`: a
        try of this one was not answered, which would have revoked the owner of a lost hold, and so be remembered.
        """
        if lost == PUBLISHED or (not lost and (repeated or doubtful)):
            return RELEASED  # by an earlier copy
        if repeated or self.clock() > self.deadline + REMEMBER:
            return Released.UNKNOWN
        return LOST

    def gone(self, how: str) -> str:
        """How it was lost, of which the store says `how`, or nothing: then its time ran out, or the store lost it."""
        return how or self.how(self.clock()) or LOST

    def how(self, now: float) -> str:
        """How it was lost, or "" while it is held."""
        if not self.lost and now >= self.deadline:
            return "max_hold" if now >= self.ends else "expired"
        return self.lost

    def __repr__(self) -> str:  # without the owner, which is a secret
        return f"<{type(self).__name__} {self.key!r} fence={self.fence} {self.lost}>"


class Unguarded(Hold):
    """What a caller has in hand that went on without its store: nothing, under no owner; so nothing is renewed, lost
    or let go of. Its fence is 0, which every guard that has seen a real one refuses."""

    __slots__ = ()

    def __init__(self, key: str, ttl: float, now: float) -> None:
        super().__init__(key, "", ttl, Entry(key, FREE), now, False, local_clock)
        self.deadline = math.inf

    def keep(self, renew: bool, max_hold: float) -> None:
        """There is nothing to keep."""


class Missed(Hold):
    """What a caller has in hand whom the key was not given: nothing, but what it was told of who has it. Nobody keeps
    it, so it is made with no more than can be asked of it: there may be thousands at once."""

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
