"""The state and behavior of a claim, the same for threads and asyncio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from .. import events, values
from ..errors import Interrupted, InvalidInput, StoreError, TimedOut, WorkFailed
from ..flow import Flow
from ..holder import describe
from ..leases.context import Context
from ..leases.flow import LeaseTerms
from ..leases.hold import FORKED, Hold, Missed
from ..leases.lease import LeaseBase
from ..logs import get_logger
from ..model import FREE, Entry, item_key
from ..ops import Finish, Push
from ..rules import Seconds, ttl_seconds, wait_seconds
from . import publish
from .flights import Done, Flights
from .flow import Result
from .policy import Failing, Park, Policy

log = get_logger()
T = TypeVar("T")
_UNREAD = object()
NOT_WON = "not won"  # `lost` of a claim that was never held
_REPR_CHARS = 2_000  # of a payload that a dead letter cannot hold: enough to identify it


class ClaimOutcome(StrEnum):
    """The outcome of a request for a claim."""

    WON = "won"  # the caller runs the work and publishes its result
    CACHED = "cached"  # the work was run before: its outcome is here
    TIMED_OUT = "timed_out"  # another caller runs the work, or it must not run yet: see retry_after and holder


WON, CACHED, TIMED_OUT = ClaimOutcome  # for frequent comparisons, as in `model`


class ClaimOptions(NamedTuple):
    """The checked arguments of a claim."""

    terms: LeaseTerms
    keep: float
    policy: Policy
    purpose: str
    renew: bool
    max_hold: float = math.inf

    def now(self, context: Context) -> ClaimOptions:
        """The same with the client's current terms: after a fork it has another name, and its store may poll."""
        old = self.terms
        terms = context.terms(old.ttl, old.wait, old.delay)
        return self if terms is old else self._replace(terms=terms)


@dataclass(frozen=True, slots=True)
class Publication:
    """A result was either `published`, or `superseded` by another outcome of the claim: that of a later holder, or an
    earlier one of this holder.

    `value` is the final value; None if the outcome is a failure. `pending`: the later holder published nothing within
    the wait. `tombstone`: the work was done, but its result was not kept. Neither published nor superseded: the store
    was unreachable, and this client proceeded without it.
    """

    published: bool
    value: Any = None
    superseded: bool = False
    pending: bool = False
    tombstone: bool = False


