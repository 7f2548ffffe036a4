"""The task-trigger API over HTTP: the shapes of trigger.dev's client, environments, and clear refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from tests.apps.operator import BECAUSE, Operator, operating
from tests.service.serving import TOKENS, bearer, until

TRIGGER = "/api/v1/tasks/hello/trigger"
ENVIRONMENTS = {"staging": "admin", "production": "write"}  # and the scope of a token that acts in it


@pytest.fixture(scope="module")
def it() -> Iterator[Operator]:
    """A service whose writers are in `production`, and all others in `staging`."""
    settings = {"environment": "staging", "environments": {"writeer": "production"}}
    with operating("triggers", settings) as running:
        yield running


def trigger(it: Operator, key: str = "", scope: str = "admin", payload: Any = None, **options: Any) -> dict[str, Any]:
    given = {"idempotencyKey": key, **options} if key else options
    answer = it.post(TRIGGER, {"payload": payload, "options": given}, scope)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def put(it: Operator, path: str, body: dict[str, Any]) -> httpx2.Response:
    return it.service.http.put(path, json=body, headers=bearer(TOKENS["admin"]))


def test_a_trigger_is_answered_with_its_run(it: Operator) -> None:
    answer = trigger(it, "shape")
    assert answer == {
        "id": answer["id"], "isCached": False, "buffered": False, "taskIdentifier": "hello", "idempotencyKey": "shape",
    }  # fmt: skip
    assert answer["id"].startswith("run_")
    assert trigger(it, "shape") == {**answer, "isCached": True}


def test_the_header_names_the_key_too(it: Operator) -> None:
    named = {**bearer(TOKENS["admin"]), "idempotency-key": "by-header"}
    body: dict[str, Any] = {"payload": 1}
    first = it.service.http.post(TRIGGER, json=body, headers=named).json()
    assert trigger(it, "by-header", payload=1)["id"] == first["id"]
    differs = it.service.http.post(TRIGGER, json={**body, "options": {"idempotencyKey": "other"}}, headers=named)
    assert differs.status_code == 400
    assert "differ" in differs.json()["detail"]


def test_a_key_is_of_one_task_and_one_environment(it: Operator) -> None:
    ids = {trigger(it, "shared")["id"], trigger(it, "shared", "write")["id"]}
    ids.add(it.post("/api/v1/tasks/other/trigger", {"options": {"idempotencyKey": "shared"}}).json()["id"])
    assert len(ids) == 3


def test_a_run_of_another_environment_is_unknown(it: Operator) -> None:
    id = trigger(it, scope="write")["id"]
    assert it.get(f"/api/v1/runs/{id}", "write").status_code == 200
    refused = it.get(f"/api/v1/runs/{id}", "read")
    assert (refused.status_code, refused.json()["type"]) == (404, "/policy#unknown")
    other = trigger(it)["id"]
    assert it.post(f"/api/v2/runs/{other}/cancel", {}, "write").status_code == 404
    assert it.get("/api/v1/runs", "write", **{"filter[environment]": "staging"}).status_code == 404


def test_an_admin_sees_the_runs_of_all_environments(it: Operator) -> None:
    ids = {name: trigger(it, scope=scope, tags=["seen"])["id"] for name, scope in ENVIRONMENTS.items()}
    tagged: dict[str, Any] = {"filter[tag]": "seen"}
    listed = it.get("/api/v1/runs", **{**tagged, "page[size]": 1}).json()
    assert [run["id"] for run in listed["data"]] == [ids["production"]], "the newest of all"
    rest = it.get("/api/v1/runs", **tagged, **{"page[after]": listed["pagination"]["next"]}).json()
    assert [(run["id"], run["env"]["name"]) for run in rest["data"]] == [(ids["staging"], "staging")]
    for name, id in ids.items():
        one = it.get("/api/v1/runs", **tagged, **{"filter[environment]": name}).json()["data"]
        assert [run["id"] for run in one] == [id]
        rows = it.get("/api/triggers/runs", tag="seen", environment=name).json()["runs"]
        assert [(row["id"], row["environment"]) for row in rows] == [(id, name)]
        assert it.get(f"/api/v3/runs/{id}").status_code == 200
        assert it.post(f"/api/v2/runs/{id}/cancel", {}).status_code == 200
    gates = {scope: it.get("/api/triggers/gate", scope).json()["gates"] for scope in ("admin", "write")}
    names = {scope: [each["environment"] for each in found] for scope, found in gates.items()}
    assert names == {"admin": ["staging", "production"], "write": ["production"]}
    unknown = it.get("/api/triggers/runs", environment="other")
    assert (unknown.status_code, "it sees staging, production" in unknown.json()["detail"]) == (404, True)


def test_an_admin_resets_a_key_of_another_environment(it: Operator) -> None:
    id = trigger(it, "far", "write")["id"]
    body = {"task": "hello", "user_key": "far", "reason": BECAUSE}
    assert it.post("/api/triggers/reset", body).json() == {"reset": False}
    assert it.post("/api/triggers/reset", {**body, "environment": "production"}).json() == {"reset": True}
    assert trigger(it, "far", "write")["id"] != id


def test_a_run_is_read_as_the_client_of_trigger_dev_expects_it(it: Operator) -> None:
    id = trigger(it, payload={"a": 1}, tags=["x"], metadata='{"m": 1}', maxAttempts=5, queue={"name": "q"})["id"]
    run = it.ask(f"/api/v3/runs/{id}")
    assert run.pop("createdAt") == run.pop("updatedAt")
    assert run == {  # its fields are optional, but must not be null
        "id": id, "status": "QUEUED", "taskIdentifier": "hello", "payload": {"a": 1}, "tags": ["x"],
        "metadata": {"m": 1}, "attemptCount": 0, "isQueued": True, "isExecuting": False, "isWaiting": False,
        "isCompleted": False, "isSuccess": False, "isFailed": False, "isCancelled": False, "isTest": False,
        "costInCents": 0.0, "baseCostInCents": 0.0, "durationMs": 0.0, "depth": 0, "triggerFunction": "trigger",
        "env": {"id": "staging", "name": "staging"}, "relatedRuns": {}, "attempts": [], "buffered": False,
    }  # fmt: skip


def test_runs_are_listed_by_state_task_tag_and_key_the_newest_first(it: Operator) -> None:
    ids = [trigger(it, f"listed-{number}", tags=["listed"])["id"] for number in range(3)]
    it.post(f"/api/v2/runs/{ids[0]}/cancel", {})
    by_tag = {"filter[tag]": "listed"}
    page = it.ask("/api/v1/runs", **by_tag, **{"page[size]": 2})
    assert [run["id"] for run in page["data"]] == ids[:0:-1]
    rest = it.ask("/api/v1/runs", **by_tag, **{"page[size]": 2, "page[after]": page["pagination"]["next"]})
    assert ([run["id"] for run in rest["data"]], [*rest["pagination"]]) == (ids[:1], ["previous"])
    canceled = it.ask("/api/v1/runs", **by_tag, **{"filter[status]": "CANCELED,FAILED"})
    assert [run["id"] for run in canceled["data"]] == ids[:1]
    keyed = it.ask("/api/v1/runs", **{"filter[idempotencyKey]": "listed-1", "filter[taskIdentifier]": "hello"})
    assert [run["id"] for run in keyed["data"]] == ids[1:2]
    several = {"filter[tag]": "none,listed", "filter[taskIdentifier]": "hello,other", "filter[createdAt][period]": "1h"}
    assert len(it.ask("/api/v1/runs", **several, **{"filter[createdAt][from]": 1.0})["data"]) == 3
    assert it.ask("/api/v1/runs", **by_tag, **{"filter[createdAt][to]": 1_000.0})["data"] == []


def test_a_filter_that_would_be_ignored_is_refused(it: Operator) -> None:
    refused = it.get("/api/v1/runs", **{"filter[schedule]": "x"})
    assert (refused.status_code, "filter[schedule]" in refused.json()["detail"]) == (400, True)


def test_refusals_have_the_field_in_which_the_client_of_trigger_dev_looks(it: Operator) -> None:
    for refused in (it.get("/api/v3/runs/run_none"), it.post(TRIGGER, {"options": {"tags": [""]}})):
        assert refused.json()["error"] == refused.json()["detail"] != ""


def test_tags_metadata_and_cancel_change_a_run(it: Operator) -> None:
    id = trigger(it)["id"]
    assert it.post(f"/api/v1/runs/{id}/tags", {"tags": "one"}).status_code == 200
    assert it.post(f"/api/v1/runs/{id}/tags", {"tags": ["one", "two"]}).status_code == 200
    assert put(it, f"/api/v1/runs/{id}/metadata", {"metadata": {"n": 1}}).json() == {"metadata": {"n": 1}}
    edits = [
        {"type": "increment", "key": "n", "value": 2}, {"type": "append", "key": "list", "value": "a"},
        {"type": "set", "key": "gone", "value": 1}, {"type": "delete", "key": "gone"},
        {"type": "append", "key": "list", "value": "b"}, {"type": "remove", "key": "list", "value": "a"},
    ]  # fmt: skip
    assert put(it, f"/api/v1/runs/{id}/metadata", {"operations": edits}).json()["metadata"] == {"n": 3, "list": ["b"]}
    assert it.post(f"/api/v2/runs/{id}/cancel", {}).json()["id"] == id
    run = it.ask(f"/api/v3/runs/{id}")
    assert (run["tags"], run["metadata"], run["status"]) == (["one", "two"], {"n": 3, "list": ["b"]}, "CANCELED")


def test_a_reset_key_makes_a_new_run(it: Operator) -> None:
    first = trigger(it, "again")
    path, body = "/api/v1/idempotencyKeys/again/reset", {"taskIdentifier": "hello"}
    assert it.post(path, body).json()["id"] == "again"
    second = trigger(it, "again")
    assert (second["isCached"], second["id"] != first["id"]) == (False, True)
    assert "idempotencyKey" not in it.ask(f"/api/v3/runs/{first['id']}")
    assert it.post("/api/v1/idempotencyKeys/unused/reset", body).status_code == 404


def test_another_payload_under_the_same_key_is_answered_with_a_mark(it: Operator) -> None:
    first = trigger(it, "payload", payload={"a": 1, "b": 2})
    assert trigger(it, "payload", payload={"b": 2, "a": 1}) == {**first, "isCached": True}, "the order means nothing"
    assert trigger(it, "payload", payload={"a": 3}) == {**first, "isCached": True, "payloadMismatch": True}


def test_another_payload_can_be_refused_with_422() -> None:
    with operating("triggers", {"on_mismatch": "refuse"}) as it:
        trigger(it, "payload", payload=1)
        refused = it.post(TRIGGER, {"payload": 2, "options": {"idempotencyKey": "payload"}})
        assert (refused.status_code, refused.json()["type"]) == (422, "/policy#mismatch")


def test_a_batch_follows_the_same_rules(it: Operator) -> None:
    items = [
        {"task": "hello", "payload": 1, "options": {"idempotencyKey": "batched"}},
        {"task": "hello", "payload": 1, "options": {"idempotencyKey": "batched"}},
        {"task": "other", "payload": 2},
    ]
    answer = it.post("/api/v1/tasks/batch", {"items": items}).json()
    runs = answer["runs"]
    assert answer["runCount"] == 3
    assert (runs[0]["id"] == runs[1]["id"], runs[2]["taskIdentifier"]) == (True, "other")
    assert sorted(run["isCached"] for run in runs) == [False, False, True]
    read = it.ask(f"/api/v1/batches/{answer['id']}")
    assert (read["status"], read["runs"]) == ("PENDING", [run["id"] for run in runs])


def test_a_batch_of_the_same_key_is_made_once(it: Operator) -> None:
    named = {**bearer(TOKENS["admin"]), "idempotency-key": "of-the-batch"}
    body = {"items": [{"task": "hello"}, {"task": "other"}]}
    first, second = (it.service.http.post("/api/v2/tasks/batch", json=body, headers=named).json() for _ in range(2))
    assert (first["isCached"], second["isCached"], first["id"] == second["id"]) == (False, True, True)
    assert [run["id"] for run in first["runs"]] == [run["id"] for run in second["runs"]]


def send_lines(it: Operator, batch: str, lines: list[dict[str, Any]]) -> httpx2.Response:
    """Sends the items of a batch as the client does."""
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    headers = {**bearer(TOKENS["admin"]), "content-type": "application/x-ndjson"}
    return it.service.http.post(f"/api/v3/batches/{batch}/items", content=text, headers=headers)


def test_the_items_of_a_batch_follow_as_lines_and_may_be_sent_again(it: Operator) -> None:
    plan = {"runCount": 3, "taskIdentifiers": ["hello"], "idempotencyKey": "in-two"}
    batch = it.post("/api/v3/batches", plan).json()
    assert (batch["runCount"], batch["isCached"]) == (3, False)
    packed = {"payload": '{"json":{"n":1},"meta":{}}', "options": {"payloadType": "application/super+json"}}
    lines = [{"index": number, "task": "hello", **packed} for number in range(3)]
    partial = send_lines(it, batch["id"], lines[:2]).json()
    assert (partial["sealed"], partial["enqueuedCount"], partial["expectedCount"]) == (False, 2, 3)
    assert it.ask(f"/api/v2/batches/{batch['id']}")["runs"] == []
    assert it.post("/api/v3/batches", plan).json() == batch, "nothing was accepted yet"
    whole = send_lines(it, batch["id"], lines).json()
    assert (whole["sealed"], whole["itemsAccepted"], whole["itemsDeduplicated"]) == (True, 3, 0)
    again = send_lines(it, batch["id"], lines).json()
    assert (again["sealed"], again["itemsAccepted"], again["itemsDeduplicated"]) == (True, 0, 3)
    assert it.post("/api/v3/batches", plan).json() == {**batch, "isCached": True}
    ids = it.ask(f"/api/v2/batches/{batch['id']}")["runs"]
    assert len(set(ids)) == 3
    assert {it.ask(f"/api/v3/runs/{id}")["payload"]["n"] for id in ids} == {1}
    for id in ids:
        it.post(f"/api/v2/runs/{id}/cancel", {})
    assert it.ask(f"/api/v2/batches/{batch['id']}")["status"] == "COMPLETED"


def test_items_without_a_key_keep_their_ids_if_the_answer_was_lost(it: Operator) -> None:
    """The service died after it accepted them, and before it recorded so."""
    batch = it.post("/api/v3/batches", {"runCount": 2}).json()["id"]
    lines = [{"index": number, "task": "lost-answer"} for number in range(2)]
    send_lines(it, batch, lines)
    app: Any = it.service.service.apps["triggers"]
    forget = app.service.data.run("UPDATE triggers_batches SET runs = NULL WHERE id = :id", id=batch)
    it.service.run(forget)
    assert send_lines(it, batch, lines).json()["sealed"]
    assert len(it.ask("/api/v1/runs", **{"filter[taskIdentifier]": "lost-answer"})["data"]) == 2


def test_invalid_batches_are_refused(it: Operator) -> None:
    batch = it.post("/api/v3/batches", {"runCount": 1}).json()["id"]
    assert send_lines(it, batch, [{"index": 1, "task": "hello"}]).status_code == 400
    assert send_lines(it, batch, [{"task": "hello"}]).status_code == 400
    assert send_lines(it, "batch_none", [{"index": 0, "task": "hello"}]).status_code == 404
    assert it.post(f"/api/v3/batches/{batch}/items", {"index": 0, "task": "hello"}).status_code == 415
    assert it.post("/api/v3/batches", {"runCount": 1, "resumeParentOnCompletion": True}).status_code == 400
    stored = {"payload": "a/path", "options": {"payloadType": "application/store"}}
    assert "has uploaded no 'a/path'" in it.post(TRIGGER, stored).json()["detail"]


def test_metadata_operations_that_are_not_supported_are_refused(it: Operator) -> None:
    id = trigger(it)["id"]
    for operations in (
        [{"type": "set", "key": "$.a.b", "value": 1}], [{"type": "merge", "key": "a"}],
        [{"type": "increment", "key": "a", "value": "x"}], [{"type": "update", "value": 1}],
    ):  # fmt: skip
        assert put(it, f"/api/v1/runs/{id}/metadata", {"operations": operations}).status_code == 400
    assert put(it, f"/api/v1/runs/{id}/metadata", {"parentOperations": []}).status_code == 400
    whole = put(it, f"/api/v1/runs/{id}/metadata", {"operations": [{"type": "update", "value": {"z": 1}}]})
    assert whole.json() == it.ask(f"/api/v1/runs/{id}/metadata") == {"metadata": {"z": 1}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"idempotencyKey": ""}, "idempotencyKey"),
        ({"idempotencyKey": "x" * 2049}, "length <= 2048"),
        ({"idempotencyKey": "k", "idempotencyKeyTTL": "soon"}, "'soon' is not a duration"),
        ({"idempotencyKey": "k", "idempotencyKeyTTL": 0}, "idempotencyKeyTTL=0"),
        ({"tags": ["x"] * 11}, "length <= 10"),
        ({"metadata": [1]}, "metadata must be an object"),
        ({"metadata": "{"}, "metadata is not JSON"),
        ({"delay": "2026-13-01T00:00:00"}, "neither a duration nor an ISO time"),
        ({"maxAttempts": 0}, "maxAttempts"),
    ],
)
def test_an_invalid_option_is_refused_by_its_name(it: Operator, options: dict[str, Any], said: str) -> None:
    refused = it.post(TRIGGER, {"options": options})
    assert refused.status_code == 400
    assert said in refused.json()["detail"]


@pytest.mark.parametrize("tags", ["", [""]])
def test_an_empty_tag_is_refused(it: Operator, tags: object) -> None:
    """One that was no list was an internal error."""
    id = it.post("/api/v1/tasks/mail/trigger", {"payload": 1}).json()["id"]
    refused = it.post(f"/api/v1/runs/{id}/tags", {"tags": tags})
    assert refused.status_code == 400
    assert "length >= 1" in refused.json()["detail"]


def test_too_many_tags_are_refused(it: Operator) -> None:
    id = trigger(it, tags=[f"t{number}" for number in range(9)])["id"]
    refused = it.post(f"/api/v1/runs/{id}/tags", {"tags": ["a", "b"]})
    assert (refused.status_code, "the most is 10" in refused.json()["detail"]) == (400, True)


def test_a_delayed_run_waits_for_its_time(it: Operator) -> None:
    run = it.ask(f"/api/v3/runs/{trigger(it, delay='1h')['id']}")
    assert (run["status"], run["delayedUntil"] is not None) == ("DELAYED", True)


def test_a_token_that_may_only_read_triggers_nothing(it: Operator) -> None:
    assert it.post(TRIGGER, {}, "read").status_code == 403


def test_a_burst_is_buffered_and_every_answered_id_is_found_at_once() -> None:
    with operating("triggers", {"trip_threshold": 5, "trip_window": "1m"}) as it:
        runs = it.post("/api/v1/tasks/batch", {"items": [{"task": "hello"}] * 50}).json()["runs"]
        assert sum(run["buffered"] for run in runs) >= 40
        assert {it.get(f"/api/v3/runs/{run['id']}").status_code for run in runs} == {200}
        until(lambda: len(it.ask("/api/v1/runs", **{"page[size]": 100})["data"]) == 50)


def test_in_shadow_mode_the_gate_counts_and_diverts_nothing() -> None:
    with operating("triggers", {"trip_threshold": 5, "trip_window": "1m", "gate": "shadow"}) as it:
        runs = it.post("/api/v1/tasks/batch", {"items": [{"task": "hello"}] * 10}).json()["runs"]
        assert not any(run["buffered"] for run in runs)
        assert 'solely_mollifier_gate_total{decision="shadow"} 5.0' in it.get("/metrics").text


def test_the_threshold_of_the_gate_can_come_from_the_variable_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIGGER_MOLLIFIER_TRIP_THRESHOLD", "7")
    with operating("triggers", {}) as it:
        app: Any = it.service.service.apps["triggers"]
        assert app.settings.trip_threshold == 7


def test_a_payload_that_the_client_of_trigger_dev_packed_is_unpacked(it: Operator) -> None:
    id = trigger(it, payload='{"a": 1}', payloadType="application/json")["id"]
    assert it.ask(f"/api/v3/runs/{id}")["payload"] == {"a": 1}
    assert it.ask(f"/api/v3/runs/{trigger(it, payload='text')['id']}")["payload"] == "text"


@pytest.mark.parametrize("id", ["run_unknown", "%00", "run_" + "a" * 39])
def test_an_id_that_nobody_got_is_unknown(it: Operator, id: str) -> None:
    assert it.get(f"/api/v3/runs/{id}").status_code == 404


def test_a_batch_names_the_item_that_is_invalid(it: Operator) -> None:
    items = [{"task": "hello"}, {"task": "hello", "options": {"maxAttempts": 0}}]
    assert it.post("/api/v1/tasks/batch", {"items": items}).json()["detail"].startswith("items[1]: options: ")
