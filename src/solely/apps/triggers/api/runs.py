"""Runs over HTTP: read, list, cancel, tags, metadata, and the reset of a key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from .... import InvalidInput
from ....kit import KIB, READ, UNKNOWN, WRITE, Answer, Body, Call, PageSize, Position, Problem, Route, position_after
from ..changes import check_tags
from ..model import (
    COMPLETED,
    ENDED,
    EXECUTING,
    FAILED,
    QUEUED,
    RUN_ID,
    RunChange,
    State,
    TaskName,
    TaskRun,
    now,
    stored_key_of,
)
from ..runtime import TriggersRuntime
from .options import MOST_METADATA, Tags, metadata_of, tags_of

Filter = Annotated[str, msgspec.Meta(max_length=2048, pattern=r"^[^\u0000]*\Z")]
_CAP = MOST_METADATA + 64 * KIB  # bytes of a change of the metadata


class RunAnswer(Answer, rename="camel"):
    """A run as trigger.dev's client reads it. `error` is null, or has a message; times are ISO texts.
    `buffered`: it was accepted in a burst."""

    id: str
    status: State
    task_identifier: str
    idempotency_key: str | None
    created_at: datetime
    updated_at: datetime
    delayed_until: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    tags: list[str]
    metadata: dict[str, Any]
    payload: Any
    output: Any
    error: dict[str, str] | None
    attempt_count: int
    is_queued: bool
    is_executing: bool
    is_completed: bool
    is_success: bool
    is_failed: bool
    is_cancelled: bool
    buffered: bool
    parent_run_id: str | None
    is_test: bool = False
    cost_in_cents: float = 0.0
    base_cost_in_cents: float = 0.0
    duration_ms: float = 0.0
    env: dict[str, str] = msgspec.field(default_factory=dict)


class Pagination(Answer):
    """Where the next page begins; null on the last one."""

    next: str | None = None


class RunsAnswer(Answer):
    """Stored runs, the newest first. A buffered one is listed when it is stored, a moment later."""

    data: list[RunAnswer]
    pagination: Pagination


class RunsQuery(Body, forbid_unknown_fields=False):
    """The filters of trigger.dev's client: several states are separated by commas."""

    status: Filter = msgspec.field(default="", name="filter[status]")
    task: Filter = msgspec.field(default="", name="filter[taskIdentifier]")
    tag: Filter = msgspec.field(default="", name="filter[tag]")
    key: Filter = msgspec.field(default="", name="filter[idempotencyKey]")
    size: PageSize = msgspec.field(default=25, name="page[size]")
    after: Filter = msgspec.field(default="", name="page[after]")


class TagsBody(Body):
    """Tags to add."""

    tags: Tags


class MetadataBody(Body, forbid_unknown_fields=False):
    """The new metadata, or operations on it: {type: set | delete | append | remove | increment, key, value}."""

    metadata: Any = None
    operations: list[dict[str, Any]] = msgspec.field(default_factory=list)


class ResetBody(Body, rename="camel", forbid_unknown_fields=False):
    """The task whose key is reset."""

    task_identifier: TaskName


class ChangedRun(Answer):
    """The run that was changed."""

    id: str
    message: str = "Successfully changed."


