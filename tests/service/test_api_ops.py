"""POST /v1/ops: what may be performed by whom, and what an op that cannot be is told."""

from typing import Any, get_type_hints

import msgspec
import pytest

import solely
from solely.names import AUDIT
from solely.ops import OPS
from solely.stores.http import codec
from solely.testing.harness import fresh
from tests.service.serving import LINES, TOKENS, Running, bearer, running


def perform(service: Running, scope: str, *ops: dict[str, Any]) -> Any:
    return service.post("/v1/ops", {"ops": ops}, headers=bearer(TOKENS[scope]))


def acquire(key: str, **more: Any) -> dict[str, Any]:
    return {"op": "acquire", "key": key, "owner": fresh("me"), "ttl": 10, **more}


def test_ops_and_replies_are_plain_json(guarded: Running) -> None:
    key, owner = f"claim/{fresh('a')}", fresh("owner")
    answer = perform(
        guarded, "write",
        {"op": "acquire", "key": key, "owner": owner, "ttl": 10},
        {"op": "finish", "key": key, "owner": owner, "value": "YgD/", "keep": 60},
        {"op": "release", "key": key, "owner": owner},
        {"op": "hit", "key": "limit/x", "owner": owner, "limit": 1, "per": 10},
        {"op": "take", "queue": fresh("empty"), "owner": owner, "ttl": 10},
        {"op": "mark", "key": f"mark/{owner}", "owner": owner, "ttl": 10},
    ).json()["replies"]  # fmt: skip
    held, done, released, allowed, nothing, first = answer
    assert (held["reply"], held["state"], held["owner"], 9.9 < held["left"] <= 10) == ("entry", "held", owner, True)
    assert (done["state"], done["value"]) == ("done", "YgD/")
    assert released == {"reply": "released", "outcome": "released"}
    assert allowed == {"reply": "allowance", "allowed": True, "hits": 1, "retry_after": 0.0}
    assert (nothing, first) == ({"reply": "none"}, {"reply": "yes_no", "yes": True})


def test_every_op_of_the_library_has_its_json_and_its_schema(guarded: Running) -> None:
    schemas = guarded.get("/openapi.json").json()["components"]["schemas"]
    for op in OPS:
        told = schemas[f"{op.__name__}Op"]["properties"]
        assert set(told) == {"op", *op._fields}  # type: ignore[attr-defined]
        assert told["op"]["enum"] == [op.__name__.lower()]


@pytest.mark.parametrize(
    ("scope", "op", "status"),
    [
        ("read", {"op": "read", "key": "lock/a"}, 200),
        ("read", acquire("lock/scope"), 403),
        ("read", {"op": "mark", "key": "mark/a", "owner": "me", "ttl": 1}, 403),
        ("write", {"op": "clear", "key": "mark/a", "fence": 1, "reason": "forget"}, 200),
        ("write", {"op": "clear", "key": "lock/a", "fence": 1, "reason": "mine now"}, 403),
        ("admin", {"op": "clear", "key": "lock/a", "fence": 1, "reason": "stuck"}, 200),
        ("admin", {"op": "clear", "key": f"item/{AUDIT}/x", "fence": 1, "reason": "to hide it"}, 403),
        ("admin", {"op": "push", "queue": AUDIT, "id": "x", "payload": ""}, 403),
        ("admin", {"op": "take", "queue": AUDIT, "owner": "me", "ttl": 1}, 403),
        ("admin", {"op": "amend", "queue": AUDIT, "id": "x", "value": None, "expected": ""}, 403),
        ("read", {"op": "count", "queue": AUDIT}, 200),
        ("read", {"op": "amend", "queue": "q", "id": "x", "value": "", "expected": ""}, 403),
        ("write", {"op": "amend", "queue": "q", "id": "x", "value": None, "expected": ""}, 200),
        ("write", {"op": "amend", "queue": "q", "id": "x", "value": ""}, 400),
        ("write", {"op": "take", "queue": "q", "owner": "me", "ttl": 1, "client": "c"}, 200),
        ("write", {"op": "release", "key": "line/q", "owner": "me"}, 200),
        ("admin", {"op": "release", "key": "line/queue%3A~alerts%2Foutbox", "owner": "me"}, 403),
        ("write", acquire("line/q"), 400),
        ("admin", acquire("item/queue/x"), 400),
        ("write", acquire("lock/long", ttl=86_401), 400),
        ("write", acquire("nokind"), 400),
        ("write", acquire("lock/\0"), 400),
        ("write", acquire("lock/" + "é" * 1100), 400),
        ("write", acquire("lock/a", more=1), 400),
        ("write", {"op": "finish", "key": "claim/a", "owner": "me", "value": "not base64!", "keep": 1}, 400),
        ("write", {"op": "hit", "key": "limit/a", "owner": "me", "limit": 10_001, "per": 1}, 400),
        ("write", {"op": "unknown", "key": "lock/a"}, 400),
    ],
)
def test_who_may_have_what_performed(guarded: Running, scope: str, op: dict[str, Any], status: int) -> None:
    answer = perform(guarded, scope, {"op": "read", "key": "lock/b"}, op)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]


