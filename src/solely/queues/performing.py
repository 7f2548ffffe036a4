"""Performs one taken item: its lease is renewed while the work runs, and its outcome decides where the item goes."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from ..errors import LeaseLost, StoreError, Unreadable
from ..logs import get_logger
from ..owner import fresh_owner
from ..rules import MAX_TTL, Seconds, seconds
from .flow import TakenItem
from .item import AsyncItem

log = get_logger()

Perform = Callable[[AsyncItem], Awaitable[object]]
REPLAYED = "replay-"  # begins the id of an item that comes from a dead letter, which keeps only the payload

_RENEW_AGAIN = 0.2  # seconds between renewals while the store is unreachable: several tries within half of a short ttl
_CLEAN_UP = 5.0  # seconds that cancelled work may take to end: a few closing round trips


class Retry(Exception):
    """Raised by the work: performs the item again after `after` seconds (by default the worker's backoff). Counts as an
    attempt: after `max_attempts` the item becomes a dead letter."""

    def __init__(self, why: str = "", *, after: Seconds | None = None) -> None:
        super().__init__(why or "the work asked for a retry")
        self.after = None if after is None else seconds("after", after, least=0.0, most=MAX_TTL)


class Postpone(Retry):
    """Raised by the work: as Retry, and does not count as an attempt, since something else is unavailable."""


class PermanentFailure(Exception):
    """Raised by the work: no retry can succeed, so the item becomes a dead letter at once."""


class ItemLeft(Exception):
    """The item is left to its lease, since its work does not end although it was cancelled. Callers never see it."""


class ItemLost(ItemLeft):
    """The lease of the item was lost: another worker may have it."""


class ReplayedItem(AsyncItem):
    """An item that comes from a dead letter: the letter's own lease protects it, and a failure leaves the letter."""

    def __init__(self, queue: str, payload: Any) -> None:
        taken = TakenItem(REPLAYED + fresh_owner(), payload, 1, 0, "", math.inf, False)
        super().__init__(queue, taken, _sends_nothing)

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Does nothing: the letter's lease is renewed by its replay."""

    async def ack(self) -> bool:
        """Returns True: the replay removes the letter when the work succeeds."""
        return True

    async def give_back(self, *, delay: Seconds = 0.0, uncounted: bool = False) -> bool:
        """Raises Retry: a letter has no queue to go back to, and stays where it is."""
        raise Retry("a replayed dead letter was given back", after=delay)


async def _sends_nothing(flow: Any, /) -> Any:
    raise AssertionError("a replayed item has no lease of its own")


def begun_work(perform: Perform, item: AsyncItem) -> Awaitable[object]:
    """The work on the item; raises PermanentFailure if it is none that can be awaited: its effect has happened, and a
    retry would repeat it."""
    work: Any = perform(item)
    if not isawaitable(work):
        raise PermanentFailure(f"perform must be a coroutine function; it returned {work!r:.80}")
    return work


async def perform_renewed(perform: Perform, item: AsyncItem, ttl: float) -> None:
    """Performs the item and renews its lease meanwhile; raises the error of the work.

    Raises ItemLost after it has cancelled the work, if the lease is lost. A cancellation is passed on to the work, and
    raised when the work has ended; ItemLeft if it does not end.
    """
    work = asyncio.ensure_future(perform(item))
    pause = 0.0
    try:
        while not work.done():
            due = math.inf if item._settled else max(pause, item.remaining() - ttl / 2)
            await asyncio.wait({work}, timeout=None if due == math.inf else due)
            if not work.done() and not item._settled:
                pause = 0.0 if await _renewed(item, ttl) else _RENEW_AGAIN
    except BaseException:
        await _end(work, item)
        raise
    if work.cancelled():
        raise Retry("the work cancelled itself")
    work.result()


async def _renewed(item: AsyncItem, ttl: float) -> bool:
    """True if the lease was extended, False if the store did not answer in time; raises ItemLost if it is lost."""
    try:
        async with asyncio.timeout(item.remaining()):
            await item.renew(ttl)
        return True
    except LeaseLost as lost:
        raise ItemLost(str(lost)) from None
    except (StoreError, TimeoutError) as error:
        if item.remaining() <= 0:
            why = str(error) or "the store did not answer"
            raise ItemLost(f"its lease expired before it could be renewed: {why}") from None
        return False


async def _end(work: asyncio.Future[object], item: AsyncItem) -> None:
    """Cancels the work and waits for its end; raises ItemLeft if it goes on all the same."""
    work.cancel()
    await asyncio.wait({work}, timeout=_CLEAN_UP)
    if not work.done():
        work.add_done_callback(_forget_error)
        raise ItemLeft(f"its work was cancelled and did not end within {_CLEAN_UP:g} s") from None
    _forget_error(work)


def _forget_error(work: asyncio.Future[object]) -> None:
    """Marks the error of cancelled work as seen, so that asyncio does not log it."""
    if not work.cancelled():
        work.exception()


def is_permanent(error: BaseException) -> bool:
    """True if no retry can succeed: the work says so, or the payload cannot be read."""
    msgspec: Any = sys.modules.get("msgspec")  # an extra: work that raises its error has imported it
    unreadable = () if msgspec is None else (msgspec.ValidationError,)
    return isinstance(error, (PermanentFailure, Unreadable, *unreadable))
