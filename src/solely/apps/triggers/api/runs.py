"""Runs over HTTP: read, list, cancel, tags, metadata, and the reset of a key."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from .... import InvalidInput
from ....kit import (
    KIB,
    READ,
    UNKNOWN,
    WRITE,
    Answer,
    Body,
    Call,
    PageSize,
    Problem,
    Route,
    duration,
)
from ..changes import check_tags
from ..lists import FOREVER, ListFilter
from ..model import (
    CANCELED,
    COMPLETED,
    DELAYED,
    ENDED,
    EXECUTING,
    FAILED,
    MOST_METADATA,
    MOST_OPERATIONS,
    QUEUED,
    WAITING,
    RunChange,
    State,
    TaskName,
    TaskRun,
    now,
    stored_key_of,
)
from ..runtime import TriggersRuntime
from .options import Tags, metadata_of, tags_of

Filter = Annotated[str, msgspec.Meta(max_length=2048, pattern=r"^[^\u0000]*\Z")]
# One that begins with "$." would be a path into the metadata, which only the server of trigger.dev itself follows.
FieldName = Annotated[str, msgspec.Meta(max_length=2048, pattern=r"^(?!\$\.)[^\u0000]*\Z")]
Milliseconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e14, description="milliseconds since 1970")]
_CAP = MOST_METADATA + 64 * KIB  # bytes of a change of the metadata


class RunAnswer(Answer, rename="camel", omit_defaults=True):
    """A run as trigger.dev's client reads it: what is unknown is left out, and times are ISO texts. `attempts` is empty
    (GET /api/triggers/runs/{id} has them). `buffered`: it was accepted in a burst."""

    id: str
    status: State
    task_identifier: str
    created_at: datetime
    updated_at: datetime
    tags: list[str]
    metadata: dict[str, Any]
    attempt_count: int
    is_queued: bool
    is_executing: bool
    is_waiting: bool
    is_completed: bool
    is_success: bool
    is_failed: bool
    is_cancelled: bool
    is_test: bool
    cost_in_cents: float
    base_cost_in_cents: float
    duration_ms: float
    depth: int
    trigger_function: Literal["trigger", "triggerAndWait"]
    env: dict[str, str]
    related_runs: dict[str, Any]
    attempts: list[dict[str, Any]]
    buffered: bool
    idempotency_key: str | None = None
    delayed_until: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    payload: Any = None
    output: Any = None
    error: dict[str, str] | None = None
    parent_run_id: str | None = None


class Pagination(Answer, omit_defaults=True):
    """Where the next page begins, none on the last one; and where the previous one does, none on the first."""

    next: str | None = None
    previous: str | None = None


class RunsAnswer(Answer):
    """Stored runs without payload and output, the newest first; fewer than asked for if they are large. A buffered one
    is listed when it is stored, a moment later."""

    data: list[RunAnswer]
    pagination: Pagination


class RunsQuery(Body):
    """The filters of trigger.dev's client: several states, tasks or tags are separated by commas; `from` and `to` are
    milliseconds since 1970, `period` is text such as 1h. Other filters are refused, since they would be ignored.
    `filter[environment]` is for admins."""

    status: Filter = msgspec.field(default="", name="filter[status]")
    task: Filter = msgspec.field(default="", name="filter[taskIdentifier]")
    tag: Filter = msgspec.field(default="", name="filter[tag]")
    key: Filter = msgspec.field(default="", name="filter[idempotencyKey]")
    queue: Filter = msgspec.field(default="", name="filter[queue]")
    machine: Filter = msgspec.field(default="", name="filter[machine]")
    environment: Filter = msgspec.field(default="", name="filter[environment]")
    begin: Milliseconds = msgspec.field(default=0.0, name="filter[createdAt][from]")
    end: Milliseconds = msgspec.field(default=1000 * FOREVER, name="filter[createdAt][to]")
    period: Filter = msgspec.field(default="", name="filter[createdAt][period]")
    size: PageSize = msgspec.field(default=25, name="page[size]")
    after: Filter = msgspec.field(default="", name="page[after]")
    before: Filter = msgspec.field(default="", name="page[before]")


class TagsBody(Body):
    """Tags to add."""

    tags: Tags


class MetadataOperation(Body):
    """One operation on a top-level field; `update` replaces all of the metadata by `value`."""

    type: Literal["set", "delete", "append", "remove", "increment", "update"]
    key: FieldName = ""
    value: Any = None


class MetadataBody(Body):
    """The new metadata, or operations on it."""

    metadata: Any = None
    operations: Annotated[list[MetadataOperation], msgspec.Meta(max_length=MOST_OPERATIONS)] = msgspec.field(
        default_factory=list
    )


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

    async def found(call: Call[Any, Any]) -> TaskRun:
        return await app.find(call.principal, call.params["id"])

    async def change(call: Call[Any, Any], change: RunChange) -> TaskRun:
        run = await found(call)
        if change.tags:
            check_tags(run, change.tags)
        return await app.runs.change(run.environment, run.id, change) or await found(call)

    async def read(call: Call[None, None]) -> RunAnswer:
        """Read a run, stored or buffered."""
        return answer_of(await found(call))

    async def metadata(call: Call[None, None]) -> MetadataAnswer:
        """Read the metadata of a run."""
        return MetadataAnswer(metadata=(await found(call)).metadata)

    async def listed(call: Call[None, RunsQuery]) -> RunsAnswer:
        """List runs, the newest first."""
        query, environments = call.query, app.environments_of(call.principal, call.query.environment)
        lists: Any = {"states": query.status, "tasks": query.task, "tags": query.tag}
        lists |= {"queues": query.queue, "machines": query.machine}
        filters: Any = {name: [each for each in value.split(",") if each] for name, value in lists.items()}
        since = max(query.begin / 1000, now() - duration(query.period) if query.period else 0.0)
        only = ListFilter(key=stored_key_of(query.key), since=since, until=query.end / 1000, **filters)
        page = await app.lists.page(environments, only, query.size, after=query.after, before=query.before)
        pagination = Pagination(next=page.next, previous=page.previous)
        return RunsAnswer(data=[listed_of(run) for run in page.runs], pagination=pagination)

    async def cancel(call: Call[None, None]) -> ChangedRun:
        """Cancel a run that has not ended."""
        run = await change(call, RunChange(kind="cancel", at=now()))
        return ChangedRun(id=run.id)

    async def tag(call: Call[TagsBody, None]) -> ChangedRun:
        """Add tags to a run."""
        run = await change(call, RunChange(kind="tags", at=now(), tags=tags_of(call.body.tags)))
        return ChangedRun(id=run.id)

    async def edit(call: Call[MetadataBody, None]) -> MetadataAnswer:
        """Replace or edit the metadata of a run."""
        given = call.body
        if given.metadata is None and not given.operations:
            raise InvalidInput("give `metadata`, `operations`, or both")
        metadata = None if given.metadata is None else metadata_of(given.metadata)
        edits = [_checked(number, each) for number, each in enumerate(given.operations)]
        asked = RunChange(kind="metadata", at=now(), metadata=metadata, edits=edits)
        return MetadataAnswer(metadata=(await change(call, asked)).metadata)

    async def reset(call: Call[ResetBody, None]) -> ChangedRun:
        """Reset an idempotency key: the next trigger with it makes a new run."""
        environment, key = app.environment_of(call.principal.name), call.params["key"]
        if "\0" in key or not await app.runs.reset(environment, call.body.task_identifier, stored_key_of(key)):
            raise Problem(UNKNOWN, f"the key {key!r:.80} protects no run of {call.body.task_identifier!r:.80}")
        return ChangedRun(id=key)

    once, twice = "Nothing more happens.", "The same change once more."
    keys = "/api/v1/idempotencyKeys/{key}/reset"
    route = partial(Route, refusals=(UNKNOWN,), error_field=True)
    return [
        *(route("GET", f"/api/{v}/runs/{{id}}", READ, read) for v in ("v1", "v3")),
        route("GET", "/api/v1/runs", READ, listed),
        *(route("POST", f"/api/{v}/runs/{{id}}/cancel", WRITE, cancel, again=once) for v in ("v1", "v2")),
        route("POST", "/api/v1/runs/{id}/tags", WRITE, tag, again=once),
        route("GET", "/api/v1/runs/{id}/metadata", READ, metadata),
        route("PUT", "/api/v1/runs/{id}/metadata", WRITE, edit, again=twice, cap=_CAP),
        route("POST", keys, WRITE, reset, again="404: the key protects no run any more."),
    ]


def _checked(number: int, edit: MetadataOperation) -> dict[str, Any]:
    """The operation as it is stored; raises InvalidInput if its value does not fit its type."""
    wanted: Any = {"update": dict, "increment": int | float}.get(edit.type, object)
    if not isinstance(edit.value, wanted) or (isinstance(edit.value, bool) and edit.type == "increment"):
        raise InvalidInput(f"operations[{number}]: {edit.type} does not take {edit.value!r:.80}")
    return {"type": edit.type, "key": edit.key, "value": edit.value}


def listed_of(run: TaskRun) -> RunAnswer:
    """The run as a list has it."""
    return msgspec.structs.replace(answer_of(run), payload=None, output=None)


def answer_of(run: TaskRun) -> RunAnswer:
    """The run as it is answered."""
    since, waits = run.started_at, run.options.get("resumeParentOnCompletion") is True
    return RunAnswer(
        id=run.id,
        status=run.state,
        task_identifier=run.task,
        idempotency_key=run.idempotency_key,
        created_at=_time(run.created_at),
        updated_at=_time(run.updated_at),
        delayed_until=_time(run.available_at) if run.state == DELAYED else None,
        started_at=None if since is None else _time(since),
        finished_at=None if run.finished_at is None else _time(run.finished_at),
        tags=run.tags,
        metadata=run.metadata,
        payload=msgspec.json.decode(run.payload),
        output=None if run.output is None else msgspec.json.decode(run.output),
        error=None if run.error is None else {"name": "Error", "message": run.error},
        attempt_count=run.attempts,
        is_queued=run.state in (QUEUED, DELAYED),
        is_executing=run.state == EXECUTING,
        is_waiting=run.state == WAITING,
        is_completed=run.state in ENDED,
        is_success=run.state == COMPLETED,
        is_failed=run.state == FAILED,
        is_cancelled=run.state == CANCELED,
        is_test=run.options.get("test") is True,
        cost_in_cents=0.0,
        base_cost_in_cents=0.0,
        duration_ms=1000 * max(0.0, (run.finished_at or now()) - since) if since else 0.0,
        depth=int(run.parent_id is not None),
        trigger_function="triggerAndWait" if waits else "trigger",
        env={"id": run.environment, "name": run.environment},
        related_runs={},
        attempts=[],
        buffered=run.buffered_at is not None,
        parent_run_id=run.parent_id,
    )


def _time(moment: float) -> datetime:
    return datetime.fromtimestamp(min(moment, FOREVER), UTC)
