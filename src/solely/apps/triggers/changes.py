"""Runs wherever they are: in SQL, or still in the buffer. Reads and writes of a buffered run behave as those of a
stored one, from the first answer on."""

from __future__ import annotations

from ... import InvalidInput
from .buffer import Buffer
from .drainer import Drainer
from .model import MOST_TAGS, RunChange, TaskRun, now, slot_of, slot_of_key
from .table import RunTable

_ROUNDS = 100  # between SQL and the buffer: a run moves once, and each round sees it in one of the two, or its move


class Runs:
    """Finds and changes runs."""

    def __init__(self, table: RunTable, buffer: Buffer, drainer: Drainer) -> None:
        self._table, self._buffer, self._drainer = table, buffer, drainer

    async def find(self, environment: str, id: str) -> TaskRun | None:
        """The run; None if there is none. SQL is asked again after the buffer: the run may have moved in between."""
        return (
            await self._table.find(environment, id)
            or await self._buffer.find(environment, id)
            or await self._table.find(environment, id)
        )

    async def stored(self, environment: str, id: str) -> str | None:
        """The id under which SQL has the run, which is moved there if it is buffered; None if there is no such run."""
        found = await self._table.find(environment, id)
        if found is None:
            there = await self._buffer.at(environment, slot_of(id))
            if there is not None and there.run.id == id:
                await self._drainer.materialize(there)
            found = await self._table.find(environment, id)
        return None if found is None else found.id

    async def change(self, environment: str, id: str, change: RunChange) -> TaskRun | None:
        """The run after the change; None if there is no such run. A change is made once: in SQL, or of the item."""
        for _ in range(_ROUNDS):
            run = await self._table.change(environment, id, [change])
            if run is None:
                run = await self._change_buffered(environment, id, change)
            if run is not None or await self.find(environment, id) is None:
                return run
        raise InvalidInput(f"run {id} moves between SQL and the buffer too often; this is a bug")

    async def _change_buffered(self, environment: str, id: str, change: RunChange) -> TaskRun | None:
        try:
            return await self._buffer.change(environment, id, change)
        except InvalidInput:  # the item would be too large: SQL has no such bound
            there = await self._buffer.at(environment, slot_of(id))
            if there is not None and there.run.id == id:
                await self._drainer.materialize(there)
            return None

    async def reset(self, environment: str, task: str, key: str) -> bool:
        """Ends the protection of the key; False if it protects no run."""
        stored = await self._table.expire_key(environment, task, key)
        there = await self._buffer.at(environment, slot_of_key(environment, task, key))
        if there is None or not there.live:
            return stored or await self._table.expire_key(environment, task, key)
        changed = await self._buffer.change(environment, there.run.id, RunChange(kind="reset", at=now()))
        return changed is not None or await self._table.expire_key(environment, task, key)


def check_tags(run: TaskRun, tags: list[str]) -> None:
    """Raises InvalidInput if the run would have too many tags."""
    if len({*run.tags, *tags}) > MOST_TAGS:
        raise InvalidInput(f"run {run.id} would have {len({*run.tags, *tags})} tags; the most is {MOST_TAGS}")
