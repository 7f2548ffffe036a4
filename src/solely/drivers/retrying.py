"""How drivers retry: they see every unanswered try, and repeat it under the same owner for a bounded time."""

from __future__ import annotations

import math
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

from ..errors import Interrupted, StoreUnavailable, Unanswered, first_error
from ..events import Retried
from ..flow import Flow
from ..logs import get_logger
from ..ops import MAX_BATCH, OPS, Amend, Finish, Push, Return, Take, Unhit
from ..rules import MIN_PATIENCE, backoff

log = get_logger()

# Share of the timeout for one try. Two tries fit into TRYING, even if the store's own timeout is a little longer
# (MongoDB's driver adds 0.25 s) and the machine is slow.
ONE_TRY = 0.35
TRYING = 0.85  # share of the timeout for all tries of a call; the rest is for undoing: one round trip anywhere on earth
LEAST_TRY = 0.1  # share of the timeout that a try must have left: less could cut it off on a machine that is busy then
TWO_STEPS = 2 * ONE_TRY  # share of the timeout for a try that first connects, or first waits in a queue
LANDING = 2.0  # timeouts after which a store has given an op up, in which it waits for a connection and for the answer
CLOSING_LOOK = 0.002  # seconds between checks whether all flows have ended: about one loopback round trip
IS_OP = frozenset(OPS)
HEAVY = frozenset((Finish, Push, Amend))  # carry a body
IN_ORDER = frozenset((Unhit, Take, Return))  # undo a Hit or a Take without revoking it, so they must not overtake it


class TryTimedOut(Unanswered):
    """The caller stopped waiting for this try; the store may still perform it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within the {max(0.0, seconds):.1f} s that were left of the timeout")


class TimeBudget:
    """Bounds the time that one call spends without an answer: its timeout, over all its ops and tries.

    Answered ops do not count. A call with a wait ends when the wait is over, or its timeout if that is longer; an op in
    flight at that moment gets time for one try. A call that waits again after its ops were answered starts afresh.
    """

    spent = 0.0  # seconds of ops that were not answered at the first try
    wait_ends = math.inf  # when the call's wait is over, or its timeout if that is longer
    limited_from = math.inf  # from this moment on, the first try of an op has a time limit too
    doubtful = False  # a try of the call went unanswered
    undo_until = math.inf  # when the caller stops waiting for its compensating ops

    def start_wait(self, wait: float, timeout: float, now: float) -> None:
        """Starts the call's wait; only the first one counts, since it is that of the whole call."""
        if self.wait_ends == math.inf:
            self.wait_ends = now + max(wait, timeout)
            self.limited_from = self.wait_ends - timeout * (1.0 - TRYING + TWO_STEPS)

    def tries_end(self, start: float, request: Any, timeout: float) -> float:
        """When to stop retrying an op requested at `start`; a long list counts as several requests."""
        batches = -(-len(request) // MAX_BATCH) if type(request) is list else 1
        waiting = max(self.wait_ends - timeout * (1.0 - TRYING), start + timeout * ONE_TRY)
        return min(start + timeout * TRYING * max(1, batches) - self.spent, waiting)

    def cutoff(self, start: float, ends: float) -> float:
        """When the caller stops waiting for a try of this op that is in flight."""
        return max(ends, start + MIN_PATIENCE)

    def fits(self, began: float, now: float, ends: float, timeout: float) -> bool:
        """True if a try that starts now ends in time, assuming it takes as long as the one that began at `began`, and
        at least LEAST_TRY.

        A try that is cut off leaves doubt whether the op was performed. Where there is doubt already, it costs nothing.
        """
        needed = max(timeout * LEAST_TRY, min(now - began, timeout * ONE_TRY))
        return now + (0.0 if self.doubtful else needed) <= ends

    def charge(self, seconds: float) -> None:
        """Counts the time of an op that was not answered at the first try."""
        self.spent += seconds
        self.limited_from = 0.0

    def reset(self, timeout: float) -> None:
        """Starts afresh, after the call has waited."""
        if self.spent:
            self.spent = 0.0
            self.limited_from = self.wait_ends - timeout * (1.0 - TRYING + TWO_STEPS)
        self.undo_until = math.inf

    def stop_trying(self, ends: float, timeout: float) -> None:
        """Leaves the rest of the timeout to compensating ops."""
        self.undo_until = ends + timeout * (1.0 - TRYING)


def pause(tries: int, chance: float) -> float:
    """Seconds before the next try: 20 ms (a connection was reset), doubling up to 0.5 s (a server restarts)."""
    return backoff(tries, first=0.02, longest=0.5, spread=0.2, chance=chance)


def weight(op: Any) -> int:
    """About how many bytes the op takes on the wire."""
    return 256 + (sum(len(field) for field in op if type(field) is bytes) if type(op) in HEAVY else 0)


def answered(replies: list[Any]) -> list[Any]:
    """The replies to a batch, if every op has one; else raises, so that all ops are retried under the same owners.

    Raises Unanswered if any op was performed or may have been.
    """
    error = first_error(StoreUnavailable, replies)
    if error is None:
        return replies
    refused = sum(isinstance(reply, StoreUnavailable) and not isinstance(reply, Unanswered) for reply in replies)
    if refused in (0, len(replies)):
        raise error
    raise Unanswered(f"{refused} of {len(replies)} ops were not performed: {error}") from error


def unavailable(request: Any, tries: int, since: float, error: StoreUnavailable, doubtful: bool) -> StoreUnavailable:
    """The error for an op or batch that got no answer in time; its text says whether it may have been performed."""
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
    text = "undo_failed: %(op)s of %(key)r was not performed; what it should have undone expires with its ttl"
    log.warning(text, facts, extra=facts)


def _named(request: Any) -> tuple[str, str]:
    """The name of an op or batch in errors and logs, and its key or queue."""
    ops = request if type(request) is list else [request]
    name = type(ops[0]).__name__ + (f" and {len(ops) - 1} more" if len(ops) > 1 else "")
    return name, getattr(ops[0], "key", "") or getattr(ops[0], "queue", "")


def interruption(error: BaseException, request: Any, doubtful: bool) -> Interrupted:
    """The error to throw into a flow whose caller was interrupted during this request."""
    if isinstance(error, Interrupted):
        return error
    return Interrupted(error, unanswered=doubtful or type(request) in IS_OP or type(request) is list)


def retried(request: Any, tries: int, error: StoreUnavailable) -> Retried:
    """The event for an unanswered try that is repeated."""
    op = request[0] if type(request) is list else request
    return Retried(getattr(op, "key", ""), type(op).__name__, tries, str(error))


def ended(flow: Flow[Any]) -> bool:
    """True if the flow itself raised the current error; False if it waits at a yield, where the error can be thrown."""
    return getgeneratorstate(flow) == GEN_CLOSED
