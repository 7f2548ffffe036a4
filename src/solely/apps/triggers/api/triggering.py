"""Triggers over HTTP: one, or many at once."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Any

import msgspec

from .... import InvalidInput, Mismatch, SolelyError
from ....kit import KIB, WRITE, Answer, Body, Call, Problem, Route, problem_of
from ..figures import MISMATCHES
from ..model import TaskName
from ..pipeline import Triggered
from ..runtime import TriggersRuntime
from .options import TaskTrigger, trigger_of

_CAP = 4 * 1024 * KIB  # bytes of a trigger: payloads of trigger.dev may have 3 MiB
_BATCH_CAP = 16 * 1024 * KIB  # bytes of a batch
MOST_ITEMS = 500  # of a batch, as trigger.dev has it
_AT_ONCE = 50  # items of one batch that are triggered concurrently: they share round trips, and leave room for others
_AGAIN = "With a key: the same run id. Without one: another run."

Options = dict[str, Any]


class TriggerBody(Body, forbid_unknown_fields=False):
    """A trigger as trigger.dev's client sends it. `payload` is any JSON; see the documentation for `options`."""

    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    options: Options = msgspec.field(default_factory=dict)


class BatchItem(Body, forbid_unknown_fields=False):
    """One trigger of a batch."""

    task: TaskName
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    options: Options = msgspec.field(default_factory=dict)


class BatchBody(Body, forbid_unknown_fields=False):
    """Triggers of several tasks."""

    items: Annotated[list[BatchItem], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]


class TriggerAnswer(Answer, rename="camel", omit_defaults=True):
    """The run. `isCached`: an earlier trigger of the same key made it. `buffered`: it was accepted in a burst, and is
    stored in a moment; it can be read and changed at once. `payloadMismatch`: that trigger had another payload."""

    id: str
    is_cached: bool
    buffered: bool
    task_identifier: str = ""
    payload_mismatch: bool = False
    idempotency_key: str = ""
    error: str = ""


class BatchAnswer(Answer, rename="camel"):
    """The runs, in the order of the items. An item that was refused has an `error` and no id."""

    id: str
    run_count: int
    runs: list[TriggerAnswer]


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes below /api/v1/tasks."""

    async def accepted(trigger: TaskTrigger) -> TriggerAnswer:
        run = trigger.run
        return _answer(app, trigger, await app.pipeline.trigger(run, waits=trigger.waits))

    async def trigger(call: Call[TriggerBody, None]) -> TriggerAnswer:
        """Trigger a task: the same idempotency key gets the same run id, always."""
        environment = app.environment_of(call.principal.name)
        given, header = call.body, call.header("idempotency-key")
        task = call.params["task"]
        return await accepted(trigger_of(app.settings, environment, task, given.payload, given.options, header))

    async def batch(call: Call[BatchBody, None]) -> BatchAnswer:
        """Trigger many tasks at once, each by the rules of a single trigger."""
        if call.header("idempotency-key"):
            raise InvalidInput("a batch has no key of its own; give each item its options.idempotencyKey")
        environment, slots = app.environment_of(call.principal.name), asyncio.Semaphore(_AT_ONCE)
        wanted = [_item(app, environment, number, each) for number, each in enumerate(call.body.items)]

        async def one(each: TaskTrigger) -> TriggerAnswer | Problem:
            async with slots:
                try:
                    return await accepted(each)
                except Problem as refusal:
                    return refusal
                except SolelyError as error:
                    return problem_of(error)

        found = await asyncio.gather(*(one(each) for each in wanted))
        if all(isinstance(each, Problem) for each in found):
            raise next(each for each in found if isinstance(each, Problem))
        runs = [_refused(trigger, each) for trigger, each in zip(wanted, found, strict=True)]
        return BatchAnswer(id=f"batch_{secrets.token_hex(12)}", run_count=len(runs), runs=runs)

    given: Any = {"again": _AGAIN, "over_max_body": True}
    return [
        Route("POST", "/api/v1/tasks/batch", WRITE, batch, cap=_BATCH_CAP, **given),
        Route("POST", "/api/v1/tasks/{task}/trigger", WRITE, trigger, cap=_CAP, **given),
    ]


def _item(app: TriggersRuntime, environment: str, number: int, item: BatchItem) -> TaskTrigger:
    try:
        return trigger_of(app.settings, environment, item.task, item.payload, item.options)
    except InvalidInput as error:
        raise InvalidInput(f"items[{number}]: {error}") from None


def _answer(app: TriggersRuntime, trigger: TaskTrigger, found: Triggered) -> TriggerAnswer:
    run = trigger.run
    differs = found.cached and found.digest != run.payload_digest
    if differs:
        app.service.metrics.count(MISMATCHES)
        if app.settings.on_mismatch == "refuse":
            key = run.idempotency_key or ""
            raise Mismatch(f"run {found.id} of this key has another payload; use another key", key=key)
    return TriggerAnswer(
        id=found.id,
        is_cached=found.cached,
        buffered=found.buffered,
        task_identifier=run.task,
        payload_mismatch=differs,
        idempotency_key=run.idempotency_key or "",
    )


def _refused(trigger: TaskTrigger, found: TriggerAnswer | Problem) -> TriggerAnswer:
    if isinstance(found, TriggerAnswer):
        return found
    run = trigger.run
    return TriggerAnswer(id="", is_cached=False, buffered=False, task_identifier=run.task, error=str(found))
