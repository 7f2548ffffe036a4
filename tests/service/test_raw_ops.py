"""Attacks by way of POST /v1/ops with a `write` token: nobody forges, undoes or shuts what others hold."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import Any

import pytest

import solely
from solely.dead_letters.flow import letter, queue_of
from solely.integrations.idempotency.request import digest
from solely.kinds import KINDS, allowed
from solely.leases.token import read_token, write_token
from solely.ops import OPS, Advance, Finish
from solely.owner import fresh_owner
from solely.testing.harness import fresh
from tests.service.serving import END, LINES, TOKENS, Running, bearer, running

DAY = 86_400.0
YEAR = 366 * DAY
ENTRY_OPS: list[Any] = [op for op in OPS if "key" in op._fields]  # type: ignore[attr-defined]
FORGED = base64.b64encode(b"zzz").decode()


def perform(service: Running, *ops: dict[str, Any], scope: str = "write") -> Any:
    return service.post("/v1/ops", {"ops": ops}, headers=bearer(TOKENS[scope]))


def post(service: Running, path: str, body: object, scope: str = "write", **headers: str) -> Any:
    return service.post(path, body, headers={**bearer(TOKENS[scope]), **headers})


def acquire(key: str, **more: Any) -> dict[str, Any]:
    return {"op": "acquire", "key": key, "owner": fresh_owner(), "ttl": 10, **more}


def refused(answer: Any, *named: str) -> None:
    """A problem of the caller's making, which names what was wrong."""
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for name in named:
        assert name in answer.json()["detail"], answer.text


# -- forging and undoing


def test_an_advance_does_not_end_the_lock_of_another(guarded: Running) -> None:
    name = fresh("deploy")
    held = post(guarded, "/v1/locks/acquire", {"key": name, "ttl": 30}).json()
    refused(perform(guarded, {"op": "advance", "key": f"lock/{name}", "value": FORGED}), "advance", f"lock/{name}")
    assert post(guarded, "/v1/locks/renew", {"token": held["token"]}).status_code == 200
    assert post(guarded, "/v1/locks/release", {"token": held["token"]}).json()["outcome"] == "released"
    assert post(guarded, "/v1/locks/acquire", {"key": name}).status_code == 200


def test_an_advance_does_not_forge_the_result_of_a_claim_that_runs(guarded: Running) -> None:
    name = fresh("charge")
    won = post(guarded, "/v1/claims/claim", {"key": name}).json()
    forged = base64.b64encode(b'j"forged"').decode()
    refused(perform(guarded, {"op": "advance", "key": f"claim/{name}", "value": forged}), "advance", "claim")
    assert post(guarded, "/v1/claims/claim", {"key": name}).status_code == 409
    result = {"form": "json", "value": "real"}
    published = post(guarded, "/v1/claims/publish", {"token": won["token"], "result": result}).json()
    assert (published["published"], published["superseded"]) == (True, False)
    assert post(guarded, "/v1/claims/claim", {"key": name}).json()["result"]["value"] == "real"


def test_an_advance_does_not_overwrite_a_finished_claim(guarded: Running) -> None:
    name = fresh("paid")
    won = post(guarded, "/v1/claims/claim", {"key": name}).json()
    post(guarded, "/v1/claims/publish", {"token": won["token"], "result": {"form": "json", "value": "paid"}})
    forged = base64.b64encode(b"tzzz").decode()  # greater than any JSON
    refused(perform(guarded, {"op": "advance", "key": f"claim/{name}", "value": forged}), "advance", "claim")
    assert post(guarded, "/v1/claims/claim", {"key": name}).json()["result"]["value"] == "paid"


def test_an_advance_does_not_overwrite_the_answer_kept_for_an_idempotency_key(guarded: Running) -> None:
    key, marked = fresh("key"), fresh("marked")
    body, header = {"keys": [marked], "ttl": 60}, {"idempotency-key": f'"{key}"'}
    first = post(guarded, "/v1/marks", body, **header)
    stored = f"claim/~service/answers/{digest([b'writeer'], b'')}/{key}"
    assert perform(guarded, {"op": "read", "key": stored}).json()["replies"][0]["state"] == "done"
    for op in ("advance", "finish"):
        more = {"owner": "stranger", "keep": 60} if op == "finish" else {}
        forged = perform(guarded, {"op": op, "key": stored, "value": FORGED, **more})
        assert (forged.status_code, forged.json()["type"]) == (403, "/policy#reserved-name")
    again = post(guarded, "/v1/marks", body, **header)
    assert (again.status_code, again.json()) == (200, first.json()) == (200, {"first": [True]})


def test_an_advance_does_not_suppress_an_alert(guarded: Running) -> None:
    name = f"alerts/{fresh('db-down')}/critical"
    refused(perform(guarded, {"op": "advance", "key": f"reservation/{name}", "value": ""}), "advance", "reservation")
    assert post(guarded, "/v1/reservations/reserve", {"key": name}).json()["granted"]


