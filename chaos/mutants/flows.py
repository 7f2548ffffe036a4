"""Bugs in flows, handles and guards, which are the same for every store; each function patches its worker process."""

from typing import Any
from unittest.mock import patch

from solely.claims import flow as claim_flow
from solely.claims import publish
from solely.errors import INTERRUPTIONS
from solely.fencing import sql
from solely.flow import Ask, Flow, Wait
from solely.leases import flow as lease_flow
from solely.leases import lease
from solely.leases.hold import Hold
from solely.marks import flow as mark_flow
from solely.model import RELEASED, Released
from solely.stores import transitions
from solely.stores.mongo import pipelines

ALWAYS = {"$eq": [1, 1]}  # a condition of MongoDB that is true


def waits_for_the_holder() -> None:
    """A waiter in the holder's process waits until the holder's deadline, also after an admin cleared the key."""

    def wait_for_local_holder(key: str, until: float, here: lease_flow.Here) -> Flow[None]:
        while (hold := here.get(key)) is not None:
            now: float = yield Ask.NOW
            left = min(until, hold.deadline) - now
            if left <= 0:
                return
            yield Wait(key, left)

    lease_flow.wait_for_local_holder = wait_for_local_holder
    claim_flow.wait_for_local_holder = wait_for_local_holder  # type: ignore[attr-defined]


def never_lost() -> None:
    """A holder does not look at its clock: it learns of an expiry only from the store."""
    Hold.how = lambda self, now: self.lost  # type: ignore[method-assign]


def release_is_not_sent() -> None:
    """Release answers that the key is free, and sends nothing."""

    def release(hold: Hold, delay: float = 0.0, keep: float = 0.0) -> Flow[Released]:
        yield Ask.NOW  # a flow asks for something, and this is local
        return hold.ended(RELEASED, "")

    lease.release = release  # type: ignore[attr-defined]


def superseded_is_published() -> None:
    """A publication answers that it is the result, although another one is."""
    right = publish.publish

    def lying(*given: Any) -> Flow[tuple[bool, Any]]:
        _, result = yield from right(*given)
        return True, result

    publish.publish = lying  # type: ignore[assignment]


def outage_is_first() -> None:
    """A caller whose mark got no answer takes itself for the first."""
    right = mark_flow.first

    def first(key: str, ttl: float, extend: bool = False) -> Flow[bool]:
        try:
            return (yield from right(key, ttl, extend))
        except INTERRUPTIONS:
            return True

    mark_flow.first = first


def guard_accepts_the_stale() -> None:
    """The guard of a resource stores any fence, also a smaller one."""
    sql._SQL["advance"] = sql._SQL["advance"].replace("WHERE kept.fence <= excluded.fence", "")


def sqlite_release_of_anybody() -> None:
    """SQLite: release frees the key, whoever holds it now."""
    right = transitions.release

    def release(record: Any, op: Any, *rest: Any) -> Released:
        return right(record, op._replace(owner=record.owner or op.owner, fence=0), *rest)

    transitions.release = release  # type: ignore[assignment]


def sqlite_renewal_revives() -> None:
    """SQLite: renew extends a hold that has expired."""

    def renew(record: Any, op: Any, now: Any) -> None:
        if record.owner == op.owner:
            record.until = now.lease + transitions.us(op.ttl)

    transitions.renew = renew


def mongo_release_of_anybody() -> None:
    """MongoDB: release frees the key, whoever holds it now."""
    with patch.object(pipelines, "MINE", ALWAYS):
        pipelines.RELEASE[:] = pipelines._release()


def mongo_renewal_revives() -> None:
    """MongoDB: renew extends a hold that has expired."""
    with patch.object(pipelines, "BEFORE_END", ALWAYS):
        pipelines.RENEW[:] = pipelines._renew()
