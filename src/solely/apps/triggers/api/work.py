"""Work over HTTP: workers take runs, renew their leases, and report what became of them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from .... import InvalidInput, SolelyError
from ....kit import KIB, LOST, UNKNOWN, WRITE, Call, Route, Row, without_nul
from ..model import DELAYED, EXECUTING, QUEUED
from ..runtime import TriggersRuntime
from ..work.wire import (
    CompleteRun,
    FailRun,
    Heartbeat,
    LeaseState,
    LeaseStates,
    ReleaseRun,
    SettledRun,
    TakenRun,
    TakenRuns,
    TakeRun,
    WaitForRun,
)

POLL = 1.0  # seconds between looks for runs that another process has added, or that have become due
CAP = 4 * 1024 * KIB  # bytes of an output: as much as a payload
_SAFE = "Safe: the same response as the first time, until another worker has the run."


class WorkApi:
    """The handlers of workers, in the environment of their token."""

    def __init__(self, app: TriggersRuntime) -> None:
        self._app = app

    async def take(self, call: Call[TakeRun, None]) -> TakenRuns:
        """Leases a run to the caller, and waits for one up to `wait`."""
        wanted, service = call.body, call.service
        environment, wait = self._environment(call), min(wanted.wait, service.settings.max_wait)
        taking = self._take(environment, wanted, wait)
        row = await (call.waiting(taking, partial(self._give_back, environment)) if wait else taking)
        return TakenRuns(run=None if row is None else _taken(row))

    async def _take(self, environment: str, wanted: TakeRun, wait: float) -> Row | None:
        ends = time.monotonic() + wait
        row = await self._take_now(environment, wanted)
        while row is None and (left := ends - time.monotonic()) > 0:
            await self._app.arrivals.wait(min(POLL, left))
            if await self._app.leases.is_due(environment, wanted.tasks):
                row = await self._take_now(environment, wanted)
        return row

    async def _take_now(self, environment: str, wanted: TakeRun) -> Row | None:
        """The run that was leased, if one was due. If the caller goes away meanwhile, it is given back."""
        taking = asyncio.ensure_future(self._take_due(environment, wanted))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(SolelyError):
                await self._give_back(environment, await taking)
            raise

    async def _give_back(self, environment: str, row: Row | None) -> None:
        if row is not None:
            await self._app.leases.release(environment, row["id"], row["lease_owner"])

    async def _take_due(self, environment: str, wanted: TakeRun) -> Row | None:
        """The run that was leased, if one was due; others that have no attempt left are failed on the way."""
        lease = wanted.lease or self._app.settings.lease_ttl
        given: dict[str, Any] = {"lease": lease, "worker": without_nul(wanted.worker), "token": wanted.token or ""}
        while (found := await self._app.leases.take(environment, wanted.tasks, **given)) is not None:
            if found.leased:
                return found.row
        return None

    async def heartbeat(self, call: Call[Heartbeat, None]) -> LeaseStates:
        """Extends the leases of runs."""
        environment, lease = self._environment(call), call.body.lease or self._app.settings.lease_ttl
        states = []
        for each in call.body.runs:
            left = await self._app.leases.renew(environment, without_nul(each.id), each.token, lease)
            state = (
                EXECUTING if left is not None else await self._app.leases.state_of(environment, without_nul(each.id))
            )
            states.append(LeaseState(id=each.id, left=left, state=state))
        return LeaseStates(runs=states)

    async def complete(self, call: Call[CompleteRun, None]) -> SettledRun:
        """Completes a run."""
        return _settled(await self._app.leases.complete(*self._leased(call), output=call.body.output))

    async def fail(self, call: Call[FailRun, None]) -> SettledRun:
        """Fails an attempt: the run is tried again later, or is failed for good."""
        said = call.body
        row = await self._app.leases.fail(
            *self._leased(call), error=without_nul(said.error), retry=said.retry, delay=said.delay
        )
        return _settled(row)

    async def release(self, call: Call[ReleaseRun, None]) -> SettledRun:
        """Gives a run back; the attempt does not count."""
        row = await self._app.leases.release(*self._leased(call), delay=call.body.delay)
        self._app.arrivals.wake()
        return _settled(row)

    async def wait(self, call: Call[WaitForRun, None]) -> SettledRun:
        """Has a run wait for a child: it can be taken again when the child has ended."""
        environment, id, token = self._leased(call)
        if call.body.child == id:
            raise InvalidInput(f"run {id} cannot wait for itself")
        child = await self._app.runs.stored(environment, without_nul(call.body.child))
        return _settled(await self._app.leases.wait(environment, id, token, child or call.body.child))

    def _environment(self, call: Call[Any, None]) -> str:
        return self._app.environment_of(call.principal.name)

    def _leased(self, call: Call[Any, None]) -> tuple[str, str, str]:
        return self._environment(call), without_nul(call.params["id"]), call.body.token


def _settled(row: Row) -> SettledRun:
    again = row["available_at"] if row["state"] in (DELAYED, QUEUED) else None
    return SettledRun(id=row["id"], state=row["state"], attempt=row["attempts"], retry_at=again)


_AGAIN_TAKE = "With the same token, returns the same run; without one, takes another."


def _taken(row: Row) -> TakenRun:
    return TakenRun(
        id=row["id"],
        task=row["task"],
        payload=msgspec.json.decode(row["payload"]),
        attempt=row["attempts"],
        max_attempts=row["max_attempts"],
        token=row["lease_owner"],
        left=row["left_seconds"],
        idempotency_key=row["idempotency_key"],
        tags=msgspec.json.decode(row["tags"]),
        metadata=msgspec.json.decode(row["metadata"]),
    )


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes of workers."""
    work = WorkApi(app)
    of_run: dict[str, Any] = {"refusals": (UNKNOWN, LOST), "cap": CAP, "over_max_body": True}
    return [
        Route("POST", "/api/v1/workers/take", WRITE, work.take, grants=True, again=_AGAIN_TAKE),
        Route("POST", "/api/v1/workers/heartbeat", WRITE, work.heartbeat, again="Safe: extends again."),
        Route("POST", "/api/v1/runs/{id}/complete", WRITE, work.complete, again=_SAFE, **of_run),
        Route("POST", "/api/v1/runs/{id}/fail", WRITE, work.fail, again=_SAFE, **of_run),
        Route("POST", "/api/v1/runs/{id}/release", WRITE, work.release, again=_SAFE, **of_run),
        Route("POST", "/api/v1/runs/{id}/wait", WRITE, work.wait, again=_SAFE, **of_run),
    ]
