"""What becomes of a performed item: it is acked, given back for another attempt, or parked as a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..dead_letters.handle import AsyncDeadLetters
from ..errors import InvalidInput, StoreUnavailable
from ..events import Event, Lost, ReleasedLease
from ..logs import get_logger
from ..model import item_key
from ..resilience import Backoff
from ..rules import MAX_KEY_BYTES, MAX_TTL, local_clock
from .flow import queue_of
from .handle import AsyncQueue
from .item import AsyncItem
from .performing import ItemLeft, ItemLost, Perform, Postpone, Retry, begun_work, is_permanent, perform_renewed

log = get_logger()

# While the store is unreachable: soon enough after a restart, and 5 s at most once it is back.
AWAY = Backoff((0.5, 1.0, 2.0, 5.0))


@dataclass(slots=True)
class Tally:
    """How many items a worker has performed, retried and parked, and how it failed last."""

    performed: int = 0
    retried: int = 0
    parked: int = 0
    last_error: str = ""
    last_error_at: datetime | None = None

    def failed(self, error: BaseException | str) -> None:
        """Keeps the error as the last one."""
        self.last_error = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.last_error_at = datetime.now(UTC)


@dataclass(slots=True)
class ItemHandler:
    """Performs items, at most as many at a time as there are `slots`, and settles each by the outcome of its work."""

    worker: str
    perform: Perform
    dead_letters: AsyncDeadLetters
    ttl: float
    max_attempts: int
    backoff: Backoff
    slots: asyncio.Semaphore
    tally: Tally
    stopping: bool = False
    on_settled: Callable[[str], object] = lambda outcome: None

    async def handle(self, queue: AsyncQueue, item: AsyncItem) -> None:
        """Performs the item and settles it. Never raises: what cannot be settled is left to its lease."""
        started = local_clock()
        try:
            outcome = await self._settled(item, await self._performed(item))
        except ItemLeft as why:
            self._left(item, str(why))
            if isinstance(why, ItemLost):
                report(queue, Lost(key_of(item), item.fence, "expired"))
        except Exception as error:  # noqa: BLE001 - the lease expires, and the item is taken again
            self._left(item, f"it could not be settled: {type(error).__name__}: {error}")
        else:
            self.on_settled(outcome)
            report(queue, ReleasedLease(key_of(item), item.fence, local_clock() - started, outcome))

    async def _performed(self, item: AsyncItem) -> BaseException | None:
        """The error of the work, or the cancellation by `stop`; None if the work succeeded."""
        try:
            await perform_renewed(self._perform_in_slot, item, self.ttl)
        except ItemLeft:
            raise
        except asyncio.CancelledError as stopped:
            return stopped
        except Exception as error:  # noqa: BLE001 - the error decides what becomes of the item
            return error
        return None

    async def _perform_in_slot(self, item: AsyncItem) -> object:
        async with self.slots:
            return await begun_work(self.perform, item)

    async def _settled(self, item: AsyncItem, error: BaseException | None) -> str:
        """Acks the item, gives it back or parks it; returns which."""
        if error is None:
            return await self._acked(item)
        if isinstance(error, asyncio.CancelledError):
            await self._surely(item, lambda: item.give_back(uncounted=True))
            return "stopped"
        self.tally.failed(error)
        uncounted = isinstance(error, Postpone | StoreUnavailable)  # something else is unavailable
        if is_permanent(error) or (not uncounted and item.attempts >= self.max_attempts):
            return await self._parked(item, error)
        return await self._retried(item, error, uncounted)

    async def _acked(self, item: AsyncItem) -> str:
        if not item._settled and not await self._surely(item, item.ack):
            raise ItemLost("it was performed, but its lease had expired: another worker may perform it again")
        self.tally.performed += 1
        return "acked"

    async def _retried(self, item: AsyncItem, error: BaseException, uncounted: bool) -> str:
        wanted = error.after if isinstance(error, Retry) else None
        delay = self.backoff.pause(item.attempts - 1) if wanted is None else wanted
        facts = {"worker": self.worker, "id": item.id, "attempts": item.attempts, "delay": delay, "error": str(error)}
        text = "item_failed: %(worker)s retries item %(id)r in %(delay).1f s (attempt %(attempts)d failed): %(error)s"
        expected = uncounted or isinstance(error, Retry)  # its text is enough
        log.warning(text, facts, extra=facts, exc_info=None if expected else error)
        await self._surely(item, lambda: item.give_back(delay=delay, uncounted=uncounted))
        self.tally.retried += 1
        return "postponed" if uncounted else "retried"

    async def _parked(self, item: AsyncItem, error: BaseException) -> str:
        """Makes the item a dead letter. One that is too large for that stays in the queue, delayed as long as possible:
        nothing is lost, and it is still listed."""
        origin = f"item {item.id!r:.80} of queue {item.queue!r:.80}"
        letter: Any = {"error": error, "id": letter_id(item), "attempts": item.attempts, "origin": origin}
        try:
            await self._surely(item, lambda: self._push_letter(item, letter))
        except InvalidInput as too_large:
            facts = {"worker": self.worker, "id": item.id, "error": str(error), "why": str(too_large)}
            text = "item_delayed: %(worker)s cannot park item %(id)r, which failed (%(error)s), and delays it: %(why)s"
            log.error(text, facts, extra=facts)
            await self._surely(item, lambda: item.give_back(delay=MAX_TTL))
            return "delayed"
        await self._surely(item, item.ack)
        self.tally.parked += 1
        return "parked"

    async def _push_letter(self, item: AsyncItem, letter: Any) -> None:
        """Stores the letter; raises StoreUnavailable if it is not there, since a client may proceed without its store
        (`on_outage`), and an item may not."""
        await self.dead_letters.push(item.payload, **letter)
        if await self.dead_letters.inspect(letter["id"]) is None:
            raise StoreUnavailable(f"the dead letter of item {item.id!r:.80} was not stored", key=item.id)

    async def _surely(self, item: AsyncItem, call: Callable[[], Awaitable[Any]]) -> Any:
        """The result of the call, repeated through an outage for as long as the lease lasts and the worker runs."""
        tries = 0
        while True:
            try:
                return await call()
            except StoreUnavailable:
                if self.stopping or item.remaining() <= 0:
                    raise
            await asyncio.sleep(AWAY.pause(tries))
            tries += 1

    def _left(self, item: AsyncItem, why: str) -> None:
        self.tally.failed(why)
        self.on_settled("left")
        facts = {"worker": self.worker, "queue": item.queue, "id": item.id, "why": why}
        log.warning("item_left: %(worker)s leaves item %(id)r of %(queue)r to its lease: %(why)s", facts, extra=facts)


def key_of(item: AsyncItem) -> str:
    """The stored key of the item."""
    return item_key(queue_of(item.queue), item.id)


def letter_id(item: AsyncItem) -> str:
    """The same for every attempt, and another for a later item of the same id, whose payload must not be lost."""
    end = f"@{item.fence}"
    return item.id.encode()[: MAX_KEY_BYTES - len(end)].decode(errors="ignore") + end


def report(queue: AsyncQueue, event: Event) -> None:
    """Calls the hook of the queue's client, if there is one."""
    if queue._context.hook is not None:
        queue._context.hook(event)
