"""Batches over HTTP: in one request, or as the newer clients of trigger.dev send them, in two: the batch is announced,
and its items follow as lines. Each item is triggered by the rules of a single trigger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from .... import DataUnavailable, InvalidInput, SolelyError
from ....kit import KIB, READ, UNKNOWN, WRITE, Answer, Body, Call, Problem, Route, problem_of
from ..batch_table import BatchRun, TaskBatch
from ..model import TaskName, UserKey, stored_key_of
from ..runtime import TriggersRuntime
from .options import TaskTrigger, header_key, request_key, trigger_of
from .triggering import Options, TriggerAnswer, accept
from .uploads import find_upload, with_upload

MOST_ITEMS = 1_000  # of a batch, as trigger.dev has it
_CAP = 16 * 1024 * KIB  # bytes of a batch
_AT_ONCE = 50  # items of one batch that are triggered concurrently: they share round trips, and leave room for others
_AGAIN = "With a key of the batch, or the same id: the same runs. Otherwise, items without a key are other runs."


class BatchItem(Body, forbid_unknown_fields=False):
    """One trigger of a batch."""

    task: TaskName
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    options: Options = msgspec.field(default_factory=dict)


class BatchLine(BatchItem, kw_only=True):
    """One trigger of a batch, and its place in it."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=MOST_ITEMS)]


class BatchBody(Body, forbid_unknown_fields=False):
    """Triggers of several tasks."""

    items: Annotated[list[BatchItem], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]


class BatchPlan(Body, rename="camel", forbid_unknown_fields=False):
    """Announces a batch of so many items."""

    run_count: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)]
    idempotency_key: UserKey | None = None
    resume_parent_on_completion: bool = False


class BatchAnswer(Answer, rename="camel", omit_defaults=True):
    """The runs, in the order of the items. An item that was refused has an `error` and no id. `isCached`: a batch of
    the same key made them."""

    id: str
    run_count: int
    is_cached: bool
    runs: list[TriggerAnswer]
    idempotency_key: str | None = None


class OpenedBatch(Answer, rename="camel", omit_defaults=True):
    """The batch, whose items are to follow unless `isCached`: then a batch of the same key has its runs."""

    id: str
    run_count: int
    is_cached: bool
    idempotency_key: str | None = None


class SentItems(Answer, rename="camel"):
    """What became of the items. Unless the batch is `sealed`, items are missing, and none was accepted: send all."""

    id: str
    items_accepted: int
    items_deduplicated: int
    sealed: bool
    enqueued_count: int
    expected_count: int


class BatchDetails(Answer, rename="camel", omit_defaults=True):
    """A batch: COMPLETED once all of its runs have ended. `processing.errors` are of the items that were refused."""

    id: str
    status: Literal["PENDING", "COMPLETED"]
    created_at: datetime
    updated_at: datetime
    run_count: int
    runs: list[str]
    processing: dict[str, Any]
    idempotency_key: str | None = None


Item = TypeVar("Item", bound=BatchItem)


