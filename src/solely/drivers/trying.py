"""How drivers try again: every unanswered try is seen here, and repeated under the same owner for a bounded time."""

from __future__ import annotations

import logging
import math
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

from ..errors import Interrupted, StoreUnavailable, Unanswered, first_error
from ..events import Retried
from ..flow import Flow
from ..ops import MAX_BATCH, OPS, Finish, Push, Return, Take, Unhit
from ..rules import MIN_PATIENCE, backoff

log = logging.getLogger("solely")

# Of the timeout, for one try: two fit into what there is for all of them, also where the store itself needs a little
# longer to give up (MongoDB's driver has 0.25 s more), and on a machine that is slow.
ONE_TRY = 0.35
TRYING = 0.85  # of the timeout, for all tries of a call; the rest is left for undoing: a round trip anywhere on earth
TWO_STEPS = 2 * ONE_TRY  # of the timeout: a try that has to connect first, or that waits in a queue, and then is sent
CLOSING_LOOK = 0.002  # seconds between looks whether all flows have ended: about what a loopback answer takes
IS_OP = frozenset(OPS)
HEAVY = frozenset((Finish, Push))  # carry a body
PATIENT = frozenset((Unhit, Take, Return))  # cannot revoke what they undo, a Hit or a Take: must not overtake it


class Late(Unanswered):
    """A try that its caller no longer waits for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within the {max(0.0, seconds):.1f} s that were left of the timeout")


class Patience:
    """How long one call goes without an answer: its timeout at the most, whatever it asks for and however often.

    Answered ops do not count. A call with a wait ends when that is over, or its timeout if that is longer; the op that
    is under way then has time for one try. A call that waits again, with its earlier ops answered, starts anew.
    """

    spent = 0.0  # seconds of ops that were not answered at once
    over = math.inf  # when the wait of the call is over, or its timeout if that is longer
    careful = math.inf  # from then on a first try may not take as long as it can
    doubtful = False  # was any try of the call unanswered
    leaves = math.inf  # when the caller leaves, although something may still have to be undone

    def until(self, wait: float, timeout: float, now: float) -> None:
        """The call waits for so long, from now on."""
        if self.over == math.inf:  # the first wait is that of the whole call
            self.over = now + max(wait, timeout)
            self.careful = self.over - timeout * (1.0 - TRYING + TWO_STEPS)

    def ends(self, asked: float, request: Any, timeout: float) -> float:
        """When the tries of an op that was asked at this moment are over; a long list is several requests."""
        batches = -(-len(request) // MAX_BATCH) if type(request) is list else 1
        waiting = max(self.over - timeout * (1.0 - TRYING), asked + timeout * ONE_TRY)
        return min(asked + timeout * TRYING * max(1, batches) - self.spent, waiting)

    def cut(self, asked: float, ends: float) -> float:
        """When a try of this op, under way, is no longer waited for."""
        return max(ends, asked + MIN_PATIENCE)

    def fits(self, began: float, now: float, ends: float, timeout: float) -> bool:
        """True if a try that begins now will be over in time, should it take as long as the one that began then. One
        that is cut off may have happened, where the store might have said that it did not; if an earlier try may have
        happened, that makes no difference."""
        return now + (0.0 if self.doubtful else min(now - began, timeout * ONE_TRY)) <= ends

    def spend(self, seconds: float) -> None:
        """An op was not answered at once, and took so long."""
        self.spent += seconds
        self.careful = 0.0

    def start_anew(self, timeout: float) -> None:
        """The call has waited."""
        if self.spent:
            self.spent = 0.0
            self.careful = self.over - timeout * (1.0 - TRYING + TWO_STEPS)
        self.leaves = math.inf

    def give_up(self, ends: float, timeout: float) -> None:
        """The tries are over: what is left of the timeout is for undoing."""
        self.leaves = ends + timeout * (1.0 - TRYING)


def pause(tries: int, chance: float) -> float:
    """Seconds before the next try: 20 ms (a connection was reset), doubling up to 0.5 s (a server restarts)."""
    return backoff(tries, first=0.02, longest=0.5, spread=0.2, chance=chance)


def weight(op: Any) -> int:
    """About how many bytes the op takes on the wire."""
    return 256 + (len(op.value if type(op) is Finish else op.payload) if type(op) in HEAVY else 0)


def answered(replies: list[Any]) -> list[Any]:
    """The replies to a batch, if every op has one; else raises, so that all are asked again under the same owners.

    Unanswered, if any of them was performed or may have been.
    """
    error = first_error(StoreUnavailable, replies)
    if error is None:
        return replies
    refused = sum(isinstance(reply, StoreUnavailable) and not isinstance(reply, Unanswered) for reply in replies)
    if refused in (0, len(replies)):
        raise error
    raise Unanswered(f"{refused} of {len(replies)} ops were not performed: {error}") from error


def given_up(request: Any, tries: int, since: float, error: StoreUnavailable, doubtful: bool) -> StoreUnavailable:
    """The error for an op, or batch of ops, that got no answer in time; says whether it may have happened."""
    name, key = _named(request)
    unknown = "it may or may not have happened" if doubtful else "it did not happen"
    final = StoreUnavailable(
        f"{name} of {key!r}: no answer in {tries} tries over {since:.1f} s; {unknown}: {error}", key=key
    )
    final.__cause__ = error
    return final


def log_not_undone(request: Any) -> None:
    """Warns that a compensating op failed. The op itself is not logged: its owner is a secret."""
    name, key = _named(request)
    facts = {"op": name, "key": key}
    text = "undo_failed: %(op)s of %(key)r was not performed; what it was to undo ends with its ttl"
    log.warning(text, facts, extra=facts)


def _named(request: Any) -> tuple[str, str]:
    """An op, or batch of ops, as errors and the log name it, and its key or queue."""
    ops = request if type(request) is list else [request]
    name = type(ops[0]).__name__ + (f" and {len(ops) - 1} more" if len(ops) > 1 else "")
    return name, getattr(ops[0], "key", "") or getattr(ops[0], "queue", "")


def interruption(error: BaseException, request: Any, doubtful: bool) -> Interrupted:
    """What is thrown into a flow whose caller was interrupted during this request."""
    if isinstance(error, Interrupted):
        return error
    return Interrupted(error, unanswered=doubtful or type(request) in IS_OP or type(request) is list)


def retried(request: Any, tries: int, error: StoreUnavailable) -> Retried:
    """The event of an unanswered try that is repeated."""
    op = request[0] if type(request) is list else request
    return Retried(getattr(op, "key", ""), type(op).__name__, tries, str(error))


def ended(flow: Flow[Any]) -> bool:
    """True if the flow itself ended with the error at hand; False if it stands at a yield and can be told of it."""
    return getgeneratorstate(flow) == GEN_CLOSED
