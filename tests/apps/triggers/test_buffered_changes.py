"""Changes of runs that a burst has buffered, over HTTP, while workers wait for runs: what was answered 200 is what a
worker gets, and every accepted run is given to a worker or canceled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.apps.operator import operating
from tests.apps.triggers.conftest import PAIRS
from tests.apps.triggers.test_work_http import Desk
from tests.service.serving import END, TOKENS, bearer, until

BURST = 115  # triggers at once
CHANGED = range(BURST - 60, BURST)  # those that are changed
# The gate lets 50 pass, however long the machine takes for a burst. It then takes the burst to last on for a while: the
# drainer, which has taken what is buffered, waits while that is changed.
GATE = {"trip_threshold": 50, "trip_window": 5.0, "trip_hold": 3.0}
WORKERS = 4

Call = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module", params=PAIRS)
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    """A service on each pair of a store and a database."""
    url, data_url = PAIRS[request.param](request)
    with operating("triggers", GATE, url=url, data_url=data_url) as it:
        yield Desk(it.service)


def at_once(desk: Desk, calls: Iterable[Call]) -> list[dict[str, Any]]:
    """The answers to all calls (method, path, body), sent together; each must be 200."""

    async def send() -> list[httpx2.Response]:
        given: Any = {"base_url": desk.service.address, "timeout": END, "headers": bearer(TOKENS["write"])}
        async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=50), **given) as http:
            return list(await asyncio.gather(*(http.request(how, path, json=body) for how, path, body in calls)))

    answers = asyncio.run(send())
    assert [answer.text for answer in answers if answer.status_code != 200] == []
    return [answer.json() for answer in answers]


def triggers(task: str, numbers: Iterable[int], *, keyed: bool = False) -> list[Call]:
    def body(number: int) -> dict[str, Any]:
        return {"payload": number, "options": {"idempotencyKey": f"key-{number}"} if keyed else {}}

    return [("POST", f"/api/v1/tasks/{task}/trigger", body(number)) for number in numbers]


def burst(desk: Desk, task: str, *, keyed: bool = False) -> list[str]:
    """The ids that a burst is answered, those of buffered runs last."""
    answers = at_once(desk, triggers(task, range(BURST), keyed=keyed))
    return [answer["id"] for answer in (sorted(answers, key=lambda each: each["buffered"]) if not keyed else answers)]


def all_taken(desk: Desk, task: str, count: int) -> dict[str, Any]:
    """The runs that workers, which wait for them, get until the buffer is empty, at least so many, by id; each is
    completed."""
    runs: dict[str, Any] = {}

    def work() -> None:
        ends = time.monotonic() + END
        while not (is_empty() and len(runs) >= count):
            assert time.monotonic() < ends, f"{len(runs)} of {count} runs were given"
            while (run := desk.take(task, wait=0.5)) is not None:
                assert run["id"] not in runs, "it is given once"
                runs[run["id"]] = run
                assert desk.settle(run, "complete").status_code == 200

    def is_empty() -> bool:
        return all(gate["buffered"] == 0 for gate in desk.ask("/api/triggers/gate")["gates"])

    with ThreadPoolExecutor(WORKERS) as pool:
        for worker in [pool.submit(work) for _ in range(WORKERS)]:
            worker.result()
    return runs


def test_a_run_that_was_canceled_while_buffered_is_never_given_to_a_worker(desk: Desk) -> None:
    ids = burst(desk, "canceled")
    canceled = {ids[number] for number in CHANGED}
    at_once(desk, [("POST", f"/api/v2/runs/{id}/cancel", {}) for id in canceled])
    runs = all_taken(desk, "canceled", len(ids) - len(canceled))
    assert {*runs} & canceled == set()
    assert {*runs} == {*ids} - canceled, "every other accepted run is given to a worker"
    assert {desk.ask(f"/api/v3/runs/{id}")["status"] for id in canceled} == {"CANCELED"}


def test_a_run_that_was_changed_while_buffered_is_taken_with_its_changes(desk: Desk) -> None:
    ids = burst(desk, "changed")
    changed = [ids[number] for number in CHANGED]
    at_once(desk, [("POST", f"/api/v1/runs/{id}/tags", {"tags": [f"of-{id}"]}) for id in changed])
    at_once(desk, [("PUT", f"/api/v1/runs/{id}/metadata", {"metadata": {"of": id}}) for id in changed])
    runs = all_taken(desk, "changed", len(ids))
    assert {*runs} == {*ids}
    taken = {id: (runs[id]["tags"], runs[id]["metadata"]) for id in changed}
    assert taken == {id: ([f"of-{id}"], {"of": id}) for id in changed}


def test_the_timeline_of_a_run_has_the_changes_that_were_made_while_it_was_buffered(desk: Desk) -> None:
    ids = burst(desk, "noted")[-5:]
    at_once(desk, [("POST", f"/api/v1/runs/{id}/tags", {"tags": ["a", "b"]}) for id in ids])
    at_once(desk, [("POST", f"/api/v2/runs/{id}/cancel", {}) for id in ids])
    until(lambda: all(gate["buffered"] == 0 for gate in desk.ask("/api/triggers/gate")["gates"]))
    for id in ids:
        noted = desk.ask(f"/api/triggers/runs/{id}")["timeline"]
        wanted = ["triggered", "buffered", "tags", "cancel"]
        assert [each["kind"] for each in noted] == [kind for kind in wanted if kind in {each["kind"] for each in noted}]
        assert {"tags", "cancel"} <= {each["kind"] for each in noted}
        assert [each["at"] for each in noted] == sorted(each["at"] for each in noted)


def test_both_runs_of_a_key_that_was_reset_while_buffered_are_given_to_a_worker(desk: Desk) -> None:
    first = burst(desk, "reset", keyed=True)
    body = {"taskIdentifier": "reset"}
    at_once(desk, [("POST", f"/api/v1/idempotencyKeys/key-{number}/reset", body) for number in CHANGED])
    answers = at_once(desk, triggers("reset", CHANGED, keyed=True))
    second = [answer["id"] for answer in answers]
    assert not any(answer["isCached"] for answer in answers)
    runs = all_taken(desk, "reset", len(first) + len(second))
    assert {*runs} == {*first, *second}
    assert [desk.ask(f"/api/v3/runs/{id}")["id"] for id in first] == first, "an id answers its own run"
