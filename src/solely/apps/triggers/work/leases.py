"""The leases of runs, kept in their rows. Each step is one statement on the database's clock, which decides by the
token of the lease: a worker that lost its run can neither renew nor end it. The timeline is written in the same
transaction."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .... import LeaseLost
from ....kit import UNKNOWN, Problem, Queries, Row, Statements
from ..model import COMPLETED, DELAYED, ENDED, EXECUTING, FAILED, QUEUED, WAITING, json_text
from ..parents import resume_parents
from .figures import ATTEMPTS, QUEUE_SECONDS, RUN_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ....kit import Database, Metrics

DIED = "the worker died or lost its connection in the last attempt: the lease expired"
SPREAD = 0.2  # of a pause, either way: runs that failed together are not retried together

_ROUNDS = 20  # tries of a take that finds the runs of the first task locked by others
_PAUSE = 0.02  # seconds between these tries at most: others commit within some milliseconds

Clock = Callable[[], float]


class TakeResult(NamedTuple):
    """A row that a take has changed: leased to the caller, or failed since it had no attempt left. `lost` is true if
    the lease of another worker had expired."""

    row: Row
    lost: bool

    @property
    def leased(self) -> bool:
        return bool(self.row["state"] == EXECUTING)


class RunLeases:
    """Leases runs of one database to workers. `first` and `most` are the shortest and the longest pause before a retry.
    `on_due` is called when a parent is resumed. Tests give a clock; otherwise the database's own decides."""

    def __init__(
        self,
        data: Database,
        metrics: Metrics,
        *,
        first: float,
        most: float,
        on_due: Callable[[], object] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._data, self._statements = data, Statements.of(__package__, "queries.sql")
        self._metrics, self._first, self._most, self._on_due = metrics, first, most, on_due
        self.clock = clock

    async def take(
        self, environment: str, tasks: list[str], *, token: str = "", lease: float, worker: str = ""
    ) -> TakeResult | None:
        """Leases the run that has been due longest, or the one that this token has leased already; None if none is due.
        A run without an attempt left is failed and returned: take again."""
        token = token or secrets.token_hex(16)
        if (mine := await self._row("taken_with", environment=environment, token=token)) is not None:
            left = await self.renew(environment, mine["id"], token, lease)
            if left is not None:
                return TakeResult({**mine, "left_seconds": left}, lost=False)
        asked = {"environment": environment, "tasks": json_text(tasks), "token": token, "lease": lease}
        for _ in range(_ROUNDS):
            taken = await self._take(worker=worker, **asked)
            if taken is not None or not await self.is_due(environment, tasks):
                return taken
            await asyncio.sleep(_PAUSE * random.random())
        return None

    async def _take(self, **asked: Any) -> TakeResult | None:
        """None also if others take the runs of the first task right now: those of another one may be due."""
        async with self._changing() as step:
            row = await step.row("take", lost=DIED, **asked)
            if row is None:
                return None
            attempts = await step.row("open_attempts", id=row["id"])
            result = TakeResult(row, lost=attempts is not None and attempts["open"] > 0)
            if result.lost:
                await step.note(row, "lost", attempt=row["attempts"] - result.leased)
            if result.leased:
                await step.note(row, "taken", attempt=row["attempts"], worker=asked["worker"])
            else:
                await step.note(row, "failed", attempt=row["attempts"], error=DIED)
            resumed = await self._resume(step, row)
        self._count_taken(result)
        if resumed:
            self._on_due()
        return result

    def _count_taken(self, found: TakeResult) -> None:
        if found.lost:
            self._metrics.count(ATTEMPTS, "lost")
        if not found.leased:
            self._metrics.count(ATTEMPTS, "failed")
        elif found.row["attempts"] == 1:
            self._metrics.observe(QUEUE_SECONDS, max(0.0, found.row["updated_at"] - found.row["created_at"]))

    async def is_due(self, environment: str, tasks: list[str]) -> bool:
        """True if a take would find a run."""
        return await self._row("due", environment=environment, tasks=json_text(tasks)) is not None

    async def renew(self, environment: str, id: str, token: str, lease: float) -> float | None:
        """Extends the lease: the seconds that it lasts from now on; None if it is lost."""
        row = await self._row("renew", environment=environment, id=id, token=token, lease=lease)
        return None if row is None else float(row["left_seconds"])

    async def state_of(self, environment: str, id: str) -> str:
        """The state of the run; "" if there is none."""
        row = await self._row("run", environment=environment, id=id)
        return "" if row is None else str(row["state"])

    async def complete(self, environment: str, id: str, token: str, output: Any) -> Row:
        """The run is COMPLETED. Raises LeaseLost if the token has it no longer, and Problem if there is no such run."""
        text = json_text(output)
        return await self._end("complete", "completed", environment, id, token, output=text)

    async def fail(
        self, environment: str, id: str, token: str, *, error: str, retry: bool = True, delay: float | None = None
    ) -> Row:
        """The run is DELAYED until its next attempt, or FAILED if it has none. Raises as `complete`."""
        spread = 1.0 + SPREAD * (2.0 * random.random() - 1.0)
        pauses = {"delay": delay, "first": self._first, "most": self._most, "spread": spread}
        return await self._end("fail", "retried", environment, id, token, error=error, retry=int(retry), **pauses)

    async def release(self, environment: str, id: str, token: str, *, delay: float = 0.0) -> Row:
        """The run can be taken again after the delay, and this attempt does not count. Raises as `complete`."""
        return await self._end("release", "released", environment, id, token, delay=delay)

    async def wait(self, environment: str, id: str, token: str, child: str) -> Row:
        """The run is WAITING, without a lease, until the child has ended; QUEUED if that is so already. This attempt
        does not count. Raises as `complete`, and Problem if there is no such child."""
        async with self._changing() as step:
            # The child is locked first, as by whoever ends it: so it sees this run wait, or this run sees its end.
            known = await step.row("child", environment=environment, child=child)
            if known is None:
                raise Problem(UNKNOWN, f"there is no run {child} to wait for")
            ended = int(known["state"] in ENDED)
            row = await step.row("wait", environment=environment, id=id, token=token, child=child, ended=ended)
            if row is not None:
                await step.note(row, "waiting", attempt=row["attempts"] + 1, child=child)
        if row is None:
            return await self._repeated("wait", environment, id, token)
        self._metrics.count(ATTEMPTS, "waiting")
        if ended:
            self._on_due()
        return row

    async def _resume(self, step: _Step, row: Row) -> bool:
        """Resumes the runs that wait for this one, if it has ended."""
        return row["state"] in ENDED and await resume_parents(step.inside, row["id"], step.now)

    async def _end(self, how: str, kind: str, environment: str, id: str, token: str, **values: Any) -> Row:
        async with self._changing() as step:
            row = await step.row(how, environment=environment, id=id, token=token, **values)
            if row is not None:
                failed = {"error": values["error"]} if "error" in values else {}
                kind = "failed" if row["state"] == FAILED else kind
                await step.note(row, kind, attempt=row["attempts"] + (kind == "released"), **failed)
                resumed = await self._resume(step, row)
        if row is None:
            return await self._repeated(how, environment, id, token)
        if resumed:
            self._on_due()
        self._metrics.count(ATTEMPTS, kind)
        if row["finished_at"] is not None:
            self._metrics.observe(RUN_SECONDS, max(0.0, row["finished_at"] - row["started_at"]))
        return row

    async def _repeated(self, how: str, environment: str, id: str, token: str) -> Row:
        """The run, if this token has ended it so before, and the response was lost; else raises."""
        row = await self._row("run", environment=environment, id=id)
        if row is None:
            raise Problem(UNKNOWN, f"there is no run {id}")
        if row["lease_owner"] == token and row["state"] in _ENDED[how]:
            return row
        state = row["state"].lower()
        raise LeaseLost(f"run {id} is not leased to this worker any more: it is {state}", key=id, holder=row["worker"])

    async def _row(self, statement: str, **values: Any) -> Row | None:
        return await self._statements.on(self._data).row(statement, now=self._now(), **values)

    def _now(self) -> float | None:
        return None if self.clock is None else self.clock()

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[_Step]:
        async with self._data.transaction() as inside:
            yield _Step(inside, self._statements.on(inside), self._now())


class _Step(NamedTuple):
    """A step inside of a transaction, which also writes the timeline."""

    inside: Database
    queries: Queries
    now: float | None

    async def row(self, statement: str, **values: Any) -> Row | None:
        return await self.queries.row(statement, now=self.now, **values)

    async def note(self, row: Row, kind: str, **detail: Any) -> None:
        await self.queries.run("add_event", id=row["id"], now=self.now, kind=kind, detail=json_text(detail))


_ENDED = {
    "complete": (COMPLETED,),
    "fail": (DELAYED, FAILED),
    "release": (QUEUED, DELAYED),
    "wait": (WAITING, QUEUED),
}
