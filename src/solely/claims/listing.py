"""Lists of claims: which work runs now, and which has ended, and how."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from .. import values
from ..errors import NotKept, Unreadable, WorkFailed
from ..flow import Flow
from ..holder import describe, purpose_of, since_of
from ..leases.listing import listing
from ..model import DONE, Entry, State

PUBLISHED = "published"  # the outcome of a claim that has a result


class ClaimInfo(NamedTuple):
    """A claim as any caller may see it: held (it runs), done (it has an outcome) or closed (it must not run yet), for
    `left` more seconds.

    `outcome` is empty unless it is done; else published, not kept, "failed: …" or "unreadable: …". `size` is that of
    its result in bytes, and `waiters` are processes that wait for one.
    """

    key: str
    state: State
    holder: str
    purpose: str
    since: datetime | None
    left: float
    fence: int
    attempts: int
    waiters: int
    outcome: str
    size: int


def claims(prefix: str, after: str, limit: int) -> Flow[list[ClaimInfo]]:
    """A page of the claims that are held, done or closed."""
    return (yield from listing("claim", prefix, after, limit, _claim))


def outcome_of(entry: Entry) -> str:
    """How the claim ended; "" if it has not."""
    if entry.state is not DONE:
        return ""
    try:
        values.decode(entry.value, entry.name)
    except WorkFailed as failed:
        return f"failed: {failed.kind}: {failed.text}"
    except NotKept:
        return "not kept"
    except Unreadable as why:
        return f"unreadable: {why}"
    return PUBLISHED


def _claim(entry: Entry) -> ClaimInfo:
    info = entry.info
    return ClaimInfo(
        key=entry.name,
        state=entry.state,
        holder=describe(info),
        purpose=purpose_of(info),
        since=since_of(info),
        left=entry.left,
        fence=entry.fence,
        attempts=entry.attempts,
        waiters=entry.waiters,
        outcome=outcome_of(entry),
        size=len(entry.value or b""),
    )
