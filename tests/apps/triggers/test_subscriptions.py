"""Subscriptions to a run, as the Electric client in trigger.dev's client makes them, on either database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.apps.operator import operating
from tests.apps.triggers.test_work_http import LINE, STAGING, Desk
from tests.service.serving import LINES, TOKENS, bearer, until

CLIENT = {"x-trigger-electric-version": "1.0.0-beta.1"}
UNKNOWN = f"run_{'a' * 39}"


@pytest.fixture(scope="module", params=["stored", "buffered"])
def desk(request: pytest.FixtureRequest, data_url: str) -> Iterator[Desk]:
    """A service that stores runs at once, then one whose gate diverts all but the first."""
    tripped = {"trip_threshold": 1, "trip_window": 3000.0, "trip_hold": 0.1}
    settings: dict[str, Any] = {"environments": {"stager": "staging"}}
    settings |= {"gate": "off"} if request.param == "stored" else tripped
    with operating("triggers", settings, data_url=data_url, tokens=(*LINES, LINE), max_wait=0.3) as it:
        yield Desk(it.service)


@pytest.fixture(scope="module")
def patient(data_url: str) -> Iterator[Desk]:
    """A service whose subscribers wait."""
    with operating("triggers", {"gate": "off"}, data_url=data_url) as it:
        yield Desk(it.service)


def ask(desk: Desk, path: str, token: str = TOKENS["read"], **query: str) -> httpx2.Response:
    return desk.service.get(f"/realtime/v1/{path}", params=query, headers={**bearer(token), **CLIENT})


def rows(answer: httpx2.Response) -> list[dict[str, Any]]:
    """The rows of an answer that the client accepts."""
    assert answer.status_code == 200, answer.text
    *changes, end = answer.json()
    assert end == {"headers": {"control": "up-to-date"}}
    for name in ("handle", "offset", "cursor", "schema", "up-to-date"):
        assert answer.headers[f"electric-{name}"]
    return [each["value"] for each in changes]


def test_a_subscriber_gets_the_run_and_then_each_change(desk: Desk) -> None:
    id = desk.trigger("seen", {"n": 1}, tags=["a", "b"], metadata={"m": 1})
    first = ask(desk, f"runs/{id}", offset="-1")
    (row,) = rows(first)
    wanted = {
        "friendlyId": id, "status": "PENDING", "taskIdentifier": "seen", "payload": '{"n":1}', "runTags": ["a", "b"],
        "metadata": '{"m":1}', "completedAt": None,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    live = {"live": "true", "handle": id, "log": "full"}
    waited = ask(desk, f"runs/{id}", offset=first.headers["electric-offset"], **live)
    assert rows(waited) == []
    assert waited.headers["electric-offset"] == first.headers["electric-offset"]
    run = until(lambda: desk.take("seen"))
    (row,) = rows(taken := ask(desk, f"runs/{id}", offset=waited.headers["electric-offset"], **live))
    assert (row["status"], row["startedAt"] is not None) == ("EXECUTING", True)
    desk.settle(run, "complete", output={"done": True})
    (row,) = rows(ended := ask(desk, f"runs/{id}", offset=taken.headers["electric-offset"], **live))
    assert (row["status"], row["output"]) == ("COMPLETED_SUCCESSFULLY", '{"done":true}')
    assert row["completedAt"] is not None
    assert rows(ask(desk, f"runs/{id}", offset=ended.headers["electric-offset"], **live)) == []


def test_failed_canceled_and_delayed_runs_are_told_apart(desk: Desk) -> None:
    failed, canceled = desk.trigger("fails", maxAttempts=1), desk.trigger("never")
    desk.settle(until(lambda: desk.take("fails")), "fail", error="it broke")
    desk.post(f"/api/v2/runs/{canceled}/cancel", {}, "write")
    (row,) = rows(ask(desk, f"runs/{failed}"))
    assert (row["status"], row["error"]["message"]) == ("COMPLETED_WITH_ERRORS", "it broke")
    assert rows(ask(desk, f"runs/{canceled}"))[0]["status"] == "CANCELED"
    (row,) = rows(ask(desk, f"runs/{desk.trigger('later', delay='1h')}", skipColumns="payload,runTags"))
    assert (row["status"], row["delayUntil"] is not None, "payload" in row) == ("DELAYED", True, False)


def test_a_live_request_is_answered_when_the_run_changes(patient: Desk) -> None:
    id = patient.trigger("watched")
    offset = ask(patient, f"runs/{id}").headers["electric-offset"]
    found: list[httpx2.Response] = []
    waiting = threading.Thread(target=lambda: found.append(ask(patient, f"runs/{id}", offset=offset, live="true")))
    waiting.start()
    until(lambda: patient.service.service.waiters.now["reader"])
    assert patient.post(f"/api/v1/runs/{id}/tags", {"tags": "new"}, "write").status_code == 200
    waiting.join(60.0)
    assert rows(found[0])[0]["runTags"] == ["new"]


def test_the_client_gets_a_refusal_as_a_row_that_it_raises_and_others_get_404(desk: Desk) -> None:
    foreign, paths = (
        desk.trigger("foreign"),
        ("runs", "batches/batch_1", "runs/a%0D%0Aset-cookie:%20a", f"runs/{UNKNOWN}"),
    )
    for path, token in (*((path, TOKENS["read"]) for path in paths), (f"runs/{foreign}", STAGING)):
        (row,) = rows(answer := ask(desk, path, token))
        assert (row["metadataType"], "set-cookie" in answer.headers) == ("application/store", False)
        assert "there is no run" in row["metadata"] or "subscribe to single runs" in row["metadata"]
        assert ask(desk, path, token, live="true").status_code == 404, "so that it stops asking"
        assert desk.service.get(f"/realtime/v1/{path}", headers=bearer(token)).status_code == 404
    assert desk.service.get(f"/realtime/v1/runs/{foreign}", headers=CLIENT).status_code == 401