def test_letters_are_neither_taken_nor_acked_nor_forged(guarded: Running) -> None:
    group, queue = "charges", queue_of("charges")
    pushed = {"group": group, "payload": {"id": 7}, "error": "declined", "key": fresh("letter")}
    id = post(guarded, "/v1/dead-letters/push", pushed).json()["id"]
    refused(perform(guarded, {"op": "take", "queue": queue, "owner": fresh_owner(), "ttl": 10}), "take", queue)
    refused(perform(guarded, {"op": "ack", "queue": queue, "id": id, "owner": fresh_owner()}), "ack", queue)
    refused(perform(guarded, {"op": "push", "queue": queue, "id": fresh("bad"), "payload": FORGED}), "push", queue)
    other = letter("others", 1, error="x", at=datetime.now(UTC), key=fresh("other"))
    forged = base64.b64encode(other.payload).decode()
    refused(perform(guarded, {"op": "push", "queue": queue, "id": other.id, "payload": forged}), "push", queue)
    found = guarded.get("/v1/dead-letters", params={"group": group}, headers=bearer(TOKENS["read"]))
    assert (found.status_code, [each["id"] for each in found.json()["letters"]]) == (200, [id])


def test_what_the_service_notes_for_itself_is_written_by_nobody_else(guarded: Running) -> None:
    note = base64.b64encode(b"9999999999 {}").decode()
    refused(perform(guarded, {"op": "advance", "key": "rerun/0000000000000000-x", "value": note}, scope="admin"))
    assert guarded.get("/dead-letters", headers=bearer(TOKENS["admin"])).status_code == 200


@pytest.mark.parametrize("kind", [*KINDS, "nonsense"])
def test_an_op_on_a_kind_that_it_is_not_meant_for_is_a_problem_and_no_failure(guarded: Running, kind: str) -> None:
    for op in ENTRY_OPS:
        asked = {**_SAMPLE, "op": op.__name__.lower(), "key": f"{kind}/{fresh('x')}"}
        named = [name for name in op._fields if name in asked and name not in op._field_defaults]
        answer = perform(guarded, {name: asked[name] for name in ("op", *named)}, scope="admin")
        expected = (200,) if allowed(op, kind) and op not in (Finish, Advance) else (200, 400)
        assert answer.status_code in (expected if allowed(op, kind) else (400,)), (op, answer.text)
        assert "failed" not in [reply["reply"] for reply in answer.json().get("replies", [])], op


_SAMPLE = {
    "owner": "me",
    "successor": "you",
    "ttl": 1,
    "value": FORGED,
    "keep": 1,
    "fence": 1,
    "reason": "why",
    "limit": 1,
    "per": 1,
}


def test_a_refusal_names_the_kind_and_what_is_allowed(guarded: Running) -> None:
    refused(perform(guarded, acquire("nonsense/x")), "acquire", "nonsense/x", "lock", "claim")
    refused(perform(guarded, {"op": "mark", "key": "lock/x", "owner": "me", "ttl": 1}), "mark", "lock/x", "acquire")
    bad = {"op": "advance", "key": "watermark/x", "value": FORGED}
    refused(perform(guarded, bad), "advance", "watermark/x", "watermark")


def test_nothing_of_a_batch_is_performed_if_one_op_is_not_meant_for_its_kind(guarded: Running) -> None:
    key = f"lock/{fresh('neighbour')}"
    refused(perform(guarded, acquire(key), {"op": "advance", "key": "lock/other", "value": FORGED}))
    assert perform(guarded, {"op": "read", "key": key}).json()["replies"][0]["state"] == "free"


# -- max_ttl and max_holds


@pytest.fixture(scope="module")
def capped() -> Iterator[Running]:
    """A service that grants an hour at most."""
    with running(max_ttl=3600, tokens=LINES) as it:
        yield it


@pytest.mark.parametrize(
    "op",
    [
        acquire("lock/shut", delay=YEAR),
        {"op": "release", "key": "lock/shut", "owner": "me", "delay": YEAR},
        {"op": "push", "queue": "queue:jobs", "id": "x", "payload": "", "delay": YEAR},
        {"op": "return", "queue": "queue:jobs", "id": "x", "owner": "me", "delay": YEAR},
        {"op": "finish", "key": "trial/x@1.0", "owner": "me", "value": "", "keep": YEAR},
    ],
)
def test_no_key_is_shut_for_longer_than_the_longest_lease(capped: Running, op: dict[str, Any]) -> None:
    refused(perform(capped, op), "max_ttl", op["op"])


def test_a_finish_shuts_no_lock(capped: Running) -> None:
    held = acquire(f"lock/{fresh('shut')}")
    perform(capped, held)
    finish = {"op": "finish", "key": held["key"], "owner": held["owner"], "value": "", "keep": YEAR}
    refused(perform(capped, finish), "finish", held["key"])