class ClaimBase(LeaseBase):
    """A claim; all its properties are local. Only a claim that was won is also a lease."""

    _flights: Flights
    payload: Any = None  # for the dead letter, if the policy parks this claim
    _kept: bytes | None = None
    _value: Any = _UNREAD
    _info, retry_after = "", 0.0

    def _answered(self, key: str, result: Result, waited: float, options: ClaimOptions) -> None:
        self._options = options
        if isinstance(result, Hold):
            self.outcome = WON
            self._hold = result
            return
        if isinstance(result, Done):
            self.outcome = CACHED
            self._kept = result.kept
        else:
            self.outcome = TIMED_OUT
            self._info, self.retry_after = result.info, result.left  # until the hold or the delay ends
        self._hold = Missed(key, options.terms.ttl, result.fence, result.attempts, waited, NOT_WON)

    @property
    def won(self) -> bool:
        """True if the caller must run the work: publish its result, or release the claim."""
        return self.outcome is WON

    @property
    def cached(self) -> bool:
        """True if the work was run before: see `value`, `tombstone` and `failed`, or call `result()`."""
        return self.outcome is CACHED

    @property
    def timed_out(self) -> bool:
        """True if the claim was neither won nor finished within the wait: see `holder` and `retry_after`."""
        return self.outcome is TIMED_OUT

    @property
    def unguarded(self) -> bool:
        """True if this client proceeded without an unreachable store (`on_outage="proceed"`): nothing is held."""
        return self.won and not self._hold.owner

    @property
    def token(self) -> str:
        """The token with which one other process can resume a claim that was won (`resume_claim`), and any process end
        it (`claim_of`). A secret."""
        self._check_won("hand over")
        return super().token

    @property
    def attempt(self) -> int:
        """1 for the first holder; more after holders that failed or died."""
        return self._hold.attempts

    @property
    def holder(self) -> str:
        """The holder that runs the work, as a phrase, if timed out; "" if there is none."""
        return describe(self._info)

    @property
    def value(self) -> Any:
        """The winner's value; None if there is none (won, timed out, a tombstone, a failure) or it is unreadable."""
        if self._value is _UNREAD:
            self._value = values.decoded(self._kept, self.key) if self.cached else None
        return self._value

    @property
    def tombstone(self) -> bool:
        """True if the work was done once and its result was not kept."""
        return self.cached and values.is_tombstone(self._kept)

    @property
    def failed(self) -> WorkFailed | None:
        """The failure, if the outcome is one; else None."""
        return values.kept_failure(self._kept, self.key) if self.cached else None

    def result(self) -> Any:
        """The winner's value; raises TimedOut, NotKept (a tombstone) or WorkFailed (a failure) if there is none, and
        Unreadable if another program finished the claim."""
        if self.cached:
            return values.decode(self._kept, self.key)
        if self.won:
            raise InvalidInput(f"claim {self.key!r} was won: it has no result until you publish one")
        why = f"is held by {self.holder}" if self._info else "must not run yet"
        text = f"claim {self.key!r} {why}; waited {self.waited:.1f} s, try again in {self.retry_after:.1f} s"
        raise TimedOut(text, key=self.key, holder=self.holder, left=self.retry_after)

    def __repr__(self) -> str:
        return super().__repr__().replace(NOT_WON, self.outcome)

    # -- how it ends, the same for threads and asyncio

    def _check_won(self, verb: str) -> None:
        if not self.won:
            raise InvalidInput(f"claim {self.key!r} was not won ({self.outcome}): there is nothing to {verb}")

    def _check_mine(self) -> None:
        self._check_won("publish")
        if self._hold.lost == FORKED:
            raise self._lost_error()

    def _publishing(
        self, value: Any, kept: bytes, keep: Seconds | None = None, wait: Seconds | None = None
    ) -> Flow[Publication]:
        """Checks the arguments and returns the flow that publishes; a result that is too large leaves a tombstone."""
        self._check_mine()
        options = self._options
        terms = options.terms if wait is None else options.terms._replace(wait=wait_seconds(wait))
        stay = options.keep if keep is None else ttl_seconds(keep, "keep")
        flow = self._recording(value, self._fitting(kept), stay, terms)
        return self._context.or_proceed(self._hold.key, "publish", flow, lambda: self._unrecorded(value))

    def _finishing(self, value: Any, keep: Seconds | None) -> Flow[bool]:
        """Publishes inside the caller's transaction; it is not known here whether that commits."""
        self._check_mine()
        if self.unguarded:
            raise InvalidInput(f"claim {self.key!r} is unguarded (the store was unreachable): nothing can be published")
        stay = self._options.keep if keep is None else ttl_seconds(keep, "keep")
        kept = self._fitting(values.encode(value))
        entry: Entry = yield Finish(self._hold.key, self._hold.owner, kept, stay)
        return entry.owner == self._hold.owner and entry.value == kept

    def _fitting(self, kept: bytes) -> bytes:
        """The result, or a tombstone if it is too large."""
        why = values.too_large(kept)
        if not why:
            return kept
        self._not_kept(why)
        return values.tombstone(why)

    def _not_kept(self, why: str) -> None:
        facts = {"key": self._hold.key, "why": why}
        log.warning("result_not_kept: the result of %(key)r cannot be replayed: %(why)s", facts, extra=facts)

    def _recording(self, value: Any, kept: bytes, keep: float, terms: LeaseTerms) -> Flow[Publication]:
        if not self._hold.owner:
            return self._unrecorded(value)
        published, result = yield from self._publish(kept, keep, terms)
        if published:
            return Publication(True, value, tombstone=values.is_tombstone(kept))
        if not isinstance(result, Done):
            return Publication(False, superseded=True, pending=result.state is not FREE)
        theirs = values.decoded(result.kept, self.key)
        return Publication(False, theirs, superseded=True, tombstone=values.is_tombstone(result.kept))

    def _publish(self, kept: bytes, keep: float, terms: LeaseTerms) -> Flow[tuple[bool, Done | Entry]]:
        """(True, _) if this outcome is published, else (False, the other outcome); reports it to the hook."""
        context, hold = self._context, self._hold
        published, result = yield from publish.publish(hold, kept, keep, terms, self._flights, self._info_again)
        self._over = True
        if context.hook is not None:
            context.hook(events.Published(hold.key, hold.fence, not published, self.held()))
        return published, result

    def _info_again(self) -> str:
        return self._context.signature.info(self._options.purpose)

    def _unrecorded(self, value: Any) -> Publication:
        self._drop("store unreachable")
        return Publication(False, value)

    def _concluding(self, value: T) -> Flow[T]:
        """Publishes the value that a guarded function returned; returns the claim's final value."""
        try:
            kept = values.encode(value)
        except InvalidInput as error:
            self._not_kept(str(error))
            kept = values.tombstone(str(error))
        if not self._context.fails_closed or not self._hold.owner:
            done = yield from self._or_drop(self._publishing(value, kept))
            return done.value if done.superseded and done.value is not None else value
        self._check_mine()  # the usual case: as `_publishing`, but without a Publication that is not used
        options = self._options
        published, result = yield from self._or_drop(self._publish(self._fitting(kept), options.keep, options.terms))
        theirs = None if published or not isinstance(result, Done) else values.decoded(result.kept, self.key)
        return value if theirs is None else theirs

    def _failing(self, error: BaseException) -> Flow[Failing]:
        """Ends the claim according to its policy."""
        self._check_won("fail")
        context, hold, options = self._context, self._hold, self._options
        what, kept = options.policy.of(error), values.failure(error)
        if self.unguarded or hold.lost == FORKED:  # nothing is held, or the parent holds it
            self._over = True
            return Failing.RELEASED if self.unguarded else Failing.LOST
        done = yield from publish.fail(
            hold, what, kept, options.keep, self._flights, lambda park: self._letter(park, error)
        )
        self._over = True
        if context.hook is not None:
            if done in (Failing.REPLAYED, Failing.PARKED):
                context.hook(events.Published(hold.key, hold.fence, False, self.held()))
            else:
                context.hook(events.ReleasedLease(hold.key, hold.fence, self.held(), done.value))
            if isinstance(what, Park) and done is Failing.PARKED:
                from ..dead_letters.flow import queue_of  # here, as few claims park their work

                context.hook(events.DeadLettered(item_key(queue_of(what.group), self.key), what.group, self.attempt))
        return done

    def _letter(self, park: Park, error: BaseException) -> Push:
        from ..dead_letters.flow import letter

        facts: dict[str, Any] = {"error": error, "at": datetime.now(UTC), "key": self.key, "attempts": self.attempt}
        origin = describe(self._context.signature.info(self._options.purpose))
        try:
            return letter(park.group, self.payload, origin=origin, **facts)
        except InvalidInput:  # the payload is not JSON-serializable, or too large
            return letter(park.group, repr(self.payload)[:_REPR_CHARS], origin=origin, **facts)

    def _leaving(self, error: BaseException | None) -> Flow[None]:
        """Ends a guarded block: fails the claim according to its policy after an error, else releases it."""
        if error is not None:
            yield from self._or_drop(self._failing(error))
        else:
            self._released((yield from self._or_drop(self._releasing())))

    def _or_drop(self, flow: Flow[T]) -> Flow[T]:
        """The flow's result; if it raises, the claim is no longer renewed and expires with its ttl."""
        try:
            return (yield from flow)
        except (Interrupted, StoreError):
            if not self._hold.lost:
                self._drop("given up")
            raise
