"""How drivers try again: every unanswered try is seen here, and repeated under the same owner for a bounded time."""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

from ..errors import Interrupted, StoreUnavailable, Unanswered, first_error
from ..events import Retried
from ..flows.requests import Flow
from ..ops import OPS, Finish, Push, Release, Renew, Return, Take, Unhit
from ..rules import backoff

ONE_TRY = 0.4  # of the timeout: so that at least two full tries fit into it, with pauses
CLOSING_LOOK = 0.002  # seconds between looks whether all flows have ended: about what a loopback answer takes
IS_OP = frozenset(OPS)
URGENT = frozenset((Renew, Release))  # go first in a batch: they keep or free what others wait for
HEAVY = frozenset((Finish, Push))  # carry a body
PATIENT = frozenset((Unhit, Take, Return))  # cannot revoke what they undo, a Hit or a Take: must not overtake it


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


def not_undone(request: Any) -> dict[str, str]:
    """What the log says of a compensating op that failed: not the op itself, whose owner is a secret."""
    name, key = _named(request)
    return {"op": name, "key": key}


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
