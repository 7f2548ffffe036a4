"""What operators do to runs: cancel, replay, and reset a key."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from ...kit import UNKNOWN, WRITE, Affected, Answer, Body, Call, Problem, Route, act_routes, at
from . import acts
from .api.options import header_key, request_key
from .model import CANCELED, ENDED, RunChange, RunId, TaskName, TaskRun, UserKey, stored_key_of
from .replay import Replays, replay_key
from .runtime import TriggersRuntime

OptionalName = Annotated[str, msgspec.Meta(max_length=64, description="the token's own if empty")]
OptionalKey = Annotated[str, msgspec.Meta(max_length=2048, pattern=r"^[^\u0000]*\Z", description="made if empty")]


class CancelRun(Body):
    """The run of this id."""

    id: RunId


class ReplayRun(Body):
    """The run of this id, under this new key."""

    id: RunId
    new_key: OptionalKey = ""


class ResetKey(Body):
    """The key of this task, in the caller's own environment unless another is named."""

    task: TaskName
    user_key: UserKey
    environment: OptionalName = ""


class ReplayedRun(Answer, rename="camel"):
    """The new run; `isCached` if there was one of this key already."""

    id: str
    is_cached: bool
    buffered: bool


class Operators:
    """The handlers of acts, in the environments that the caller sees."""

    def __init__(self, app: TriggersRuntime) -> None:
        self._app = app

    @property
    def _replays(self) -> Replays:
        return Replays(self._app.runs, self._app.pipeline, self._app.settings.key_ttl)

    async def _found(self, call: Call[Any, Any], id: str) -> TaskRun | None:
        """The run, in any environment that the caller sees."""
        try:
            return await self._app.find(call.principal, id)
        except Problem:
            return None

    async def _replayed(self, call: Call[Any, Any], id: str, key: str) -> ReplayedRun | None:
        old = await self._found(call, id)
        made = None if old is None else await self._replays.replay(old.environment, old.id, key)
        return None if made is None else ReplayedRun(id=made.id, is_cached=made.cached, buffered=made.buffered)

    async def cancel(self, call: Call[CancelRun, None]) -> bool | None:
        """Cancels a run."""
        before = await self._found(call, call.body.id)
        if before is None:
            return None
        after = await self._app.runs.change(before.environment, before.id, RunChange(kind="cancel", at=time.time()))
        return before.state not in ENDED and after is not None and after.state == CANCELED

    async def to_cancel(self, call: Call[Any, Any], wanted: CancelRun) -> Affected | None:
        """The run, if it has not ended."""
        run = await self._found(call, wanted.id)
        return None if run is None or run.state in ENDED else Affected(f"the run {run.id}", _facts(run))

    async def replay(self, call: Call[ReplayRun, None]) -> ReplayedRun | None:
        """Replays a run."""
        return await self._replayed(call, call.body.id, call.body.new_key)

    async def to_replay(self, call: Call[Any, Any], wanted: ReplayRun) -> Affected | None:
        """The run, and a key for the new one: a form that is submitted twice makes one run."""
        run = await self._found(call, wanted.id)
        return None if run is None else Affected(f"the run {run.id}", _facts(run), {"new_key": replay_key(run.id)})

    async def replay_by_path(self, call: Call[None, None]) -> ReplayedRun:
        """Replays a run under the key in Idempotency-Key, or a fresh one, as trigger.dev's client asks for it; its
        retries get the same run."""
        id, retried = call.params["id"], request_key(call)
        key = header_key(call.header("idempotency-key")) or (retried and f"replay:{id}:{retried}")
        made = await self._replayed(call, id, key)
        if made is None:
            raise Problem(UNKNOWN, acts.REPLAY.nothing)
        return made

    async def reset(self, call: Call[ResetKey, None]) -> bool:
        """Resets a key."""
        body = call.body
        environment = self._app.environments_of(call.principal, body.environment)[0]
        return await self._app.runs.reset(environment, body.task, stored_key_of(body.user_key))

    async def to_reset(self, call: Call[Any, Any], wanted: ResetKey) -> Affected:
        """The key, as far as it is known."""
        known: tuple[object, ...] = (wanted.task, wanted.user_key)
        return Affected("an idempotency key" if msgspec.UNSET in known else f"the key {known[1]!r} of {known[0]}")


def _facts(run: TaskRun) -> dict[str, str]:
    key = {"Key": run.idempotency_key} if run.idempotency_key else {}
    return {"Task": run.task, "State": run.state.lower(), **key, "Triggered": at(run.created_at)}


def run_link(id: str) -> str:
    """The page of this run."""
    return f"/triggers/run?{urlencode({'id': id})}"


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes of acts."""
    acting = Operators(app)
    replayed: Any = {"refusals": (UNKNOWN,), "error_field": True, "again": acts.REPLAY.again}
    return [
        Route("POST", "/api/v1/runs/{id}/replay", WRITE, acting.replay_by_path, **replayed),
        *act_routes(acts.CANCEL, acting.cancel, acting.to_cancel, back=lambda body: run_link(body.id)),
        *act_routes(acts.REPLAY, acting.replay, acting.to_replay, back=lambda body: run_link(body.id)),
        *act_routes(acts.RESET, acting.reset, acting.to_reset),
    ]
