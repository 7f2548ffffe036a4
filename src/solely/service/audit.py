"""The audit log: who overrode what others hold, why, and what became of it. It is kept in the store, so that all
workers and hosts share it and it outlives them; each record is also written to the service's own log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import structlog

from ..audit import DONE, FAILED, KEPT, PREFIX, REFUSED, appending, completing, dropping, new_record
from ..errors import SolelyError, StoreError, not_ours
from ..model import Entry
from ..names import RESERVED, reserved
from ..ops import MAX_BATCH, Op
from ..stores import AsyncStore
from .problems import BROKEN, Problem, problem_of
from .visibility import is_hidden, is_hidden_name

log = structlog.get_logger("solely.audit")

_TRIM_EVERY = 50  # records between two trims, so that not every record costs a scan


class AuditRecord(msgspec.Struct, frozen=True):
    """An admin action: `at` is the wall clock in seconds. `outcome` is `started`, `done`, `nothing`, `refused: …` or
    `failed: …`: one that stays `started` was interrupted, and may have been done. Older records have none."""

    id: str
    at: float
    who: str
    action: str
    key: str
    reason: str
    outcome: str = ""


class AuditedAct:
    """An act that is under way: set its outcome, which is `done` otherwise."""

    outcome = DONE


class AuditLog:
    """Writes and lists the audit log. An action must not be performed if its record could not be written."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._written = 0

    @asynccontextmanager
    async def acting(self, who: str, action: str, key: str, reason: str) -> AsyncIterator[AuditedAct]:
        """Writes the record before the action is performed, and its outcome afterwards; an error is the outcome, too.
        Raises StoreError, and the action is not performed, if the record cannot be written."""
        record, act = await self.record(who, action, key, reason), AuditedAct()
        try:
            yield act
        except Exception as error:
            await self.complete(record, _outcome_of(error))
            raise
        await self.complete(record, act.outcome)

    async def record(self, who: str, action: str, key: str, reason: str) -> AuditRecord:
        """Writes the record of an action that is about to start; raises StoreError if it cannot."""
        made = new_record(who, action, key, reason)
        log.warning("audit", who=who, action=action, key=key, reason=reason)
        await self._perform([appending(made)])
        self._written += 1
        if self._written % _TRIM_EVERY == 1:
            await self._trim()
        return AuditRecord(**made)

    async def complete(self, record: AuditRecord, outcome: str) -> None:
        """Writes the outcome of the action. If it cannot, the record stays `started`, and this is logged."""
        log.info("audit_outcome", who=record.who, action=record.action, key=record.key, outcome=outcome)
        try:
            await self._perform([completing(msgspec.structs.asdict(record), outcome)])
        except StoreError as error:  # the action is over, and its answer counts
            log.warning("audit_outcome_not_written", id=record.id, outcome=outcome, error=str(error))

    async def records(self, after: str = "", limit: int = 50) -> list[AuditRecord]:
        """Records, newest first, after the one of this id; without those of what the current caller must not see."""
        found = list[AuditRecord]()
        while True:
            page = [_record(entry) for entry in await self._scan(after, limit)]
            found += [record for record in page if not _is_hidden(record)]
            if len(page) < limit or len(found) >= limit:
                return found[:limit]
            after = page[-1].id

    async def _scan(self, after: str, limit: int) -> list[Entry]:
        return await self._store.scan(PREFIX, PREFIX + after if after else "", limit)

    async def _trim(self) -> None:
        """Removes all but the newest KEPT records."""
        newest = await self._scan("", KEPT)
        if len(newest) == KEPT:
            older = await self._scan(newest[-1].key.removeprefix(PREFIX), MAX_BATCH)
            if older:
                await self._perform(dropping(older))

    async def _perform(self, ops: list[Op]) -> None:
        for reply in await self._store.perform(ops):
            if isinstance(reply, StoreError):
                raise reply


def _outcome_of(error: Exception) -> str:
    """The outcome of an action that raised this error, as the caller sees it: without the texts of stores."""
    if isinstance(error, SolelyError):
        error = problem_of(error)
    problem = error if isinstance(error, Problem) else Problem(BROKEN)
    if problem.kind.status < 500:
        return REFUSED + problem.document.detail
    return FAILED + problem.kind.title


def _is_hidden(record: AuditRecord) -> bool:
    """True for an act of an application that hides some of its names: it may be about one of these."""
    application = record.action.partition(".")[0]
    names = (reserved(application, ""), record.key if record.key.startswith(RESERVED) else "")
    return is_hidden(record.key) or any(each and is_hidden_name(each) for each in names)


def _record(entry: Entry) -> AuditRecord:
    """The record; for an unreadable one, the reason says so."""
    id = entry.key.removeprefix(PREFIX)
    try:
        return msgspec.structs.replace(msgspec.json.decode(entry.value or b"", type=AuditRecord), id=id)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = f"unreadable: {not_ours(error)}"
        return AuditRecord(id=id, at=entry.fence / 1e6, who="", action="", key="", reason=why)
