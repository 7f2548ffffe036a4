"""Batches in SQL: which runs the items of a batch became, so that a batch that is sent again makes no run twice."""

from __future__ import annotations

import secrets

import msgspec

from ... import DataUnavailable
from ...kit import Queries, from_row
from .model import json_text


class BatchRun(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What an item of a batch became: a run, or an error if it was refused."""

    id: str
    task_identifier: str
    is_cached: bool = False
    error: str = ""


class TaskBatch(msgspec.Struct, kw_only=True):
    """A batch. `runs` is None until all of its items were accepted. Moments are seconds of UTC."""

    id: str
    environment: str
    run_count: int
    created_at: float
    updated_at: float
    idempotency_key: str | None = None
    runs: list[BatchRun] | None = None


class BatchTable:
    """Reads and writes batches."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def open(self, environment: str, run_count: int, key: str | None) -> TaskBatch:
        """A new batch, or the one that has this key."""
        given = {"id": f"batch_{secrets.token_hex(12)}", "environment": environment, "key": key}
        row = await self._queries.row("add_batch", run_count=run_count, **given)
        row = row or await self._queries.row("batch_of_key", environment=environment, key=key)
        if row is None:
            raise DataUnavailable("the batch of this key was deleted meanwhile; send it again")
        return from_row(TaskBatch, row)

    async def find(self, environment: str, id: str) -> TaskBatch | None:
        """The batch; None if there is none."""
        row = await self._queries.row("batch", id=id, environment=environment)
        return None if row is None else from_row(TaskBatch, row)

    async def seal(self, id: str, runs: list[BatchRun]) -> None:
        """Records what the items became, unless that is recorded already."""
        await self._queries.run("seal_batch", id=id, runs=json_text(runs))

    async def ended(self, runs: list[BatchRun]) -> bool:
        """True if all runs have ended."""
        ids = {run.id for run in runs if run.id}
        row = await self._queries.row("ended_of", ids=json_text(sorted(ids)))
        return row is not None and bool(row["ended"] == len(ids))
