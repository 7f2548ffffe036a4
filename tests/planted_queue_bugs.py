"""Bugs that a queue could have, each planted where a programmer would make it, for the simulator to find."""

from __future__ import annotations

from unittest.mock import patch

from solely.errors import Busy, StoreFull
from solely.flow import RUN, Flow
from solely.model import HELD, Entry, LeasedItem, NoItem, item_key
from solely.ops import Ack, Amend, Push, Read, Release, Renew, Return, Take
from solely.queues import flow, waiting
from solely.queues.flow import TakenItem
from solely.rules import deadline
from solely.stores import transitions as t
from tests.planted_bugs import Plant, Planted, register_in

BUGS: dict[str, Plant] = {}
bug = register_in(BUGS)


@bug
def amend_overwrites_what_has_changed() -> Planted:
    """Amend reads, then writes: of two callers that saw the same item, both succeed."""
    right = t.amend

    def amend(record: t.StoredRecord, op: Amend, now: t.Now) -> bool:
        return right(record, op._replace(expected=record.value or b""), now)

    return patch.object(t, "amend", amend)


@bug
def repeated_amend_is_refused() -> Planted:
    """An Amend whose reply was lost finds its own change, and takes it for that of another."""
    right = t.amend

    def amend(record: t.StoredRecord, op: Amend, now: t.Now) -> bool:
        return right(record, op, now) if record.value == op.expected else False

    return patch.object(t, "amend", amend)


@bug
def taken_item_is_removed() -> Planted:
    """An item is removed while a worker has it."""
    return patch.object(t, "_over", lambda record, now: True)


@bug
def ack_by_anyone() -> Planted:
    """An Ack removes the item, whoever has it."""
    return patch.object(t, "has", lambda record, owner: record.state is HELD)


@bug
def item_is_resumed_under_its_owner() -> Planted:
    """Whoever resumes an item shares the owner in its token: all of them have it, and each ack is accepted."""

    def resume(queue: str, id: str, owner: str, ttl: float) -> Flow[TakenItem]:
        key = item_key(queue, id)
        entry, read = yield [Renew(key, owner, ttl), Read(key)]
        run = yield RUN
        if not (isinstance(entry, Entry) and isinstance(read, Entry)):
            raise StoreFull("")
        if entry.owner != owner or read.value is None:
            raise Busy("")
        ends = deadline(run.sent, entry.left)
        return TakenItem(id, read.value, entry.attempts, entry.fence, owner, ends, False, read.value, ttl)

    return patch.object(flow, "resume", resume)


@bug
def ack_of_a_former_taker() -> Planted:
    """After the item was removed, the ack of the one from whom it was resumed is true as well."""
    return patch.object(t, "is_acked", lambda record, op, now, born: not t.is_lost(op.fence, born()))


@bug
def late_renewal_revives_an_item() -> Planted:
    """A Renew extends a lease that has expired."""

    def renew(record: t.StoredRecord, op: Renew, now: t.Now) -> None:
        if record.state is HELD and record.owner == op.owner:
            record.until = max(record.until, now.lease + t.us(op.ttl))

    return patch.object(t, "renew", renew)


@bug
def uncounted_take_counts() -> Planted:
    """A take that is given back uncounted is an attempt all the same."""
    right = t.give_back

    def give_back(record: t.StoredRecord, op: Return, now: t.Now) -> None:
        right(record, op._replace(uncounted=False), now)

    return patch.object(t, "give_back", give_back)


@bug
def item_is_acked_before_its_letter_is_stored() -> Planted:
    """A taker that dies between the two loses the item."""

    def remove(op: Take, item: LeasedItem, parked: Push | None) -> Flow[None]:
        yield Ack(op.queue, item.id, op.owner)
        assert parked is not None
        yield parked

    return patch.object(flow, "_remove_parked", remove)


@bug
def next_item_is_never_announced() -> Planted:
    """A waiting taker does not learn when a delay or a lease ends."""
    return patch.object(t, "no_item", lambda soonest, now: NoItem(float("inf")))


@bug
def waiting_taker_never_looks_again() -> Planted:
    """A taker whose hint was lost waits although there are items."""
    return patch.object(waiting, "_look_again", lambda found, looks, polls: float("inf"))


@bug
def taker_stays_in_line() -> Planted:
    """A taker that leaves is notified later, instead of one that waits."""
    return patch.object(waiting, "Release", lambda line, owner: Release(line, "nobody"))


@bug
def push_held_takes_any_item() -> Planted:
    """The caller gets the item that has waited longest, not the one that it pushed."""
    right = flow._push_held

    def push_held(op: Take, put: Push, park: flow.Park) -> Flow[object]:
        return right(op._replace(id=""), put, park)

    return patch.object(flow, "_push_held", push_held)


@bug
def removal_is_reported_although_it_was_refused() -> Planted:
    """A caller hears that an item is gone, which another had changed or taken."""

    def remove(queue: str, id: str, expected: bytes, fence: int) -> Flow[bool]:
        yield Amend(queue, id, None, expected)
        return True

    return patch.object(flow, "remove", remove)
