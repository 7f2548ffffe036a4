"""The Python worker at a real service: what its tasks get, and what becomes of their runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from solely import InvalidInput, LeaseLost, PermanentFailure, Postpone, Retry, StoreDenied, StoreUnavailable
from solely.apps.triggers.work import RunAttempt, TaskWorker
from solely.apps.triggers.work.tasks import Tasks
from solely.http import Client
from tests.apps.operator import operating
from tests.apps.triggers.test_work_http import Desk
from tests.service.serving import TOKENS, until

SOON = 30.0  # seconds in which a run ends even on a busy machine


class Order(msgspec.Struct):
    number: int
    tags: list[str] = []


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with operating("triggers", {"retry_first": 0.01, "max_attempts": 2}) as it:
        yield Desk(it.service)


@contextmanager
def working(
    desk: Desk, tasks: Tasks, *, grace: float = SOON, client: type[Client] = Client, **options: Any
) -> Iterator[TaskWorker]:
    """A worker on threads of the test."""
    with client(desk.service.address, token=TOKENS["write"]) as service:
        worker = TaskWorker(service, tasks, **{"at_once": 2, "name": "tester", "wait": 0.2, **options})
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield worker
        finally:
            stopped = worker.stop(grace)
            thread.join(SOON)
            assert stopped


def ended(desk: Desk, id: str) -> Any:
    """The run, once it has ended."""
    return until(lambda: (seen := desk.run(id))["ended"] and seen, SOON)


def is_executing(desk: Desk, id: str) -> bool:
    return bool(desk.run(id)["run"]["state"] == "EXECUTING")


def test_tasks_get_their_payload_and_return_the_output(desk: Desk) -> None:
    task = Tasks()

    @task("plain")
    def plain(payload: Any) -> Any:
        return {"got": payload}

    @task("typed")
    def typed(order: Order, run: RunAttempt) -> list[Any]:
        run.ensure()
        return [order.number, run.id, run.attempt, run.max_attempts, run.key, run.tags, run.metadata]

    @task("async")
    async def later(payload: str) -> str:
        await asyncio.sleep(0)
        return payload.upper()

    class Called:
        async def __call__(self, payload: Order) -> int:
            return payload.number

    task("object")(Called())
    task("lambda")(lambda payload: later(payload))
    ids = [
        desk.trigger("plain", [1, None]),
        desk.trigger("typed", {"number": 7}, idempotencyKey="k", tags=["t"], metadata={"m": 1}),
        desk.trigger("async", "text"),
        desk.trigger("object", {"number": 8}),
        desk.trigger("lambda", "short"),
    ]
    with working(desk, task):
        found = [ended(desk, id) for id in ids]
    assert [each["run"]["state"] for each in found] == ["COMPLETED"] * 5
    assert [each["output"] for each in found] == [
        {"got": [1, None]}, [7, ids[1], 1, 2, "k", ["t"], {"m": 1}], "TEXT", 8, "SHORT",
    ]  # fmt: skip
    assert [each["attempts"][0]["worker"] for each in found] == ["tester"] * 5
    assert plain(5) == {"got": 5}  # a task stays a function


def test_what_a_task_raises_decides_about_its_run(desk: Desk) -> None:
    task, times = Tasks(), dict[str, int]()

    def raising(name: str, *errors: BaseException) -> str:
        """A task that raises these one after the other, and then returns."""

        @task(name)
        def perform(payload: Any) -> str:
            done = times[name] = times.get(name, 0) + 1
            if done <= len(errors):
                raise errors[done - 1]
            return "ok"

        return desk.trigger(name)

    @task("invalid")
    def invalid(payload: Order) -> None:
        raise AssertionError("it is not called")

    @task("unsendable")
    def unsendable(payload: Any) -> object:
        times["unsendable"] = times.get("unsendable", 0) + 1
        return object()

    expected = {
        raising("retried", Retry("busy", after=0.01)): ("COMPLETED", 2, None),
        raising("postponed", *[Postpone("away", after=0.01)] * 4): ("COMPLETED", 1, None),
        raising("permanent", PermanentFailure("no such user")): ("FAILED", 1, "no such user"),
        raising("unlucky", ValueError("first"), ValueError("second")): ("FAILED", 2, "ValueError: second"),
        raising("exits", SystemExit(3)): ("COMPLETED", 2, None),
        desk.trigger("invalid", {}): ("FAILED", 1, "missing required field `number`"),
        desk.trigger("unsendable"): ("FAILED", 1, "the output was not accepted"),
    }
    with working(desk, task):
        for id, (state, attempts, error) in expected.items():
            run = ended(desk, id)["run"]
            assert (run["state"], run["attempts"]) == (state, attempts), run
            assert (run["error"] or "").find(error or "") >= 0, run
    assert times["unsendable"] == 1  # what was done is not repeated


def test_a_lease_is_renewed_while_the_task_runs(desk: Desk) -> None:
    task, go = Tasks(), threading.Event()

    @task("long")
    def long(payload: Any) -> str:
        assert go.wait(SOON)
        return "in the end"

    id = desk.trigger("long")
    with working(desk, task, lease=1.0):
        first = until(lambda: desk.run(id)["lease_until"], SOON)
        until(lambda: (desk.run(id)["lease_until"] or 0) > first + 1.5, SOON)  # beyond the first lease
        assert desk.take("long") is None
        go.set()
        found = ended(desk, id)
    assert (found["output"], found["run"]["attempts"]) == ("in the end", 1)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), msgspec.DecodeError("the page of a proxy")])
def test_renewals_go_on_after_one_of_them_failed(desk: Desk, error: Exception) -> None:
    task, go, failures = Tasks(), threading.Event(), [error]

    class FailingClient(Client):
        def post(self, path: str, *others: Any, **more: Any) -> Any:
            if path.endswith("/heartbeat") and failures:
                raise failures.pop()
            return super().post(path, *others, **more)

    @task("steady")
    def steady(payload: Any) -> None:
        assert go.wait(SOON)

    id = desk.trigger("steady")
    with working(desk, task, client=FailingClient, lease=1.5):
        first = until(lambda: desk.run(id)["lease_until"], SOON)
        until(lambda: (desk.run(id)["lease_until"] or 0) > first, SOON)
        assert failures == []
        go.set()
        assert ended(desk, id)["run"]["state"] == "COMPLETED"


def test_an_attempt_that_takes_longer_than_its_max_hold_is_given_up(desk: Desk) -> None:
    task, given_up = Tasks(), list[bool]()

    @task("hangs", max_hold=0.1)
    async def hangs(payload: Any) -> None:
        await asyncio.sleep(3600)

    @task("stuck", max_hold=0.1)
    def stuck(payload: Any, run: RunAttempt) -> None:
        while not run.lost:
            time.sleep(0.01)
        given_up.append(run.overdue)
        raise Retry("too slow")

    ids = [desk.trigger("hangs"), desk.trigger("stuck")]
    with working(desk, task, lease=1.0):
        found = [ended(desk, id)["run"] for id in ids]
    assert [(run["state"], run["attempts"]) for run in found] == [("FAILED", 2)] * 2
    assert "longer than the max_hold" in found[0]["error"]
    assert given_up == [True, True]


def test_a_canceled_run_ends_its_task_and_keeps_its_state(desk: Desk) -> None:
    task, seen = Tasks(), dict[str, Any]()

    @task("waits")
    async def waits(payload: Any, run: RunAttempt) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            seen["async"] = run.canceled

    @task("loops")
    def loops(payload: Any, run: RunAttempt) -> None:
        while not run.lost:
            time.sleep(0.01)
        with pytest.raises(LeaseLost, match="was canceled"):
            run.ensure()
        seen["sync"] = run.canceled

    ids = [desk.trigger("waits"), desk.trigger("loops")]
    with working(desk, task, lease=1.0):
        for id in ids:
            until(partial(is_executing, desk, id), SOON)
            assert desk.post("/api/triggers/cancel", {"id": id}, "write").json() == {"canceled": True}
        until(lambda: len(seen) == 2, SOON)
    assert seen == {"async": True, "sync": True}
    assert [desk.run(id)["run"]["state"] for id in ids] == ["CANCELED"] * 2


def test_a_worker_that_stops_finishes_its_runs_or_gives_them_back(desk: Desk) -> None:
    task, begun, go = Tasks(), threading.Barrier(3), threading.Event()

    @task("brief")
    def brief(payload: Any) -> str:
        begun.wait(SOON)
        assert go.wait(SOON)
        return "finished"

    @task("endless")
    async def endless(payload: Any) -> None:
        begun.wait(SOON)
        await asyncio.sleep(3600)

    brief_id, endless_id = desk.trigger("brief"), desk.trigger("endless")
    with working(desk, task, grace=0.5) as worker:
        begun.wait(SOON)
        worker.end()
        go.set()
        ended(desk, brief_id)
    assert desk.run(brief_id)["output"] == "finished"
    back = desk.run(endless_id)
    assert (back["run"]["state"], back["run"]["attempts"], back["attempts"][0]["outcome"]) == ("QUEUED", 0, "released")


def test_a_worker_without_a_valid_token_says_so(desk: Desk) -> None:
    task = Tasks()
    task("any")(lambda payload: None)
    with Client(desk.service.address, token="wrong") as client, pytest.raises(StoreDenied):
        TaskWorker(client, task).run()


def test_a_worker_can_stop_when_nothing_is_due(desk: Desk) -> None:
    task = Tasks()
    task("drained")(lambda payload: payload)
    ids = [desk.trigger("drained", number) for number in range(10)]
    with Client(desk.service.address, token=TOKENS["write"]) as client:
        TaskWorker(client, task).run(until_empty=True)
    assert [desk.run(id)["output"] for id in ids] == list(range(10))


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda: None, "must take"),
        (lambda payload, run, more: None, "must take"),
        (lambda *payload: None, "must take"),
    ],
)
def test_a_function_that_cannot_be_a_task_is_refused(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Tasks()("name")(function)


def test_a_payload_type_that_is_not_there_at_run_time_is_refused() -> None:
    def perform(payload: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - what is tested

    with pytest.raises(InvalidInput, match="cannot be resolved: name 'Missing'"):
        Tasks()("name")(perform)


def test_a_task_needs_a_name_of_its_own() -> None:
    task = Tasks()
    for name in ("", "x" * 200, lambda payload: None):
        with pytest.raises(InvalidInput, match="not the name of a task"):
            task(name)  # type: ignore[arg-type]  # what a caller may try
    task("one")(lambda payload: 1)
    with pytest.raises(InvalidInput, match="two functions are the task 'one'"):
        task("one")(lambda payload: 2)
