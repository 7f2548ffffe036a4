"""Triggers over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from .... import Mismatch
from ....kit import KIB, WRITE, Answer, Body, Call, Route
from ..figures import MISMATCHES
from ..pipeline import Triggered
from ..runtime import TriggersRuntime
from .options import TaskTrigger, request_key, trigger_of
from .uploads import find_upload, with_upload

_CAP = 4 * 1024 * KIB  # bytes of a trigger: payloads of trigger.dev may have 3 MiB
_AGAIN = "With a key: the same run id. Without one: another run."

Options = dict[str, Any]


class TriggerBody(Body, forbid_unknown_fields=False):
    """A trigger as trigger.dev's client sends it. `payload` is any JSON; see the documentation for `options`."""

    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    options: Options = msgspec.field(default_factory=dict)


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


async def accept(app: TriggersRuntime, trigger: TaskTrigger) -> TriggerAnswer:
    """The answer to a checked trigger; raises as `Pipeline.trigger`, and Mismatch if the settings refuse another
    payload."""
    return _answer(app, trigger, await app.pipeline.trigger(trigger.run, waits=trigger.waits))


def routes(app: TriggersRuntime) -> list[Route]:
    """The route of a trigger."""

    async def trigger(call: Call[TriggerBody, None]) -> TriggerAnswer:
        """Trigger a task: the same idempotency key gets the same run id, always."""
        environment = app.environment_of(call.principal.name)
        given, header, task = call.body, call.header("idempotency-key"), call.params["task"]
        retried = request_key(call)  # by the client itself: the same run, also without a key
        item = f"{environment}/{task}/{retried}" if retried else ""
        upload = await find_upload(app, call.principal.name, given.payload, given.options)
        options = with_upload(upload, given.options)
        made = trigger_of(app.settings, environment, task, upload.content, options, header, item)
        return await accept(app, made)

    given: Any = {"again": _AGAIN, "over_max_body": True, "error_field": True}
    return [Route("POST", "/api/v1/tasks/{task}/trigger", WRITE, trigger, cap=_CAP, **given)]


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
