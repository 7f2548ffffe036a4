"""Decisions of `take`: an item that is available now, or one that becomes available within the caller's wait."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ..errors import INTERRUPTIONS, StoreError
from ..flow import Ask, Flow, Join, Run, Wait, undo
from ..model import NoItem, item_key, line_key
from ..ops import Release, Return, Take
from ..rules import LOOK_AGAIN, POLL
from .flow import LATE, PARKED, Park, TakenItem, take_now

# Seconds until a waiting taker looks a second time: a push in flight when it joined the line has ended by then.
SECOND_LOOK = 0.02
# Seconds between looks at a store that sends no hints, at most: work that waits in a queue can wait that long, and ten
# looks a second cost next to nothing.
LONGEST_POLL = 0.1


class TakeTerms(NamedTuple):
    """How to take an item. If there is none, the store queues `client` as a waiter; `polls`: it sends no hints. An item
    that was taken `max_attempts` times before is parked; 0: no limit."""

    ttl: float
    wait: float = 0.0
    max_attempts: int = 0
    client: str = ""
    polls: bool = False


def take(queue: str, terms: TakeTerms, park: Park, id: str = "") -> Flow[TakenItem | None]:
    """Takes the item that has waited longest, or the one of this id; None if none is available within terms.wait.

    Parks unreadable items, so that they do not block the queue, and those that were taken too often.
    """
    found: object = PARKED
    while found is PARKED:
        owner: str = yield Ask.OWNER
        op = Take(queue, owner, terms.ttl, id)
        found = yield from take_now(op, park, terms.max_attempts)
    if terms.wait and (found is None or found is LATE):
        return (yield from _wait_for_item(op, terms, park, found))
    return found if isinstance(found, TakenItem) else None


def _wait_for_item(op: Take, terms: TakeTerms, park: Park, found: object) -> Flow[TakenItem | None]:
    """Takes an item within terms.wait, as the first taker of this process in line; else None.

    Only for an item of any id the process joins the line of the store; for one of a given id it polls.
    """
    line = item_key(op.queue, op.id) if op.id else line_key(op.queue)
    run: Run | None = yield Join(line, terms.wait, None)
    if run is None:
        return None
    op = op._replace(client="" if op.id else terms.client)
    ends, looks, polls = run.arrived + terms.wait, 0, terms.polls or op.id != ""
    try:
        while True:
            if found is PARKED or found is LATE:
                yield from _leave(line, op)
                op = op._replace(owner=run.fresh_owner())
            found = yield from take_now(op, park, terms.max_attempts)
            if isinstance(found, TakenItem):
                break
            if found is PARKED:
                continue
            left = ends - run.now()
            if left <= 0:
                break
            yield Wait(line, min(left, _look_again(found, looks, polls)))
            looks += 1
        yield from _leave(line, op)
        return found if isinstance(found, TakenItem) else None
    except INTERRUPTIONS:
        taken = [Return(op.queue, found.id, op.owner)] if isinstance(found, TakenItem) else []
        if taken or op.client:
            yield from undo([*taken, Release(line, op.owner)] if op.client else taken)
        raise


def _leave(line: str, op: Take) -> Flow[None]:
    """Gives up the place in the line, so that no hint comes here in vain."""
    if op.client:
        with suppress(StoreError):  # then the line forgets this client by itself
            yield Release(line, op.owner)


def _look_again(found: object, looks: int, polls: bool) -> float:
    """Seconds until the next look without a hint: until the next item becomes available, but short enough to survive a
    lost hint."""
    longest = LOOK_AGAIN if looks else SECOND_LOOK
    if polls:
        longest = min(LONGEST_POLL, POLL[0] * 2.0 ** min(looks, 8))
    soonest = found.left if isinstance(found, NoItem) else 0.0
    return min(longest, soonest + POLL[0]) if soonest else longest