class BatchApi:
    """The handlers of batches, in the environment of the caller's token."""

    def __init__(self, app: TriggersRuntime) -> None:
        self._app = app

    # -- in one request

    async def trigger(self, call: Call[BatchBody, None]) -> BatchAnswer:
        """Trigger many tasks at once, each by the rules of a single trigger."""
        environment, key = self._app.environment_of(call.principal.name), header_key(call.header("idempotency-key"))
        stored = _batch_key(call, key)
        items = await self._with_uploads(call, call.body.items)
        self._checked(environment, "", items)
        batch = None
        with suppress(DataUnavailable):  # without SQL, the buffer still accepts triggers without a key
            batch = await self._app.batches.open(environment, len(items), stored)
        if batch is None and key:
            raise DataUnavailable("the key of this batch cannot be looked up: SQL is unreachable")
        if batch is not None and batch.runs is not None:
            return _cached(batch)
        id = "" if batch is None else batch.id
        found = await self._accept(self._checked(environment, id, items))
        if all(isinstance(each, Problem) for each in found):
            raise next(each for each in found if isinstance(each, Problem))
        runs = [_refused(item, each) for item, each in zip(items, found, strict=True)]
        if batch is not None:
            with suppress(DataUnavailable):
                await self._app.batches.seal(id, [_recorded(run) for run in runs])
        return BatchAnswer(id=id, run_count=len(runs), is_cached=False, runs=runs, idempotency_key=key or None)

    # -- in two requests

    async def open(self, call: Call[BatchPlan, None]) -> OpenedBatch:
        """Announce a batch, whose items follow."""
        plan, environment = call.body, self._app.environment_of(call.principal.name)
        if plan.resume_parent_on_completion:
            raise InvalidInput("a run can wait for one child at a time, not for a batch: trigger its items one by one")
        batch = await self._app.batches.open(environment, plan.run_count, _batch_key(call, plan.idempotency_key))
        cached = batch.runs is not None
        return OpenedBatch(
            id=batch.id, run_count=batch.run_count, is_cached=cached, idempotency_key=plan.idempotency_key
        )

    async def send(self, call: Call[list[BatchLine], None]) -> SentItems:
        """Trigger the items of a batch, one per line."""
        batch = await self._found(call)
        count, lines = batch.run_count, {line.index: line for line in call.body}
        if any(index >= count for index in lines):
            raise InvalidInput(f"the batch {batch.id} has {count} items; the index {max(lines)} is too great")
        if batch.runs is not None:
            return _sent(batch, [True] * count)
        if len(lines) < count:
            return SentItems(
                id=batch.id, items_accepted=0, items_deduplicated=0, sealed=False, enqueued_count=len(lines),
                expected_count=count,
            )  # fmt: skip
        items = await self._with_uploads(call, [lines[index] for index in range(count)])
        found = await self._accept(self._checked(batch.environment, batch.id, items))
        runs = []
        for each in found:
            if isinstance(each, Problem):
                raise each  # the client sends all again, and those that were accepted keep their ids
            runs.append(each)
        await self._app.batches.seal(batch.id, [_recorded(run) for run in runs])
        return _sent(batch, [run.is_cached for run in runs])

    async def read(self, call: Call[None, None]) -> BatchDetails:
        """Read a batch."""
        batch = await self._found(call)
        runs = batch.runs or []
        errors = [
            {"index": index, "taskIdentifier": run.task_identifier, "error": run.error}
            for index, run in enumerate(runs)
            if run.error
        ]
        return BatchDetails(
            id=batch.id,
            status="COMPLETED" if batch.runs is not None and await self._app.batches.ended(runs) else "PENDING",
            created_at=datetime.fromtimestamp(batch.created_at, UTC),
            updated_at=datetime.fromtimestamp(batch.updated_at, UTC),
            run_count=batch.run_count,
            runs=[run.id for run in runs if run.id],
            processing={"errors": errors},
            idempotency_key=batch.idempotency_key,
        )

    async def _found(self, call: Call[Any, Any]) -> TaskBatch:
        id = call.params["id"]
        for environment in self._app.environments_of(call.principal) if "\0" not in id else ():
            batch = await self._app.batches.find(environment, id)
            if batch is not None:
                return batch
        raise Problem(UNKNOWN, f"there is no batch {id!r:.80} in the environment of this token")

    # -- items

    async def _with_uploads(self, call: Call[Any, Any], items: Sequence[Item]) -> list[Item]:
        """The items with the payloads that were uploaded for them; raises InvalidInput if one is not there, or if they
        are larger than a batch may be."""
        found, size = [], 0
        for number, item in enumerate(items):
            try:
                upload = await find_upload(self._app, call.principal.name, item.payload, item.options)
            except InvalidInput as error:
                raise InvalidInput(f"items[{number}]: {error}") from None
            size += upload.size
            if size > _CAP:
                raise InvalidInput(f"the uploads of this batch have more than {_CAP} bytes; send smaller batches")
            options = with_upload(upload, item.options)
            found.append(msgspec.structs.replace(item, payload=upload.content, options=options))
        return found

    def _checked(self, environment: str, batch: str, items: Sequence[BatchItem]) -> list[TaskTrigger]:
        """The triggers; raises InvalidInput, which names the item, if one is invalid."""
        checked = []
        for number, item in enumerate(items):
            place = f"{batch}/{number}" if batch else ""
            try:
                trigger = trigger_of(self._app.settings, environment, item.task, item.payload, item.options, item=place)
            except InvalidInput as error:
                raise InvalidInput(f"items[{number}]: {error}") from None
            checked.append(trigger)
        return checked

    async def _accept(self, triggers: Sequence[TaskTrigger]) -> list[TriggerAnswer | Problem]:
        """The answers, in order; a Problem for each trigger that was refused."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(each: TaskTrigger) -> TriggerAnswer | Problem:
            async with slots:
                try:
                    return await accept(self._app, each)
                except Problem as refusal:
                    return refusal
                except SolelyError as error:
                    return problem_of(error)

        return list(await asyncio.gather(*(one(each) for each in triggers)))


def _batch_key(call: Call[Any, Any], key: str | None) -> str | None:
    """The stored key of the batch: the caller's, or that of the request and its retries; None if it has neither."""
    retried = request_key(call)
    return stored_key_of(key or f"sha256:request:{retried}") if key or retried else None


def _refused(item: BatchItem, found: TriggerAnswer | Problem) -> TriggerAnswer:
    if isinstance(found, TriggerAnswer):
        return found
    return TriggerAnswer(id="", is_cached=False, buffered=False, task_identifier=item.task, error=str(found))


def _recorded(run: TriggerAnswer) -> BatchRun:
    return BatchRun(run.id, run.task_identifier, run.is_cached, run.error)


def _cached(batch: TaskBatch) -> BatchAnswer:
    runs = [
        TriggerAnswer(id=run.id, is_cached=True, buffered=False, task_identifier=run.task_identifier, error=run.error)
        for run in batch.runs or ()
    ]
    return BatchAnswer(
        id=batch.id, run_count=batch.run_count, is_cached=True, runs=runs, idempotency_key=batch.idempotency_key
    )


def _sent(batch: TaskBatch, cached: list[bool]) -> SentItems:
    count, known = batch.run_count, sum(cached)
    return SentItems(
        id=batch.id, items_accepted=count - known, items_deduplicated=known, sealed=True, enqueued_count=count,
        expected_count=count,
    )  # fmt: skip


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes of batches."""
    api = BatchApi(app)
    given: Any = {"error_field": True, "again": _AGAIN}
    large: Any = {"cap": _CAP, "over_max_body": True, **given}
    return [
        *(Route("POST", f"/api/{v}/tasks/batch", WRITE, api.trigger, **large) for v in ("v1", "v2")),
        Route("POST", "/api/v3/batches", WRITE, api.open, **given),
        Route("POST", "/api/v3/batches/{id}/items", WRITE, api.send, lines=True, refusals=(UNKNOWN,), **large),
        *(
            Route("GET", f"/api/{v}/batches/{{id}}", READ, api.read, refusals=(UNKNOWN,), error_field=True)
            for v in ("v1", "v2")
        ),
    ]