def test_what_is_remembered_may_last_longer_than_a_lease_as_in_the_claims_and_reservations_api(capped: Running) -> None:
    value = base64.b64encode(b"jnull").decode()
    for kind, kept in (("claim", value), ("reservation", "")):
        held = acquire(f"{kind}/{fresh('kept')}")
        finish = {"op": "finish", "key": held["key"], "owner": held["owner"], "value": kept, "keep": 30 * DAY}
        assert perform(capped, held, finish).json()["replies"][1]["state"] == "done"
    assert perform(capped, {"op": "mark", "key": f"mark/{fresh('m')}", "owner": "me", "ttl": YEAR}).status_code == 200


def test_closures_count_as_holds_until_they_end() -> None:
    with running(max_holds=50, tokens=LINES) as service:
        accepted = 0
        for number in range(200):
            held = acquire(f"lock/{number}")
            release = {"op": "release", "key": held["key"], "owner": held["owner"], "delay": 600}
            accepted += perform(service, held, release).status_code == 200
        assert accepted == 50
        assert service.service.holds.count() == 50


def test_a_first_batch_does_not_take_more_than_max_holds() -> None:
    with running(max_holds=50, tokens=LINES) as service:
        assert perform(service, *(acquire(f"lock/{number}") for number in range(51))).status_code == 429
        assert perform(service, *(acquire(f"lock/{number}") for number in range(50))).status_code == 200


def test_requests_side_by_side_are_not_granted_more_than_max_holds() -> None:
    with running(max_holds=5, tokens=LINES) as service, ThreadPoolExecutor(10) as threads:
        store, arrived = service.service.store, threading.Semaphore(0)
        gate = asyncio.Event()
        usual = store.perform

        async def slow(ops: Any) -> Any:
            arrived.release()
            await gate.wait()
            return await usual(ops)

        service.service.store.perform = slow  # type: ignore[method-assign]
        asked = [threads.submit(perform, service, acquire(f"lock/{number}")) for number in range(10)]
        for _ in range(5):
            assert arrived.acquire(timeout=END)
        refused = [each.result(END).status_code for each in wait(asked, END, FIRST_COMPLETED).done]
        service.on_loop(gate.set)
        statuses = [each.result(END).status_code for each in asked]
        assert set(refused) == {429}
        assert sorted(statuses) == [200] * 5 + [429] * 5


def test_a_hold_with_a_delay_counts_until_its_key_is_open_again() -> None:
    with running(max_holds=1, tokens=LINES) as service:
        held = acquire("lock/a", ttl=0.02, delay=600)
        renewed = {"op": "renew", "key": held["key"], "owner": held["owner"], "ttl": 0.02}
        assert perform(service, held, renewed).status_code == 200
        _until_closed(service, held["key"])
        assert perform(service, acquire("lock/b")).status_code == 429


def _until_closed(service: Running, key: str) -> None:
    for _ in range(1000):
        if perform(service, {"op": "read", "key": key}).json()["replies"][0]["state"] == "closed":
            return
    raise AssertionError("the hold did not expire")


def test_a_plain_release_of_a_hold_with_a_delay_frees_its_place() -> None:
    with running(max_holds=1, tokens=LINES) as service:
        held = acquire("lock/a", delay=600)
        release = {"op": "release", "key": held["key"], "owner": held["owner"]}
        assert perform(service, held, release).status_code == 200
        assert perform(service, acquire("lock/b")).status_code == 200


def test_items_that_were_taken_count_as_holds() -> None:
    with running(max_holds=2, tokens=LINES) as service:
        url = f"http://:{TOKENS['write']}@127.0.0.1:{service.port}"
        with solely.Client(url) as once:
            queue = once.queue("jobs")
            for number in range(4):
                queue.push(str(number), {"n": number})
            first, second = queue.take(ttl=60), queue.take(ttl=60)
            assert first is not None
            assert second is not None
            with pytest.raises(solely.StoreError, match="max_holds"):
                queue.take(ttl=60)
            assert first.ack()
            assert second.give_back(delay=600)  # closed meanwhile
            assert queue.take(ttl=60) is not None
            with pytest.raises(solely.StoreError, match="max_holds"):
                queue.take(ttl=60)


def test_a_claim_is_not_renewed_past_max_ttl_by_a_token_of_ones_own_making(capped: Running) -> None:
    held = acquire(f"claim/{fresh('long')}")
    perform(capped, held)
    facts = post(capped, "/v1/claims/claim", {"key": fresh("sample")}).json()["token"]
    token = _with_ttl(facts, held, 30 * DAY)
    refused(post(capped, "/v1/claims/renew", {"token": token}), "max_ttl")


def _with_ttl(sample: str, held: dict[str, Any], ttl: float) -> str:
    """A token as the library makes it, of this hold, which says that it was taken for so long."""
    return write_token(read_token(sample)._replace(key=held["key"], owner=held["owner"], ttl=ttl))
