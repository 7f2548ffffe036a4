"""The runs in SQL. The constraint on (environment, task, key) is the last arbiter of "same key, same run": whoever
inserts a second run of a key converges on the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from ... import DataUnavailable
from ...kit import Database, Queries, Statements
from .batches import Batches
from .lists import labels_of
from .model import CANCELED, ENDED, FAILED, RunChange, TaskRun, changed, json_text, now, run_of, version
from .parents import resume_parents

_STATEMENTS = Statements.of(__package__, "queries.sql")
_KEYS = 200  # that one statement looks up: some milliseconds at most
_PAGE = 200  # runs that one statement deletes: few enough that it blocks nobody
Changes = Mapping[str, Sequence[RunChange]]  # of runs, by id
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

    async def version(self, environment: str, id: str) -> str | None:
        """What changes whenever the run does; None if there is no such run."""
        row = await self.queries.row("version", id=id, environment=environment)
        return None if row is None else version(**row)

    async def is_protected(self, environment: str, id: str) -> bool | None:
        """True if the run still has its key; None if there is no such run."""
        row = await self.queries.row("by_id", id=id, environment=environment)
        return None if row is None else bool(row["idempotency_key"] is not None and row["live"])

    # -- writing

    async def insert(self, runs: Sequence[TaskRun], changes: Changes | None = None) -> set[str]:
        """The ids of the runs that were inserted; the others conflict with their own row or with a run of their key.
        `changes` are those that the runs have had, by id."""
        if changes or any(labels_of(run) for run in runs):
            async with self.data.transaction() as inside:
                inserted = await _insert(_STATEMENTS.on(inside), runs, changes or {})
        else:
            inserted = await _insert(self.queries, runs)
        if inserted:
            self._on_due()
        return inserted

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
            return bool(await _insert(queries, [run]))

    async def insert_failed(self, run: TaskRun, error: str) -> None:
        """Stores a run that SQL refuses as FAILED, unless it was canceled; with its payload if that is not the
        reason, and without its key if another run has that."""
        failed = msgspec.structs.replace(
            run, error=error, key_expires_at=now() if run.frees_key else run.key_expires_at
        )
        if run.state not in ENDED:
            failed = msgspec.structs.replace(failed, state=FAILED, finished_at=now())
        try:
            await self._settle_failed(failed)
        except DataUnavailable:
            raise
        except Exception:  # noqa: BLE001 - what it holds is what SQL refuses: the id must be found all the same
            empty: TaskRun = msgspec.structs.replace(failed, payload="null", tags=[], metadata={}, options={})
            await self._settle_failed(empty)

    async def _settle_failed(self, failed: TaskRun) -> None:
        if (await self.settle(failed)).id != failed.id:
            await self.insert([msgspec.structs.replace(failed, idempotency_key=None)])

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
            page = await self._forget_page(now() - older_than)
            deleted += page
        await self.queries.run("forget_batches", before=now() - older_than)
        return deleted

    async def _forget_page(self, before: float) -> int:
        async with self.data.transaction() as inside:
            queries = _STATEMENTS.on(inside)
            ids = [row["id"] for row in await queries.rows("forget", before=before, page=_PAGE)]
            await queries.run("forget_events", ids=json_text(ids))
            await queries.run("forget_labels", ids=json_text(ids))
        return len(ids)

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
                await _note(queries, run.id, change)
            await _write(queries, run)
            await _label(queries, [run])
            resumed = run.state in ENDED and not ended and await resume_parents(inside, run.id)
            if buffered:
                await queries.run("count_changes", id=given.id, changes=len(changes))
        if resumed:
            self._on_due()
        return run


async def _insert(queries: Queries, runs: Sequence[TaskRun], changes: Changes = MappingProxyType({})) -> set[str]:
    rows = await queries.rows("insert", rows=json_text([run.row() for run in runs]))
    inserted = {str(row["id"]) for row in rows}
    await _label(queries, [run for run in runs if run.id in inserted])
    for id in inserted & {*changes}:
        for change in changes[id]:
            await _note(queries, id, change, at=change.at)
    return inserted


async def _note(queries: Queries, id: str, change: RunChange, *, at: float | None = None) -> None:
    """Adds the change to the timeline, now unless it was made before."""
    await queries.run("add_event", run_id=id, at=at, kind=change.kind, detail=change.words())


async def _label(queries: Queries, runs: Sequence[TaskRun]) -> None:
    rows = [
        {"environment": run.environment, "label": label, "at": run.created_at, "run_id": run.id}
        for run in runs
        for label in labels_of(run)
    ]
    if rows:
        await queries.run("add_labels", rows=json_text(rows))


async def _write(queries: Queries, run: TaskRun) -> None:
    row = run.row()
    names = "id tags metadata state finished_at lease_owner lease_until key_expires_at updated_at"
    await queries.run("change", **{name: row[name] for name in names.split()})
