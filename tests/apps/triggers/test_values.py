"""Values that callers send and no database likes, on either database, stored and buffered: each is refused with 400 or
stored, and afterwards all lists answer."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.apps.operator import operating
from tests.apps.triggers.test_work_http import Desk
from tests.service.serving import TOKENS, bearer, until

DEEP = "[" * 3000 + "]" * 3000
# What a trigger is given, and whether it is accepted.
PAYLOADS = {
    "1e999": False, "-1e400": False, "9" * 5000: False, '"\udcff"': False, '"\\ud800"': False, DEEP: False,
    "1e-400": True, '"\\u0000"': True, json.dumps(DEEP): True, "18446744073709551615": True,
}  # fmt: skip
OPTIONS = {
    '{"parentRunId": "a\\u0000b"}': False,
    '{"machine": "a\\u0000b"}': False,
    '{"delay": "9999-12-31T23:59:59-12:00"}': False,
    '{"delay": "9999-12-31T23:59:59Z"}': False,
    '{"delay": "0001-01-01T00:00:00+14:00"}': True,
    '{"delay": 1e308}': False,
    '{"idempotencyKeyTTL": 1e400}': False,
    '{"maxAttempts": 1e400}': False,
    f'{{"metadata": {json.dumps(DEEP)}}}': False,
    f'{{"other": "{"x" * 70_000}"}}': False,
    '{"metadata": {"a": "\\u0000"}}': True,
    '{"metadata": 1e-400}': True,
    '{"machine": "a\\\\u0000b"}': True,
}
LISTS = (
    "/api/v1/runs?page[size]=1000",
    "/api/v1/runs?filter[queue]=q&filter[machine]=m",
    "/api/triggers/runs",
    "/triggers",
)


@pytest.fixture(scope="module", params=["stored", "buffered"])
def desk(request: pytest.FixtureRequest, data_url: str) -> Iterator[Desk]:
    """A service that stores runs at once, then one whose gate diverts all but the first."""
    tripped = {"trip_threshold": 1, "trip_window": 3000.0, "trip_hold": 0.1}
    settings: dict[str, Any] = {"gate": "off"} if request.param == "stored" else tripped
    with operating("triggers", settings, data_url=data_url) as it:
        made = Desk(it.service)
        for _ in range(2):
            made.trigger("first")
        yield made


def send(desk: Desk, text: str, **headers: str) -> httpx2.Response:
    given = {**bearer(TOKENS["write"]), "content-type": "application/json", **headers}
    body = text.encode(errors="surrogateescape")
    return desk.service.http.post("/api/v1/tasks/odd/trigger", content=body, headers=given)


def check(desk: Desk, answer: httpx2.Response, accepted: bool) -> None:
    assert answer.status_code == (200 if accepted else 400), answer.text
    if accepted:
        id = answer.json()["id"]
        assert desk.get(f"/api/v3/runs/{id}").status_code == 200
        until(lambda: id in {row["id"] for row in desk.ask("/api/triggers/runs", task="odd", limit=500)["runs"]})
    for path in LISTS:
        assert desk.get(path).status_code == 200, path


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda text: text[:12])
def test_a_payload_is_stored_or_refused(desk: Desk, payload: str) -> None:
    check(desk, send(desk, f'{{"payload": {payload}}}'), PAYLOADS[payload])


def test_a_packed_payload_that_is_too_deep_or_no_text_is_refused(desk: Desk) -> None:
    plain, packed = "application/json", "application/super+json"
    super_json = json.dumps(f'{{"json": {DEEP}}}')
    for kind, payload in ((plain, json.dumps(DEEP)), (packed, super_json), (plain, '"\udcff"'), (packed, '"\udcff"')):
        text = f'{{"payload": {payload}, "options": {{"payloadType": "{kind}"}}}}'
        check(desk, send(desk, text), accepted=False)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda text: text[:30])
def test_options_are_stored_or_refused(desk: Desk, options: str) -> None:
    check(desk, send(desk, f'{{"payload": 1, "options": {options}}}'), OPTIONS[options])


def test_a_header_that_is_too_long_is_refused(desk: Desk) -> None:
    assert send(desk, "{}", **{"idempotency-key": "x" * 3000}).status_code == 400
    body = {"items": [{"task": "odd"}]}
    headers = {**bearer(TOKENS["write"]), "idempotency-key": "x" * 3000}
    assert desk.service.http.post("/api/v2/tasks/batch", json=body, headers=headers).status_code == 400


# -- keys


def test_a_quoted_header_names_the_same_key_as_the_option(desk: Desk) -> None:
    bare = desk.trigger("quoted", 1, idempotencyKey='a"b')
    headers = {**bearer(TOKENS["write"]), "idempotency-key": r'"a\"b"'}
    answer = desk.service.http.post("/api/v1/tasks/quoted/trigger", json={"payload": 1}, headers=headers).json()
    assert (answer["id"], answer["isCached"]) == (bare, True)


def test_the_retry_of_a_request_is_the_same_run(desk: Desk) -> None:
    """trigger.dev's client names each request in a header, which its retries repeat."""
    headers = {"x-trigger-request-idempotency-key": "request-1"}
    ids = {send(desk, '{"payload": 1}', **headers).json()["id"] for _ in range(3)}
    other = send(desk, '{"payload": 1}', **{"x-trigger-request-idempotency-key": "request-2"}).json()["id"]
    assert len(ids) == 1
    assert other not in ids
    body, given = {"items": [{"task": "odd"}, {"task": "odd"}]}, {**bearer(TOKENS["write"]), **headers}
    batches = [desk.service.http.post("/api/v2/tasks/batch", json=body, headers=given).json() for _ in range(2)]
    assert batches[0]["id"] == batches[1]["id"]
    assert [run["id"] for run in batches[0]["runs"]] == [run["id"] for run in batches[1]["runs"]]


