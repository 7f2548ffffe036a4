"""The drainer moves buffered runs to SQL: environments in rotation, in batches. It seals an item before it inserts the
run, and removes it afterwards: a drainer that dies at any point strands nothing, and no accepted change is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from ... import AsyncItem, DataUnavailable, InvalidInput, PermanentFailure, QueueWorker, SolelyError
from ...kit import Backoff, Metrics
from .batches import Batches
from .buffer import Buffer, read_item
from .figures import DRAINED, DUPLICATES
from .gate import Gate
from .model import BufferedRun, RunChange, now
from .settings import TriggersSettings
from .table import RunTable

log = structlog.get_logger("solely.triggers")

_LEASE = 30.0  # seconds until another drainer takes over from one that died: longer than SQL takes for a batch
_ENDLESS = 1_000_000  # attempts: this module ends them, since an item that the queue parks would lose its id
_BACKOFF = Backoff((0.2, 1.0, 5.0))  # seconds: a deadlock, a restart, a repair; an item that waits can still be read
DEFERRED = 5.0  # seconds that a burst defers a run at most: longer than most bursts, and soon enough for a caller
_BATCH = 100  # runs of one statement: some hundred KiB at most, and well under a second


class Drainer:
    """Moves runs of the buffer to SQL."""

    def __init__(
        self, buffer: Buffer, table: RunTable, gate: Gate, settings: TriggersSettings, metrics: Metrics
    ) -> None:
        self._buffer, self._table, self._gate, self._metrics = buffer, table, gate, metrics
        self._attempts, self._at_once = settings.drain_attempts, settings.drain_at_once
        self._batches: Batches[BufferedRun, None] = Batches(self._store_each, _BATCH)

    def worker(self) -> QueueWorker:
        """The kit's worker of all queues of the buffer."""
        queues = list(self._buffer.queues.values())
        return QueueWorker(
            queues,
            self.drain,
            dead_letters=self._buffer.letters,
            ttl=_LEASE,
            at_once=self._at_once,
            max_attempts=_ENDLESS,
            backoff=_BACKOFF,
            name=self._buffer.letters.group,
        )

    async def drain(self, item: AsyncItem) -> None:
        """Stores the run of the item with all changes; then the item may be removed. An outage of SQL raises
        DataUnavailable, which counts as no attempt; a run that SQL refuses is stored as FAILED in the end."""
        try:
            buffered = read_item(item.payload)
        except InvalidInput as error:
            raise PermanentFailure(str(error)) from error
        await self._until_calm(buffered)
        sealed = await self._buffer.seal(buffered.run.environment, buffered.run.id, item)
        if sealed is not None:  # else another drainer, which had the item after this one, has removed it
            await self._store_or_fail(sealed, item.attempts)

    async def _until_calm(self, buffered: BufferedRun) -> None:
        """Returns when the burst is over, or has lasted for DEFERRED: until then SQL and this worker are left to it."""
        left = self._deferred_for(buffered)
        while left > 0:
            await asyncio.sleep(left)
            left = self._deferred_for(buffered)

    def _deferred_for(self, buffered: BufferedRun) -> float:
        ends = (buffered.run.buffered_at or 0.0) + DEFERRED
        return min(self._gate.tripped_for(buffered.run.environment), ends - now())

    async def materialize(self, environment: str, id: str) -> None:
        """SQL has the run of this id afterwards, if it was buffered. Its item stays, and the drainer finds the row.
        Raises DataUnavailable if SQL does not take it now; if SQL never does, the drainer stores it as FAILED."""
        sealed = await self._buffer.seal(environment, id)
        if sealed is None:
            return
        try:
            await self._store([sealed])
        except DataUnavailable:
            raise
        except Exception as error:
            raise DataUnavailable(f"run {id} is not stored yet, since SQL refused it; try again: {error}") from error

    async def _store_or_fail(self, buffered: BufferedRun, attempts: int) -> None:
        error: Exception = SolelyError(f"no drainer survived it in {self._attempts} attempts")
        if attempts <= self._attempts:
            try:
                await self._batches.ask(buffered)
                return
            except DataUnavailable:
                raise
            except Exception as refused:
                if attempts < self._attempts:
                    raise
                error = refused
        log.error("run_not_stored", run=buffered.run.id, attempts=attempts, error=str(error))
        await self._table.insert_failed(buffered.current, f"the run could not be stored: {error}")
        self._metrics.count(DRAINED, "failed")

    # -- batches

    async def _store_each(self, batch: Sequence[BufferedRun]) -> list[Exception | None]:
        """Stores the runs together; if SQL refuses, one by one, since one of them is the reason."""
        try:
            await self._store(batch)
        except DataUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the error belongs to whoever waits for the run
            return [error] if len(batch) == 1 else [(await self._store_each([each]))[0] for each in batch]
        return [None] * len(batch)

    async def _store(self, batch: Sequence[BufferedRun]) -> None:
        changes = {each.run.id: each.changes for each in batch if each.changes}
        inserted = await self._table.insert([each.current for each in batch], changes)
        for each in batch:
            if each.run.id not in inserted:
                await self._resolve(each)
        for _ in inserted:
            self._metrics.count(DRAINED, "stored")

    async def _resolve(self, buffered: BufferedRun) -> None:
        """Stores a run that conflicts with its own row, which an earlier drainer inserted, or with a run of its key."""
        run = buffered.current
        if run.idempotency_key is not None and not buffered.live:
            run.idempotency_key = None  # it has expired, and a later run may have it
        stored = await self._table.settle(run)
        if stored.id != run.id:
            self._metrics.count(DUPLICATES)
            log.warning("run_is_duplicate", run=run.id, of=stored.id)
            await self._table.insert_duplicate(run, stored.id)
        await self._apply(run.environment, run.id, buffered.changes)

    async def _apply(self, environment: str, id: str, changes: list[RunChange]) -> None:
        if changes:
            await self._table.change(environment, id, changes, buffered=True)
