"""The audit log: who overrode what others hold, and why. It is kept in the store, so that all workers and hosts share
it and it outlives them; each record is also written to the service's own log."""

from __future__ import annotations

import msgspec
import structlog

from ..audit import KEPT, PREFIX, QUEUE, dropping, new_record
from ..errors import StoreError, not_ours
from ..model import Entry
from ..ops import MAX_BATCH, Op, Push
from ..stores import AsyncStore

log = structlog.get_logger("solely.audit")

_TRIM_EVERY = 50  # records between two trims, so that not every record costs a scan


class AuditRecord(msgspec.Struct, frozen=True):
    """An admin action: `at` is the wall clock in seconds."""

    id: str
    at: float
    who: str
    action: str
    key: str
    reason: str


class AuditLog:
    """Writes and lists the audit log. An action must not be performed if its record could not be written."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._written = 0

    async def record(self, who: str, action: str, key: str, reason: str) -> AuditRecord:
        """Writes the record before the action is performed; raises StoreError if it cannot."""
        made = AuditRecord(**new_record(who, action, key, reason))
        log.warning("audit", who=who, action=action, key=key, reason=reason)
        await self._perform([Push(QUEUE, made.id, msgspec.json.encode(made))])
        self._written += 1
        if self._written % _TRIM_EVERY == 1:
            await self._trim()
        return made

    async def records(self, after: str = "", limit: int = 50) -> list[AuditRecord]:
        """Records, newest first, after the one of this id."""
        return [_record(entry) for entry in await self._scan(after, limit)]

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


def _record(entry: Entry) -> AuditRecord:
    """The record; for an unreadable one, the reason says so."""
    id = entry.key.removeprefix(PREFIX)
    try:
        return msgspec.structs.replace(msgspec.json.decode(entry.value or b"", type=AuditRecord), id=id)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = f"unreadable: {not_ours(error)}"
        return AuditRecord(id=id, at=entry.fence / 1e6, who="", action="", key="", reason=why)