def test_nothing_is_performed_of_a_batch_that_is_refused(guarded: Running) -> None:
    key = f"lock/{fresh('a')}"
    assert perform(guarded, "write", acquire(key), acquire("item/q/x")).status_code == 400
    assert perform(guarded, "read", {"op": "read", "key": key}).json()["replies"][0]["state"] == "free"


def test_a_clear_is_in_the_audit_log(guarded: Running) -> None:
    reason = fresh("reason")
    perform(guarded, "admin", {"op": "clear", "key": "lock/audited", "fence": 1, "reason": reason})
    record = guarded.run(guarded.service.audit.records(limit=1))[0]
    assert (record.action, record.key, record.reason) == ("ops.clear", "lock/audited", reason)
    assert record.outcome == "nothing"  # it was not held


def test_an_op_that_fails_harms_no_neighbour_and_says_little() -> None:
    with running(url="memory://?max_size=3", tokens=LINES, apps="none") as service:
        batch = [acquire(f"lock/{number}") for number in range(5)]
        replies = perform(service, "write", *batch).json()["replies"]
        assert [reply["reply"] for reply in replies] == ["entry"] * 3 + ["failed"] * 2
        assert (replies[4]["problem"], "max_size" in replies[4]["detail"]) == ("store-full", False)
        url = f"http://:{TOKENS['write']}@127.0.0.1:{service.port}"
        with solely.Client(url) as once, pytest.raises(solely.StoreFull):
            once.lock("another")


def test_holds_are_counted_and_capped() -> None:
    with running(max_holds=2, tokens=LINES) as service:
        first, second, third = (acquire(f"lock/{number}") for number in range(3))
        assert perform(service, "write", first, second).status_code == 200
        refused = perform(service, "write", third)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert perform(service, "write", {"op": "release", "key": "lock/0", "owner": first["owner"]}).status_code == 200
        assert perform(service, "write", third).status_code == 200


def test_while_the_service_stops_what_is_held_is_let_go_and_nothing_is_granted() -> None:
    with running(tokens=LINES) as service:
        held = acquire("lock/a")
        assert perform(service, "write", held).status_code == 200
        service.on_loop(service.service.stopping.set)
        assert perform(service, "write", acquire("lock/b")).status_code == 503
        told = perform(service, "write", {"op": "release", "key": "lock/a", "owner": held["owner"]})
        assert told.json()["replies"] == [{"reply": "released", "outcome": "released"}]


def test_what_both_ends_of_the_wire_say_is_the_same() -> None:
    ops = [op(*(_sample(kind) for kind in get_type_hints(op).values())) for op in OPS]
    encoded = codec.encode(ops)
    batch = msgspec.json.decode(encoded.body, type=codec.Batch)
    assert [codec.op_of(each) for each in batch.ops] == ops


def _sample(kind: Any) -> Any:
    return {str: "lock/é", float: 1.5, bytes: b"\x00\xff", bytes | None: None, bool: True, int: 7}[kind]
