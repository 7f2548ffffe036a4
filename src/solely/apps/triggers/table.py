"""The runs in SQL. The constraint on (environment, task, key) is the last arbiter of "same key, same run": whoever
inserts a second run of a key converges on the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ... import DataUnavailable
from ...kit import Database, Position, Queries, Row, Statements
from .batches import Batches
from .model import CANCELED, ENDED, FAILED, RunChange, TaskRun, changed, json_text, now, run_of
from .parents import resume_parents

_STATEMENTS = Statements.of(__package__, "queries.sql")
_KEYS = 200  # that one statement looks up: some milliseconds at most
_PAGE = 200  # runs that one statement deletes: few enough that it blocks nobody
FOREVER = 1e11  # a moment after all others
_ROUNDS = 5  # tries to insert a run whose key others free and take at the same time: each needs another trigger


class KeyedRun(NamedTuple):
    """The run of a key: its id and payload, and whether the key still protects it."""

    id: str
    digest: str
    live: bool


class Stored(NamedTuple):
    """The id under which a run is stored: its own, or that of the run which had the key before."""

    id: str
    new: bool
    digest: str


class RunTable:
    """Reads and writes runs. Failures raise DataError; DataUnavailable if a retry may succeed. `on_due` is called when
    there may be a run to take."""

    def __init__(self, data: Database, on_due: Callable[[], object] = lambda: None) -> None:
        self.data, self._on_due = data, on_due
        self.queries = _STATEMENTS.on(data)
        self._by_key: Batches[dict[str, str], KeyedRun | None] = Batches(self._find_keys, _KEYS)

    # -- reading

    async def by_key(self, environment: str, task: str, key: str) -> KeyedRun | None:
        """The run that has this key, on the writer; None if there is none."""
        return await self._by_key.ask({"environment": environment, "task": task, "key": key})

    async def _find_keys(self, asked: Sequence[dict[str, str]]) -> list[KeyedRun | None]:
        found: list[KeyedRun | None] = [None] * len(asked)
        numbered = [{"number": number, **each} for number, each in enumerate(asked)]
        for row in await self.queries.rows("by_keys", keys=json_text(numbered)):
            found[row["number"]] = KeyedRun(row["id"], row["payload_digest"], bool(row["live"]))
        return found

    async def find(self, environment: str, id: str) -> TaskRun | None:
        """The run of this id; the run that has the key, if this one is its duplicate. None if there is none."""
        row = await self.queries.row("by_id", id=id, environment=environment)
        if row is not None and row["duplicate_of"]:
            row = await self.queries.row("by_id", id=row["duplicate_of"], environment=environment)
        return None if row is None else run_of(row)

    async def is_protected(self, environment: str, id: str) -> bool | None:
        """True if the run still has its key; None if there is no such run."""
        row = await self.queries.row("by_id", id=id, environment=environment)
        return None if row is None else bool(row["idempotency_key"] is not None and row["live"])

    async def recent(
        self,
        environments: Sequence[str],
        after: Position,
        limit: int,
        *,
        tasks: Sequence[str] = (),
        states: Sequence[str] = (),
        key: str = "",
        tags: Sequence[str] = (),
        since: float = 0.0,
        until: float = FOREVER,
    ) -> list[TaskRun]:
        """Runs that match all filters, the newest first: of one of these tasks and states, with one of these tags."""
        lists = {"tasks": json_text(tasks), "states": json_text(states), "tags": json_text(tags)}
        given = {"at": after.at, "id": after.id, "limit": limit, "key": key, "since": since, "until": until, **lists}
        found: list[Row] = []
        for environment in environments:  # each in the order of its index
            found += await self.queries.rows("recent", environment=environment, **given)
        found.sort(key=lambda row: (row["created_at"], row["id"]), reverse=True)
        return [run_of(row) for row in found[:limit]]

    # -- writing

    async def insert(self, runs: Sequence[TaskRun]) -> set[str]:
        """The ids of the runs that were inserted; the others conflict with their own row or with a run of their key."""
        rows = await self.queries.rows("insert", rows=json_text([run.row() for run in runs]))
        if rows:
            self._on_due()
        return {row["id"] for row in rows}

    async def settle(self, run: TaskRun) -> Stored:
        """Inserts the run, or returns the run that has its key. A key that has expired is freed in the transaction of
        the insert. Safe to repeat."""
        for _ in range(_ROUNDS):
            if await self.insert([run]) or await self._is_there(run):
                return Stored(run.id, True, run.payload_digest)
            key = run.idempotency_key
            known = None if key is None else await self.by_key(run.environment, run.task, key)
            if known is not None and known.live:
                return Stored(known.id, False, known.digest)
            if known is not None and await self._insert_freeing(run):
                return Stored(run.id, True, run.payload_digest)
        raise DataUnavailable(f"run {run.id} could not be inserted: its key changed {_ROUNDS} times meanwhile")

    async def _is_there(self, run: TaskRun) -> bool:
        """True if an earlier call, whose answer was lost, inserted it."""
        return await self.queries.row("by_id", id=run.id, environment=run.environment) is not None

    async def _insert_freeing(self, run: TaskRun) -> bool:
        async with self.data.transaction() as inside:
            queries = _STATEMENTS.on(inside)
            place = {"environment": run.environment, "task": run.task, "key": run.idempotency_key}
            await queries.run("free_key", **place)
            return bool(await queries.rows("insert", rows=json_text([run.row()])))

    async def insert_failed(self, run: TaskRun, error: str) -> None:
        """Stores a run that SQL refuses as FAILED, with its payload if that is not the reason."""
        expires = now() if run.frees_key else run.key_expires_at
        failed = msgspec.structs.replace(run, state=FAILED, error=error, finished_at=now(), key_expires_at=expires)
        try:
            await self.settle(failed)
        except DataUnavailable:
            raise
        except Exception:  # noqa: BLE001 - what it holds is what SQL refuses: the id must be found all the same
            empty: TaskRun = msgspec.structs.replace(failed, payload="null", tags=[], metadata={}, options={})
            await self.settle(empty)

    async def insert_duplicate(self, run: TaskRun, of: str) -> None:
        """Stores the id of a run whose key has another one: it resolves to that, and never runs."""
        text = f"duplicate of {of}, which has the same idempotency key"
        ended = {"state": CANCELED, "finished_at": now(), "error": text, "idempotency_key": None}
        ended |= {"changes": 0}  # those that were made of it are made of the other one
        await self.insert([msgspec.structs.replace(run, duplicate_of=of, **ended)])

    async def forget(self, older_than: float) -> int:
        """Deletes runs that ended so many seconds ago, with their timelines, and old batches; returns how many runs. A
        run whose key still protects it is kept until that expires."""
        deleted, page = 0, _PAGE
        while page == _PAGE:
            page = await self.queries.run("forget", before=now() - older_than, page=_PAGE)
            deleted += page
        if deleted:
            await self.queries.run("forget_events")
        await self.queries.run("forget_batches", before=now() - older_than)
        return deleted

    async def expire_key(self, environment: str, task: str, key: str) -> bool:
        """Ends the protection of the key; False if it protects no run."""
        return bool(await self.queries.run("expire_key", environment=environment, task=task, key=key))

    async def change(
        self, environment: str, id: str, changes: Sequence[RunChange], *, buffered: bool = False
    ) -> TaskRun | None:
        """The run after the changes; None if there is no such run.

        `buffered`: these are all changes that were made while it was buffered, and those that the row has already are
        not applied again.
        """
        async with self.data.transaction() as inside:
            queries = _STATEMENTS.on(inside)
            row = await queries.row("by_id_for_update", id=id, environment=environment)
            if row is None:
                return None
            given = run = run_of(row)
            if given.duplicate_of:
                row = await queries.row("by_id_for_update", id=given.duplicate_of, environment=environment)
                run = run_of(row or given.row())
            ended = run.state in ENDED
            for change in changes[given.changes :] if buffered else changes:
                run = changed(run, change)
                await queries.run("add_event", run_id=run.id, kind=change.kind, detail=change.words())
            await _write(queries, run)
            resumed = run.state in ENDED and not ended and await resume_parents(inside, run.id)
            if buffered:
                await queries.run("count_changes", id=given.id, changes=len(changes))
        if resumed:
            self._on_due()
        return run


async def _write(queries: Queries, run: TaskRun) -> None:
    row = run.row()
    names = "id tags metadata state finished_at lease_owner lease_until key_expires_at updated_at"
    await queries.run("change", **{name: row[name] for name in names.split()})
