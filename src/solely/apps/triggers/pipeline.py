"""The pipeline of a trigger. The id is made first; then look-ups in SQL and the buffer, the claim of the key, and last
the gate, which decides between SQL and the buffer."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog

from ... import AsyncClaim, DataError, InvalidInput, StoreError
from ...kit import AWAY, Metrics, Problem
from .buffer import Buffer
from .claim import TIMED_OUT, ClaimedRun, KeyClaims, published_run
from .drainer import Drainer
from .figures import BUFFER_FAILURES, DUPLICATES, TRIGGER_SECONDS, TRIGGERED
from .gate import Gate
from .model import BufferedRun, TaskRun, claim_key, now, slot_of
from .table import RunTable, Stored

log = structlog.get_logger("solely.triggers")

_ROUNDS = 3  # a claim that turns out to be stale is dropped, and the trigger begins again
_TURNS = 5  # of the event loop until an answer that has arrived has reached its task


class Triggered(NamedTuple):
    """The run that answers a trigger. `cached`: another trigger made it. `digest` is that of its payload."""

    id: str
    cached: bool
    buffered: bool
    digest: str


class Pipeline:
    """Accepts triggers."""

    def __init__(
        self, table: RunTable, buffer: Buffer, drainer: Drainer, claims: KeyClaims, gate: Gate, metrics: Metrics
    ) -> None:
        self._table, self._buffer, self._drainer = table, buffer, drainer
        self._claims, self._gate, self._metrics = claims, gate, metrics

    async def trigger(self, run: TaskRun, *, waits: bool = False) -> Triggered:
        """The run that answers this trigger: the given one, which is then stored or buffered, or the one that has its
        key. `waits`: its parent waits for it (resumeParentOnCompletion), so that it bypasses the gate.

        Raises Problem (503) if the claim is not resolved in time, and DataUnavailable if SQL is unreachable.
        """
        started = time.perf_counter()
        accepted = await (self._accept(run, waits) if run.idempotency_key is None else self._keyed(run, waits))
        where = "cached" if accepted.cached else "buffer" if accepted.buffered else "sql"
        self._metrics.count(TRIGGERED, where)
        self._metrics.observe(TRIGGER_SECONDS, time.perf_counter() - started)
        return accepted

    # -- with a key

    async def _keyed(self, run: TaskRun, waits: bool) -> Triggered:
        name = claim_key(run.environment, run.task, run.idempotency_key or "")
        for _ in range(_ROUNDS):
            known = await self._in_sql(run)
            if known is not None:
                return known
            buffered, claim = await self._buffered_or_claim(run, name)
            if buffered is not None:
                return await self._from_buffer(buffered, waits)
            if claim is None:
                return await self._without_claim(run, waits)
            if claim.won:
                return await self._won(claim, run, waits)
            there = published_run(claim.value)
            if there is not None and await self._resolves(run, there):
                return await self._from_claim(run, there, waits)
            await self._claims.drop(name, there or ClaimedRun("", ""))
        raise Problem(AWAY, TIMED_OUT)

    async def _in_sql(self, run: TaskRun) -> Triggered | None:
        known = await self._table.by_key(run.environment, run.task, run.idempotency_key or "")
        return None if known is None or not known.live else Triggered(known.id, True, False, known.digest)

    async def _buffered_or_claim(self, run: TaskRun, name: str) -> tuple[BufferedRun | None, AsyncClaim | None]:
        """The buffered run of the key, else its claim. Both are asked for in one round trip."""
        claiming = asyncio.ensure_future(self._claims.claim(name))
        try:
            buffered = await self._in_buffer(run)
        except BaseException:
            await _abandon(claiming)
            raise
        if buffered is None:
            return None, await claiming
        await _abandon(claiming)
        return buffered, None

    async def _in_buffer(self, run: TaskRun) -> BufferedRun | None:
        """The live run of this key in the buffer; None if there is none, or the buffer does not answer."""
        if self._claims.away and self._buffer.on_store:
            return None
        try:
            there = await self._buffer.at(run.environment, slot_of(run.id))
        except (StoreError, InvalidInput) as error:
            self._buffer_failed("read", error)
            return None
        return there if there is not None and await self._protects(there) else None

    async def _protects(self, there: BufferedRun) -> bool:
        """True if the key protects this run of the buffer. SQL decides about one that it has, as it may once the item
        is sealed."""
        run = there.run
        stored = None if there.open else await self._table.is_protected(run.environment, run.id)
        return there.live if stored is None else stored

    async def _from_buffer(self, there: BufferedRun, waits: bool) -> Triggered:
        if waits:  # its parent waits in SQL
            await self._drainer.materialize(there.run.environment, there.run.id)
        return Triggered(there.run.id, True, not waits, there.run.payload_digest)

    async def _resolves(self, run: TaskRun, there: ClaimedRun) -> bool:
        """False if the run of the claim no longer has its key: it was reset, or has expired. A run that is not found
        yet counts as there: it is answered, and never run again."""
        protected = await self._table.is_protected(run.environment, there.id)
        if protected is not None:
            return protected
        buffered = None
        with suppress(StoreError, InvalidInput):
            buffered = await self._buffer.at(run.environment, slot_of(there.id))
        if buffered is not None and buffered.run.id == there.id:
            return await self._protects(buffered)
        return await self._table.is_protected(run.environment, there.id) is not False  # it may have moved in between

    async def _from_claim(self, run: TaskRun, there: ClaimedRun, waits: bool) -> Triggered:
        if waits and there.buffered:
            buffered = await self._in_buffer(run)
            if buffered is not None and buffered.run.id == there.id:
                return await self._from_buffer(buffered, waits)
        return Triggered(there.id, True, there.buffered, there.digest)

    async def _without_claim(self, run: TaskRun, waits: bool) -> Triggered:
        """With claims switched off, the gate decides unguarded. In an outage of the store there is no gate: the
        constraint alone decides, so that all triggers of the key still get one id."""
        return await self._accept(run, waits or self._claims.enabled)

    async def _won(self, claim: AsyncClaim, run: TaskRun, waits: bool) -> Triggered:
        try:
            accepted = await self._left_by_others(claim, run, waits) or await self._accept(run, waits)
        except BaseException as error:
            await self._claims.release(claim, error)
            raise
        mine = ClaimedRun(accepted.id, accepted.digest, accepted.buffered)
        published = await self._claims.publish(claim, mine, self._keep(run))
        if published is None and accepted.buffered and not accepted.cached:
            return await self._settle_buffered(run)
        if published is not None and published.id != accepted.id:
            self._metrics.count(DUPLICATES)
            return Triggered(published.id, True, published.buffered, published.digest)
        return accepted

    async def _settle_buffered(self, run: TaskRun) -> Triggered:
        """The buffered run in SQL, where the constraint decides in place of the claim; or the run that has its key."""
        try:
            await self._drainer.materialize(run.environment, run.id)
        except StoreError as error:
            self._buffer_failed("seal", error)
        found = await self._table.find(run.environment, run.id)
        if found is None:
            return _of(await self._table.settle(run))
        return Triggered(found.id, found.id != run.id, False, found.payload_digest)

    async def _left_by_others(self, claim: AsyncClaim, run: TaskRun, waits: bool) -> Triggered | None:
        """What an earlier holder of this claim, which died or failed before it published, left; None if nothing."""
        if claim.attempt == 1:
            return None
        stored = await self._in_sql(run)
        if stored is not None:
            return stored
        buffered = await self._in_buffer(run)
        return None if buffered is None else await self._from_buffer(buffered, waits)

    @staticmethod
    def _keep(run: TaskRun) -> float:
        """Seconds that the claim answers: as long as the key protects the run."""
        return max(1.0, (run.key_expires_at or 0.0) - now())

    # -- past the claim

    async def _accept(self, run: TaskRun, bypass: bool) -> Triggered:
        """Stores the run in SQL, or buffers it in a burst; or returns the one that has its key there."""
        if not bypass and await self._gate.diverts(run.environment):
            buffered = await self._push(run)
            if buffered is not None:
                return buffered
        return _of(await self._table.settle(run))

    async def _push(self, run: TaskRun) -> Triggered | None:
        """The run in the buffer, or the one that has its place there; None if it must go to SQL: it is too large, the
        buffer failed, or an earlier run of its key is on its way to SQL."""
        waiting = msgspec.structs.replace(run, buffered_at=now())
        try:
            pushed = await self._buffer.push(waiting)
        except (StoreError, InvalidInput) as error:
            self._buffer_failed("push" if isinstance(error, StoreError) else "too_large", error)
            return None
        if pushed.new:
            return Triggered(run.id, False, True, run.payload_digest)
        there = pushed.there
        if there is None or not await self._protects(there):
            return None
        return Triggered(there.run.id, True, True, there.run.payload_digest)

    def _buffer_failed(self, step: str, error: Exception) -> None:
        """Counts and logs it: the run goes to SQL. Raises an error of SQL itself."""
        if isinstance(error, DataError):
            raise error
        self._metrics.count(BUFFER_FAILURES, step)
        log.warning("buffer_failed", step=step, error=str(error))


def _of(stored: Stored) -> Triggered:
    return Triggered(stored.id, not stored.new, False, stored.digest)


async def _abandon(claiming: asyncio.Future[AsyncClaim | None]) -> None:
    """Cancels a claim that is not needed; one that was won meanwhile is released."""
    for _ in range(_TURNS):
        if claiming.done():
            break
        await asyncio.sleep(0)  # its answer came in the round trip of the buffer's: it needs no undoing
    claiming.cancel()
    await asyncio.wait([claiming])
    if not claiming.cancelled() and claiming.exception() is None:
        claim = claiming.result()
        if claim is not None and claim.won:
            with suppress(StoreError):
                await claim.release()
