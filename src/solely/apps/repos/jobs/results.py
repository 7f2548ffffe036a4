"""Results that are not posted yet, in the store: a retry, or another process, posts them without running the command
again. Also the number of runs of keys that were forgotten."""

from __future__ import annotations

import time

import msgspec

from .... import AsyncClient
from ....kit import DAY, MAX_TTL, Notes, part_of
from ..model import own
from .markers import run_id

_KEEP = 7.0 * DAY  # seconds: a dead letter is replayed within days, if at all


class JobResult(msgspec.Struct, frozen=True):
    """What the command says, and the commit that it made. `url` is that of the merge request."""

    text: str = ""
    commit: str = ""
    url: str = ""


class JobResults:
    """Results by run, and runs by key."""

    def __init__(self, once: AsyncClient) -> None:
        self._results = Notes(once, own("results"), JobResult)
        self._runs = Notes(once, own("runs"), int)

    async def run(self, key: str) -> str:
        """The name of the current run of this key."""
        return run_id(key, await self._runs.read(part_of(key)) or 0)

    async def begin_again(self, key: str) -> None:
        """The next run of this key is another one, which finds no traces of the runs before."""
        await self._runs.change(part_of(key), lambda runs: (runs or 0) + 1, time.time() + MAX_TTL)

    async def read(self, run: str) -> JobResult | None:
        """The result of this run; None if there is none."""
        return await self._results.read(part_of(run))

    async def keep(self, run: str, result: JobResult) -> None:
        """Keeps the result until it is removed, or for some days."""
        await self._results.change(part_of(run), lambda _: result, time.time() + _KEEP)

    async def remove(self, run: str) -> None:
        """Removes the result, since it was posted."""
        await self._results.remove(part_of(run))

    async def sweep(self) -> None:
        """Removes what has expired."""
        await self._results.sweep()
        await self._runs.sweep()
