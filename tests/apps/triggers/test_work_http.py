"""Workers over HTTP: they take runs, renew their leases, and report what became of them."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from solely.apps.triggers.api.work import WorkApi
from solely.apps.triggers.work.wire import TakeRun
from tests.apps.operator import Operator, operating
from tests.service.serving import LINES, TOKENS, bearer, until

STAGING = "staging-token-of-these-tests"
LINE = f"stager:write:{hashlib.sha256(STAGING.encode()).hexdigest()}"


class Desk(Operator):
    """Triggers runs, and works on them."""

    def trigger(self, task: str, payload: Any = None, **options: Any) -> str:
        """The id of a new run."""
        answer = self.post(f"/api/v1/tasks/{task}/trigger", {"payload": payload, "options": options}, "write")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def take(self, *tasks: str, **options: Any) -> Any:
        """What was taken, or None."""
        answer = self.post("/api/v1/workers/take", {"tasks": list(tasks), **options}, "write")
        assert answer.status_code == 200, answer.text
        return answer.json()["run"]

    def settle(self, run: dict[str, Any], how: str, **body: Any) -> httpx2.Response:
        return self.post(f"/api/v1/runs/{run['id']}/{how}", {"token": run["token"], **body}, "write")

    def run(self, id: str) -> Any:
        return self.ask(f"/api/triggers/runs/{id}")


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    settings = {"environments": {"stager": "staging"}, "retry_first": 0.01}
    with operating("triggers", settings, tokens=(*LINES, LINE)) as it:
        yield Desk(it.service)


def test_a_worker_takes_a_run_and_completes_it(desk: Desk) -> None:
    id = desk.trigger("greet", {"name": "Ann"}, tags=["a", "b"], metadata={"n": 1}, idempotencyKey="greet-1")
    run = desk.take("greet", worker="w1", lease=20)
    assert run == {
        "id": id, "task": "greet", "payload": {"name": "Ann"}, "attempt": 1, "maxAttempts": 3, "token": run["token"],
        "left": 20.0, "idempotencyKey": "greet-1", "tags": ["a", "b"], "metadata": {"n": 1},
    }  # fmt: skip
    assert desk.take("greet") is None
    done = desk.settle(run, "complete", output={"greeted": True})
    assert (done.status_code, done.json()) == (200, {"id": id, "state": "COMPLETED", "attempt": 1, "retryAt": None})
    read = desk.ask(f"/api/v3/runs/{id}")
    assert (read["status"], read["output"], read["attemptCount"]) == ("COMPLETED", {"greeted": True}, 1)
    assert desk.settle(run, "complete", output="again").json()["state"] == "COMPLETED"
    assert desk.ask(f"/api/v3/runs/{id}")["output"] == {"greeted": True}


def test_a_failed_attempt_is_retried_and_then_failed_for_good_with_all_attempts_in_its_timeline(desk: Desk) -> None:
    id = desk.trigger("broken", maxAttempts=2)
    first = desk.take("broken", worker="w1")
    failed = desk.settle(first, "fail", error="no\u0000disk").json()
    assert (failed["state"], failed["retryAt"] is not None) == ("DELAYED", True)
    second = until(lambda: desk.take("broken", worker="w2"))
    assert (second["id"], second["attempt"]) == (id, 2)
    assert second["token"] != first["token"]
    assert desk.settle(second, "fail", error="still no disk").json()["state"] == "FAILED"
    seen = desk.run(id)
    assert seen["run"]["error"] == "still no disk"
    assert [(each["number"], each["worker"], each["outcome"]) for each in seen["attempts"]] == [
        (1, "w1", "retried"), (2, "w2", "failed"),
    ]  # fmt: skip
    assert [each["kind"] for each in seen["timeline"]] == ["triggered", "taken", "retried", "taken", "failed"]
    assert desk.take("broken") is None


def test_a_permanent_failure_and_a_delay_of_the_callers_own_are_heeded(desk: Desk) -> None:
    later, never = desk.trigger("heeded"), desk.trigger("heeded")
    runs = {run["id"]: run for run in (desk.take("heeded"), desk.take("heeded"))}
    answer = desk.settle(runs[later], "fail", error="busy", delay=3600).json()
    assert answer["retryAt"] - desk.run(later)["run"]["created_at"] >= 3600
    assert desk.settle(runs[never], "fail", error="no such user", retry=False).json()["state"] == "FAILED"


def test_a_run_that_is_given_back_is_taken_again_with_the_same_attempt(desk: Desk) -> None:
    id = desk.trigger("back", maxAttempts=1)
    assert desk.settle(desk.take("back"), "release").json()["state"] == "QUEUED"
    again = desk.take("back")
    assert (again["id"], again["attempt"]) == (id, 1)


def test_a_heartbeat_says_of_each_run_whether_it_is_still_the_workers(desk: Desk) -> None:
    kept, canceled = desk.trigger("beat"), desk.trigger("beat")
    runs = {run["id"]: run for run in (desk.take("beat"), desk.take("beat"))}
    assert desk.post(f"/api/v2/runs/{canceled}/cancel", {}).status_code == 200
    beating = [{"id": id, "token": runs[id]["token"]} for id in (kept, canceled)]
    beating += [{"id": kept, "token": "0" * 32}, {"id": "run_never", "token": "0" * 32}]
    states = desk.post("/api/v1/workers/heartbeat", {"runs": beating, "lease": 120}).json()["runs"]
    assert [(each["id"], each["state"]) for each in states] == [
        (kept, "EXECUTING"), (canceled, "CANCELED"), (kept, "EXECUTING"), ("run_never", ""),
    ]  # fmt: skip
    assert states[0]["left"] == pytest.approx(120, abs=5)
    assert [each["left"] for each in states[1:]] == [None] * 3
    refused = desk.settle(runs[canceled], "complete")
    assert (refused.status_code, refused.json()["type"].rpartition("#")[2]) == (410, "lost")
    assert "it is canceled" in refused.json()["detail"]
    (attempt,) = desk.run(canceled)["attempts"]
    assert attempt["outcome"] == "canceled"


def test_a_take_waits_and_is_woken_by_a_trigger(desk: Desk) -> None:
    taken: list[Any] = []
    waiting = threading.Thread(target=lambda: taken.append(desk.take("late", wait=30)))
    waiting.start()
    until(lambda: desk.service.service.waiters.now["writeer"])
    id = desk.trigger("late")
    waiting.join(30)
    assert [run["id"] for run in taken] == [id]


def test_a_caller_that_went_away_while_it_waited_takes_nothing(desk: Desk) -> None:
    body = b'{"tasks": ["left"], "wait": 30}'
    head = f"POST /api/v1/workers/take HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKENS['admin']}\r\n"
    with desk.service.connect() as connection:
        connection.sendall(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        until(lambda: desk.service.service.waiters.now["adminer"])
    until(lambda: not desk.service.service.waiters.now["adminer"])
    id = desk.trigger("left")
    taken = desk.take("left")
    assert (taken["id"], taken["attempt"]) == (id, 1)


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30, 100, 300, 1000])
def test_a_take_that_is_cancelled_at_any_point_leaves_nothing_leased(desk: Desk, turns: int) -> None:
    id, task = desk.trigger(f"cancelled-{turns}"), f"cancelled-{turns}"
    app: Any = desk.service.service.apps["triggers"]

    async def cancelled() -> Any:
        taking = asyncio.create_task(WorkApi(app)._take("default", TakeRun(tasks=[task]), 0.0))
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        return (await asyncio.gather(taking, return_exceptions=True))[0]

    taken = desk.service.run(cancelled())
    run = desk.run(id)["run"]
    if isinstance(taken, asyncio.CancelledError):
        assert (run["state"], run["attempts"]) == ("QUEUED", 0)
    else:
        assert (taken["id"], run["state"]) == (id, "EXECUTING")


def test_a_worker_of_another_environment_sees_nothing_of_it(desk: Desk) -> None:
    id = desk.trigger("apart")
    taken = desk.post("/api/v1/workers/take", {"tasks": ["apart"]}, "write").json()["run"]
    stager = {"headers": bearer(STAGING)}
    body = {"token": taken["token"]}
    assert desk.service.post(f"/api/v1/runs/{id}/complete", body, **stager).status_code == 404
    assert desk.service.post("/api/v1/workers/take", {"tasks": ["apart"]}, **stager).json() == {"run": None}
    assert desk.service.get(f"/api/triggers/runs/{id}", **stager).status_code == 404
    there = desk.service.post("/api/v1/tasks/apart/trigger", {"payload": 1}, **stager).json()["id"]
    assert desk.service.post("/api/v1/workers/take", {"tasks": ["apart"]}, **stager).json()["run"]["id"] == there


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/workers/take", {"tasks": []}, 400),
        ("/api/v1/workers/take", {"tasks": ["a"], "lease": 0.1}, 400),
        ("/api/v1/workers/take", {"tasks": ["a"], "token": "short"}, 400),
        ("/api/v1/workers/take", {"tasks": ["a"], "wait": 1e6}, 400),
        ("/api/v1/workers/heartbeat", {"runs": [{"id": "x"}]}, 400),
        ("/api/v1/runs/run_none/complete", {"token": "0" * 32}, 404),
        ("/api/v1/runs/%00/fail", {"token": "0" * 32, "error": "x"}, 404),
        ("/api/v1/runs/run_none/fail", {"error": "x"}, 400),
        ("/api/v1/runs/run_none/release", {"token": "0" * 32, "delay": -1}, 400),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(desk: Desk, path: str, body: dict[str, Any], status: int) -> None:
    refused = desk.post(path, body, "write")
    assert refused.status_code == status, refused.text
    assert refused.json()["detail"]


def test_who_may_only_look_takes_nothing(desk: Desk) -> None:
    assert desk.post("/api/v1/workers/take", {"tasks": ["greet"]}, "read").status_code == 403


def test_attempts_are_counted_by_outcome(desk: Desk) -> None:
    desk.trigger("counted", maxAttempts=1)
    desk.settle(desk.take("counted"), "fail", error="once")
    text = desk.get("/metrics").text
    assert 'solely_triggers_attempts_total{outcome="failed"}' in text
    assert "solely_triggers_queue_seconds_count" in text


def test_a_run_is_replayed_under_a_new_key_once_per_key(desk: Desk) -> None:
    id = desk.trigger("again", {"n": 7}, idempotencyKey="order-7", tags=["t"], maxAttempts=1)
    desk.settle(desk.take("again"), "fail", error="down")
    new = desk.post("/api/v1/runs/" + id + "/replay", {}, "write").json()
    other = desk.post("/api/triggers/replay", {"id": id, "new_key": "order-7-again"}, "write").json()
    assert len({id, new["id"], other["id"]}) == 3
    assert (new["isCached"], other["isCached"]) == (False, False)
    same = desk.post("/api/triggers/replay", {"id": id, "new_key": "order-7-again"}, "write").json()
    assert (same["id"], same["isCached"]) == (other["id"], True)
    seen = desk.run(other["id"])
    assert (seen["replay_of"], seen["payload"], seen["run"]["key"], seen["run"]["tags"]) == (
        id, {"n": 7}, "order-7-again", ["t"],
    )  # fmt: skip
    assert desk.run(id)["run"]["state"] == "FAILED"
    assert {desk.take("again")["id"], desk.take("again")["id"]} == {new["id"], other["id"]}
    assert desk.trigger("again", {"n": 7}, idempotencyKey="order-7") == id  # the failed run keeps its key
    refused = desk.post("/api/triggers/replay", {"id": id, "new_key": "order-7"}, "write")
    assert (refused.status_code, "needs another one" in refused.text) == (400, True)
    assert desk.post("/api/v1/runs/run_none/replay", {}, "write").status_code == 404