class MetadataAnswer(Answer):
    """The metadata after the change."""

    metadata: dict[str, Any]


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes of runs and keys."""

    def place(call: Call[Any, Any]) -> tuple[str, str]:
        id = call.params["id"]
        if not RUN_ID.fullmatch(id):
            _unknown(id)
        return app.environment_of(call.principal.name), id

    async def found(call: Call[Any, Any]) -> TaskRun:
        environment, id = place(call)
        return await app.runs.find(environment, id) or _unknown(id)

    async def change(call: Call[Any, Any], change: RunChange) -> TaskRun:
        environment, id = place(call)
        return await app.runs.change(environment, id, change) or _unknown(id)

    async def read(call: Call[None, None]) -> RunAnswer:
        """Read a run, stored or buffered."""
        return answer_of(await found(call))

    async def listed(call: Call[None, RunsQuery]) -> RunsAnswer:
        """List runs, the newest first."""
        query, environment = call.query, app.environment_of(call.principal.name)
        states = [each for each in query.status.split(",") if each]
        filters: Any = {"task": query.task, "tag": query.tag, "key": stored_key_of(query.key), "states": states}
        page = await app.table.recent(environment, position_after(query.after), query.size, **filters)
        last = str(Position(page[-1].created_at, page[-1].id)) if len(page) == query.size else None
        return RunsAnswer(data=[answer_of(run) for run in page], pagination=Pagination(next=last))

    async def cancel(call: Call[None, None]) -> ChangedRun:
        """Cancel a run that has not ended."""
        run = await change(call, RunChange(kind="cancel", at=now()))
        return ChangedRun(id=run.id)

    async def tag(call: Call[TagsBody, None]) -> ChangedRun:
        """Add tags to a run."""
        tags = tags_of(call.body.tags)
        check_tags(await found(call), tags)
        run = await change(call, RunChange(kind="tags", at=now(), tags=tags))
        return ChangedRun(id=run.id)

    async def edit(call: Call[MetadataBody, None]) -> MetadataAnswer:
        """Replace or edit the metadata of a run."""
        given = call.body
        if given.metadata is None and not given.operations:
            raise InvalidInput("give `metadata`, `operations`, or both")
        metadata = None if given.metadata is None else metadata_of(given.metadata)
        asked = RunChange(kind="metadata", at=now(), metadata=metadata, edits=given.operations)
        return MetadataAnswer(metadata=(await change(call, asked)).metadata)

    async def reset(call: Call[ResetBody, None]) -> ChangedRun:
        """Reset an idempotency key: the next trigger with it makes a new run."""
        environment, key = app.environment_of(call.principal.name), call.params["key"]
        if "\0" in key or not await app.runs.reset(environment, call.body.task_identifier, stored_key_of(key)):
            raise Problem(UNKNOWN, f"the key {key!r:.80} protects no run of {call.body.task_identifier!r:.80}")
        return ChangedRun(id=key)

    once, twice = "Nothing more happens.", "The same change once more."
    keys = "/api/v1/idempotencyKeys/{key}/reset"
    return [
        *(Route("GET", f"/api/{v}/runs/{{id}}", READ, read, refusals=(UNKNOWN,)) for v in ("v1", "v3")),
        Route("GET", "/api/v1/runs", READ, listed),
        *(
            Route("POST", f"/api/{v}/runs/{{id}}/cancel", WRITE, cancel, again=once, refusals=(UNKNOWN,))
            for v in ("v1", "v2")
        ),
        Route("POST", "/api/v1/runs/{id}/tags", WRITE, tag, again=once, refusals=(UNKNOWN,)),
        Route("PUT", "/api/v1/runs/{id}/metadata", WRITE, edit, again=twice, refusals=(UNKNOWN,), cap=_CAP),
        Route("POST", keys, WRITE, reset, again="404: the key protects no run any more.", refusals=(UNKNOWN,)),
    ]


def _unknown(id: str) -> TaskRun:
    raise Problem(UNKNOWN, f"there is no run {id!r:.80} in this environment")


def answer_of(run: TaskRun) -> RunAnswer:
    """The run as it is answered."""
    ended, since = run.state in ENDED, run.started_at
    return RunAnswer(
        id=run.id,
        status=run.state,
        task_identifier=run.task,
        idempotency_key=run.idempotency_key,
        created_at=_time(run.created_at),
        updated_at=_time(run.updated_at),
        delayed_until=_time(run.available_at) if run.available_at > run.created_at else None,
        started_at=None if since is None else _time(since),
        finished_at=None if run.finished_at is None else _time(run.finished_at),
        tags=run.tags,
        metadata=run.metadata,
        payload=msgspec.json.decode(run.payload),
        output=None if run.output is None else msgspec.json.decode(run.output),
        error=None if run.error is None else {"name": "Error", "message": run.error},
        attempt_count=run.attempts,
        is_queued=run.state == QUEUED,
        is_executing=run.state == EXECUTING,
        is_completed=ended,
        is_success=run.state == COMPLETED,
        is_failed=run.state == FAILED,
        is_cancelled=run.state == "CANCELED",
        buffered=run.buffered_at is not None,
        parent_run_id=run.parent_id,
        duration_ms=1000 * max(0.0, (run.finished_at or now()) - since) if since else 0.0,
        env={"id": run.environment, "name": run.environment},
    )


def _time(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)