def test_a_long_key_and_the_text_of_its_digest_are_two_keys(desk: Desk) -> None:
    long = desk.trigger("digest", idempotencyKey="x" * 600)
    stored = desk.ask(f"/api/triggers/runs/{long}")["run"]["key"]
    assert desk.trigger("digest", idempotencyKey=stored) != long
    assert desk.trigger("digest", idempotencyKey="x" * 600) == long


def test_the_retry_of_a_replay_is_the_same_run(desk: Desk) -> None:
    id = desk.trigger("replayed", 1)

    def replay(**headers: str) -> httpx2.Response:
        return desk.service.http.post(f"/api/v1/runs/{id}/replay", headers={**bearer(TOKENS["write"]), **headers})

    first, second = ({"x-trigger-request-idempotency-key": f"replay-{number}"} for number in range(2))
    ids = [replay(**each).json()["id"] for each in (first, first, second)]
    assert (ids[0] == ids[1], len({id, *ids})) == (True, 3)
    quoted = [replay(**{"idempotency-key": key}).json()["id"] for key in ("again", '"again"')]
    assert quoted[0] == quoted[1]
    assert replay(**{"idempotency-key": "x" * 3000}).status_code == 400


# -- metadata


def edit(desk: Desk, id: str, *operations: dict[str, Any]) -> httpx2.Response:
    path, headers = f"/api/v1/runs/{id}/metadata", bearer(TOKENS["write"])
    return desk.service.http.put(path, json={"operations": list(operations)}, headers=headers)


def test_metadata_does_not_grow_past_its_bound(desk: Desk) -> None:
    id = desk.trigger("grows", metadata={"log": []})
    append = {"type": "append", "key": "log", "value": "x" * 60_000}
    statuses = [edit(desk, id, append).status_code for _ in range(6)]
    assert statuses == [200, 200, 200, 200, 400, 400]
    assert len(desk.ask(f"/api/v1/runs/{id}/metadata")["metadata"]["log"]) == 4


@pytest.mark.parametrize(("there", "more"), [("9" * 4300, "9" * 4300), ("9" * 400, "1.5"), ("1.7e308", "1.7e308")])
def test_a_number_does_not_grow_beyond_a_float(desk: Desk, there: str, more: str) -> None:
    """A sum that JSON cannot give back was an internal error, or became null."""
    id, headers = desk.trigger("counts"), {**bearer(TOKENS["write"]), "content-type": "application/json"}
    increment = f'{{"operations": [{{"type": "increment", "key": "n", "value": {more}}}]}}'
    for text, status in ((f'{{"metadata": {{"n": {there}}}}}', 200), (increment, 400), (increment, 400)):
        answer = desk.service.http.put(f"/api/v1/runs/{id}/metadata", content=text, headers=headers)
        assert answer.status_code == status, answer.text
    assert desk.ask(f"/api/v3/runs/{id}")["metadata"] == {"n": json.loads(there)}


def test_operations_that_would_take_long_are_refused(desk: Desk) -> None:
    id = desk.trigger("long", metadata={"list": [1] * 100_000})
    removal = {"type": "remove", "key": "list", "value": 2}
    assert edit(desk, id, *[removal] * 7500).status_code == 400
    refused = edit(desk, id, *[removal] * 900)
    assert (refused.status_code, "look at more than 1000000 values" in refused.text) == (400, True)
    done = edit(desk, id, *[removal] * 5)
    assert done.status_code == 200, done.text
    deep = desk.trigger("deep", metadata={"list": [[1] * 120] * 900})
    refused = edit(desk, deep, *[{"type": "remove", "key": "list", "value": [1] * 119 + [2]}] * 900)
    assert (refused.status_code, "look at more than 1000000 values" in refused.text) == (400, True)


# -- lists


def test_a_list_has_no_payloads_and_ends_early_if_its_runs_are_large(desk: Desk) -> None:
    task = f"large-{secrets.token_hex(4)}"  # the services of these tests share a database
    for _ in range(40):
        desk.trigger(task, "p" * 100_000, metadata={"m": "x" * 250_000})
    until(lambda: len(desk.ask("/api/triggers/runs", task=task, limit=100)["runs"]) >= 30)

    def page(after: str) -> Any:
        query: dict[str, Any] = {"filter[taskIdentifier]": task, "page[size]": 1000, "page[after]": after}
        return desk.ask("/api/v1/runs", **query)

    ids, after = set[str](), ""
    for _ in range(10):
        answer = page(after)
        assert len(json.dumps(answer)) < 40 << 20
        assert not any("payload" in run for run in answer["data"])
        ids |= {run["id"] for run in answer["data"]}
        after = answer["pagination"].get("next", "")
        if not after:
            break
    assert len(ids) == 40


def test_runs_are_listed_by_queue_machine_and_key(desk: Desk) -> None:
    name = secrets.token_hex(4)
    here = desk.trigger("filtered", queue={"name": name}, machine=f"m-{name}", idempotencyKey=name)
    desk.trigger("filtered", queue={"name": "others"}, tags=[name])
    until(lambda: len(desk.ask("/api/triggers/runs", tag=name)["runs"]) == 1)
    until(lambda: len(desk.ask("/api/triggers/runs", key=name)["runs"]) == 1)
    filters = {"queue": f"{name},none", "machine": f"m-{name}", "idempotencyKey": name}
    for field, value in filters.items():
        query: dict[str, Any] = {f"filter[{field}]": value}
        assert [run["id"] for run in desk.ask("/api/v1/runs", **query)["data"]] == [here], query
