"""Subscriptions of trigger.dev's client to a run: the part of Electric's shape protocol that it uses. A shape has one
row, the run; its offset names the version of the run, so that the service keeps nothing about subscribers.

The client waits for ever after a 404, but raises an error, with the metadata in its text, for a row whose metadata are
said to be in the object store. So it gets each refusal as such a row."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from ....kit import READ, UNKNOWN, Answer, Body, Call, JsonResponse, Problem, Route
from ..lists import FOREVER
from ..model import (
    CANCELED,
    COMPLETED,
    DELAYED,
    EXECUTING,
    FAILED,
    QUEUED,
    WAITING,
    TaskRun,
    json_text,
    now,
    version_of,
)
from ..runtime import TriggersRuntime

HOLD = 20.0  # seconds that a subscriber waits for a change in one request, as Electric has it
_POLL = 1.0  # seconds between looks for a change: people watch
_JSON = "application/json"
_CLIENT = "x-trigger-electric-version"  # a header of trigger.dev's client alone
_STATUS = {
    QUEUED: "PENDING",
    DELAYED: "DELAYED",
    EXECUTING: "EXECUTING",
    WAITING: "WAITING_TO_RESUME",
    COMPLETED: "COMPLETED_SUCCESSFULLY",
    FAILED: "COMPLETED_WITH_ERRORS",
    CANCELED: "CANCELED",
}
_Text = Annotated[str, msgspec.Meta(max_length=2048)]


class ShapeQuery(Body, forbid_unknown_fields=False):
    """`offset`: that of the last response. `live` waits for a change since. `skipColumns` are separated by commas."""

    offset: _Text = "-1"
    live: bool = False
    skip_columns: _Text = msgspec.field(default="", name="skipColumns")


class ShapeMessage(Answer, omit_defaults=True):
    """The run as a row, or that it is up to date. Moments are ISO texts in UTC; JSON is text."""

    headers: dict[str, str]
    key: str = ""
    value: dict[str, Any] | None = None


def routes(app: TriggersRuntime) -> list[Route]:
    """The route of subscriptions."""

    async def subscribe(call: Call[None, ShapeQuery]) -> list[ShapeMessage] | JsonResponse:
        """Subscribe to a run in Electric's shape protocol: reads the run, or waits until it has changed."""
        id, query, wait = call.params["id"], call.query, min(HOLD, call.service.settings.max_wait)
        try:
            run = await app.find(call.principal, id)
        except Problem as refusal:
            return _refused(call, refusal)
        if query.live and version_of(run) == query.offset:
            await call.waiting(_change(app, run, wait))
            run = await app.find(call.principal, id)
        version, skipped = version_of(run), query.skip_columns.split(",")
        row = {name: value for name, value in _row(run).items() if name not in skipped}
        return _shape(run.id, version, None if query.live and version == query.offset else row)

    async def refuse(call: Call[None, ShapeQuery]) -> list[ShapeMessage] | JsonResponse:
        """Subscriptions to tags and batches are not offered: subscribe to a run."""
        return _refused(call, Problem(UNKNOWN, "subscribe to single runs: tags and batches are not offered"))

    given: Any = {"refusals": (UNKNOWN,), "error_field": True}
    return [
        Route("GET", "/realtime/v1/runs/{id}", READ, subscribe, waits=True, **given),
        *(Route("GET", f"/realtime/v1/{each}", READ, refuse, **given) for each in ("runs", "batches/{id}")),
    ]


def _refused(call: Call[None, ShapeQuery], refusal: Problem) -> JsonResponse:
    """The refusal as a row for the client, once; raises it otherwise."""
    if call.query.live or not call.header(_CLIENT):
        raise refusal
    row = _row(TaskRun(id="none", environment="", task=""))
    return _shape("none", "0_0", {**row, "metadata": str(refusal), "metadataType": "application/store"})


async def _change(app: TriggersRuntime, run: TaskRun, wait: float) -> None:
    """Returns when the run has changed, or after so many seconds."""
    ends, known = time.monotonic() + wait, version_of(run)
    while (left := ends - time.monotonic()) > 0:
        await asyncio.sleep(min(_POLL, left))
        if await app.table.version(run.environment, run.id) not in (None, known):  # None: it is still in the buffer
            return


def _shape(id: str, version: str, row: dict[str, Any] | None) -> JsonResponse:
    messages = [ShapeMessage(headers={"control": "up-to-date"})]
    if row is not None:
        messages.insert(0, ShapeMessage(headers={"operation": "insert"}, key=id, value=row))
    headers = {"handle": id, "offset": version, "cursor": f"{now():.0f}", "schema": "{}", "up-to-date": "true"}
    pairs = tuple((f"electric-{name}".encode(), value.encode()) for name, value in headers.items())
    return JsonResponse(200, messages, pairs)


def _row(run: TaskRun) -> dict[str, Any]:
    """The run as the client reads it from Electric, with values of JSON instead of texts: the schema is empty."""
    ended, error = run.finished_at, run.error
    kind = {"type": "BUILT_IN_ERROR", "name": "Error", "stackTrace": ""}
    return {
        "id": run.id,
        "friendlyId": run.id,
        "taskIdentifier": run.task,
        "status": _STATUS[run.state],
        "createdAt": _moment(run.created_at),
        "updatedAt": _moment(run.updated_at),
        "startedAt": _moment(run.started_at),
        "delayUntil": _moment(run.available_at) if run.state == DELAYED else None,
        "completedAt": _moment(ended),
        "idempotencyKey": run.idempotency_key,
        "number": 0,
        "isTest": run.options.get("test") is True,
        "usageDurationMs": 1000 * max(0.0, ended - run.started_at) if ended and run.started_at else 0.0,
        "costInCents": 0.0,
        "baseCostInCents": 0.0,
        "payload": run.payload,
        "payloadType": _JSON,
        "metadata": json_text(run.metadata),
        "metadataType": _JSON,
        "output": run.output,
        "outputType": _JSON,
        "runTags": run.tags,
        "error": None if error is None else {**kind, "message": error},
    }


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(min(at, FOREVER), UTC).replace(tzinfo=None).isoformat()
