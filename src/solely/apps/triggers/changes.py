"""Runs wherever they are: in SQL, or still in the buffer. Reads and writes of a buffered run behave as those of a
stored one, from the first answer on."""

from __future__ import annotations

from contextlib import suppress

from ... import InvalidInput
from .buffer import Buffer
from .drainer import Drainer
from .model import MOST_TAGS, RunChange, TaskRun, now, slot_of_key
from .table import RunTable


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
            await self._drainer.materialize(environment, id)
            found = await self._table.find(environment, id)
        return None if found is None else found.id

    async def change(self, environment: str, id: str, change: RunChange) -> TaskRun | None:
        """The run after the change; None if there is no such run. A change is made of the row, or of an item that is
        not sealed: whoever takes the run later sees it."""
        return (
            await self._table.change(environment, id, [change])
            or await self._change_buffered(environment, id, change)
            or await self._table.change(environment, id, [change])
        )

    async def _change_buffered(self, environment: str, id: str, change: RunChange) -> TaskRun | None:
        """The buffered run after the change. None if it cannot be made of the item; then SQL has the run, if any."""
        with suppress(InvalidInput):  # the item would be too large: SQL has no such bound
            run = await self._buffer.change(environment, id, change)
            if run is not None:
                return run
        await self._drainer.materialize(environment, id)
        return None

    async def reset(self, environment: str, task: str, key: str) -> bool:
        """Ends the protection of the key; False if it protects no run."""
        there = await self._buffer.at(environment, slot_of_key(environment, task, key))
        if there is None or not there.live:
            return await self._table.expire_key(environment, task, key)
        await self._change_buffered(environment, there.run.id, RunChange(kind="reset", at=now()))
        # An open item did protect it. A change that finds it sealed may be the repeat of one that was made before.
        return await self._table.expire_key(environment, task, key) or there.open


def check_tags(run: TaskRun, tags: list[str]) -> None:
    """Raises InvalidInput if the run would have too many tags."""
    if len({*run.tags, *tags}) > MOST_TAGS:
        raise InvalidInput(f"run {run.id} would have {len({*run.tags, *tags})} tags; the most is {MOST_TAGS}")
