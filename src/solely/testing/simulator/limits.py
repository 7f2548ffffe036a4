"""What limits must answer, and what callers make of it: never more than so many grants in any window."""

from __future__ import annotations

from collections.abc import Sequence

from ...drivers.simulated import SimulatedRun
from ...model import Allowance
from ...ops import Hit, Op, Reply
from ...reservations.flow import ReservationTerms, ReservationTicket
from ...stores.transitions import us
from .history import History


class Grant:
    """A caller may send, since its hit at that moment. It counts until it is said that nothing was sent."""

    __slots__ = ("at", "owner", "released")

    def __init__(self, owner: str, at: int) -> None:
        self.owner, self.at = owner, at
        self.released: float = float("inf")


class LimitChecks:
    """Checks every answer to a hit, and every window that ends with a grant."""

    def __init__(self, history: History, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.runs = runs
        self._hits: dict[str, dict[str, int]] = {}  # by key: the owners that hit it, and when
        self._given_back: set[tuple[str, str]] = set()  # a late hit that comes after that stays: a known limit
        self._forgotten: set[str] = set()  # owners from before the last loss of all data
        self._grants: dict[str, list[Grant]] = {}

    def lost_everything(self) -> None:
        """The store came back empty: it counts from 0."""
        self._hits.clear()
        self._grants.clear()
        self._forgotten.update(self.runs)

    def performed(self, op: Op, reply: Reply, now: int) -> None:
        """The store performed this Hit or Unhit, and answered so."""
        hits = self._hits.setdefault(op.key, {})  # type: ignore[union-attr]
        if not isinstance(op, Hit):
            hits.pop(op.owner, None)  # type: ignore[union-attr]
            self._given_back.add((op.key, op.owner))  # type: ignore[union-attr]
            return
        assert isinstance(reply, Allowance)
        recent = [owner for owner, at in hits.items() if at > now - us(op.per)]
        if reply.allowed != (op.owner in recent or len(recent) < op.limit):
            self.history.violated("exact limits", f"{op} was answered {reply}, with {len(recent)} in the window")
        if reply.allowed and op.owner not in recent:
            hits[op.owner] = now

    def granted(self, ticket: ReservationTicket, terms: ReservationTerms) -> None:
        """A caller was told that it may send."""
        if terms.own is not None:
            self._granted(f"hits/{ticket.key.partition('/')[2]}", ticket.owner, *terms.own)
        if terms.group is not None:
            self._granted(terms.group[0], ticket.owner, *terms.group[1:])

    def _granted(self, key: str, owner: str, limit: int, per: float) -> None:
        at = self._hits.get(key, {}).get(owner)
        if at is None:
            if owner not in self._forgotten:
                self.history.violated("exact limits", f"{owner} was granted without a hit of {key}")
            return
        grants = self._grants.setdefault(key, [])
        grants.append(Grant(owner, at))
        for last in grants:
            window = [grant for grant in grants if last.at - us(per) < grant.at <= last.at < grant.released]
            if len(window) > limit:
                self.history.violated("exact limits", f"{len(window)} were granted within {per} s under {key}")

    def given_up(self, ticket: ReservationTicket, now: int) -> None:
        """Its holder says that nothing was sent: from now on it need not be counted."""
        for key in ticket.hits:
            for grant in self._grants.get(key, []):
                if grant.owner == ticket.owner:
                    grant.released = now

    def nothing_left(self, run: SimulatedRun) -> None:
        """This reserving was not granted: its hits are given back, unless its undoing failed."""
        for key, hits in self._hits.items():
            for owner in hits:
                if self.runs[owner] is run and run.undone:
                    self.gave_back(owner, [key])

    def gave_back(self, owner: str, keys: Sequence[str]) -> None:
        """This owner has let go: then its hits are given back."""
        for key in keys:
            if owner in self._hits.get(key, {}) and (key, owner) not in self._given_back:
                self.history.violated("no leaked hit", f"{owner} has let go, and its hit of {key} stays")
