"""What is decided without any I/O: rules, doors, records, tapes, the policy page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from solely import InvalidInput
from solely.integrations.idempotency import (
    PROBLEMS,
    HttpRequest,
    HttpResponse,
    KeyAction,
    KeyChecker,
    RequestKey,
    ResponseRecorder,
    Rules,
    Step,
    StoredResponse,
)
from solely.integrations.idempotency.recorder import HOLD
from solely.integrations.idempotency.request import fingerprint
from solely.integrations.idempotency.response import MAX_RECORD, safe, unpacked
from solely.rules import stored_key

OPTIONS: list[dict[str, Any]] = [
    {"scope": "ann"},
    {"in_flight": "maybe"},
    {"wait": -1},
    {"ttl": 0},
    {"keep": float("nan")},
    {"retry_after": 0},
    {"retry_after": 1.5},
    {"max_request": True},
    {"max_response": 1 << 20},
    {"key_form": "["},
    {"methods": "POST"},
    {"policy_path": "policy"},
    {"secret": b"x" * 65},
    {"realm": ""},
]


def ann(request: HttpRequest) -> str:
    return "ann"


def ask(method: str = "POST", target: bytes = b"/orders", body: bytes = b"", **headers: str) -> HttpRequest:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HttpRequest(method, target, pairs, {}, body=body)


def status(admitted: Any) -> int:
    assert isinstance(admitted, HttpResponse)
    return admitted.status


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_rules_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=str(next(iter(options)))):
        Rules(**{"scope": ann, **options})


def test_a_scope_is_mandatory() -> None:
    with pytest.raises(TypeError, match="scope"):
        Rules()  # type: ignore[call-arg]


def test_the_door() -> None:
    checker = KeyChecker(Rules(scope=ann, max_request=10))
    assert checker.admit(ask(idempotency_key='"k"')) == RequestKey("ann", "k")
    assert checker.admit(ask("GET")) is None
    assert checker.admit(ask("PUT", idempotency_key='"k"')) is None
    assert status(checker.admit(ask())) == 400
    assert status(checker.admit(ask(idempotency_key="k"))) == 400
    assert status(checker.admit(ask(idempotency_key='"k"', content_length="11"))) == 413
    assert status(checker.admit(ask(idempotency_key='"k"', content_length="9" * 5000))) == 413
    assert status(checker.admit(ask(idempotency_key='"k"', content_length="-1"))) == 400
    assert status(KeyChecker(Rules(scope=lambda request: None)).admit(ask(idempotency_key='"k"'))) == 403


def test_the_longest_key_that_any_form_allows_fits_every_store() -> None:
    checker = KeyChecker(Rules(scope=ann, key_form=".+", realm="r" * 64))
    key = checker.admit(ask(idempotency_key=f'"{"x" * 400}"'))
    assert isinstance(key, RequestKey)
    assert stored_key("claim", checker.claim_arguments(key, ask())["key"])
    assert status(checker.admit(ask(idempotency_key=f'"{"x" * 401}"'))) == 400


def test_a_key_can_be_optional_or_required_here_and_there() -> None:
    assert KeyChecker(Rules(scope=ann, required=False)).admit(ask()) is None
    here = KeyChecker(Rules(scope=ann, required=lambda request: request.target == b"/orders"))
    assert status(here.admit(ask())) == 400
    assert here.admit(ask(target=b"/login")) is None
    assert here.admit(ask(target=b"/login", idempotency_key='"k"')) == RequestKey("ann", "k")


def test_the_principal_is_part_of_the_key_and_not_readable_in_it() -> None:
    checker = KeyChecker(Rules(scope=ann, secret=b"salt"))
    request = ask(idempotency_key='"k"')
    keys = {
        checker.claim_arguments(RequestKey(who, key), request)["key"]
        for who in ("ann", "a", "bob")
        for key in ("k", "nn/k")
    }
    assert len(keys) == 6
    assert not any("ann" in key or "bob" in key for key in keys)
    plain = KeyChecker(Rules(scope=ann)).claim_arguments(RequestKey("ann", "k"), request)["key"]
    assert plain not in keys


@pytest.mark.parametrize(
    "other",
    [
        ask("PATCH", body=b"x"),
        ask(target=b"/orders?a=1", body=b"x"),
        ask(target=b"/order", body=b"sx"),
        ask(body=b"y"),
        ask(body=b"x", host="else.example"),
    ],
    ids=repr,
)
def test_another_method_host_uri_or_payload_is_another_request(other: HttpRequest) -> None:
    one = ask(body=b"x")
    assert fingerprint(one, one.body, b"") != fingerprint(other, other.body, b"")
    assert fingerprint(one, one.body, b"") == fingerprint(ask(body=b"x", user_agent="new"), b"x", b"")
    assert fingerprint(one, one.body, b"") != fingerprint(one, one.body, b"secret")


def test_a_record_is_read_back() -> None:
    record = StoredResponse(201, [(b"Location", b"/x\xe9")], b'{"a":\n1}\x00\xff', 7)
    assert unpacked(record.packed()) == record
    tombstone = record.tombstone()
    assert unpacked(tombstone.packed()) == tombstone != record
    assert unpacked(StoredResponse(204, [], b"", 7).packed()) == StoredResponse(204, [], b"", 7)


@pytest.mark.parametrize("foreign", [b"", b"x", b"5", b"[1]", b"[2,200,[],0,true]\n", "text", None], ids=repr)
def test_a_record_of_an_unknown_form_is_not_kept(foreign: Any) -> None:
    assert unpacked(foreign) is None
    response = KeyChecker(Rules(scope=ann)).replay(None, ask())
    assert response.status == 410


def test_a_record_too_large_for_the_store_is_a_tombstone() -> None:
    large = StoredResponse(201, [(b"Location", b"/x")], b"x" * MAX_RECORD, 7)
    assert unpacked(large.packed_to_fit()) == large.tombstone()
    heads = StoredResponse(201, [(b"X", b"x" * MAX_RECORD)], b"", 7)
    assert unpacked(heads.packed_to_fit()) == StoredResponse(201, [], None, 7)


def test_unsafe_headers_are_not_kept() -> None:
    names = [b"Set-Cookie", b"DATE", b"Connection", b"X-Hop", b"Content-Length", b"X-Mine", b"Content-Type", b"ETag"]
    headers = [(name, b"x-hop, close" if name == b"Connection" else b"1") for name in names]
    assert [name for name, _ in safe(headers, ["x-mine"])] == [b"Content-Type", b"ETag"]


def recorder(**options: Any) -> ResponseRecorder:
    return ResponseRecorder(Rules(scope=ann, keep=60, max_response=10, **options), clock=lambda: 1000.0)


def test_a_response_in_one_piece_is_settled_before_it_is_sent() -> None:
    one = recorder()
    one.open(201, [(b"location", b"/1")])
    assert one.feed(b"hello", last=True) == Step(
        StoredResponse(201, [(b"location", b"/1")], b"hello", 1060), True, b"hello"
    )
    assert one.broken("/p") is None
    assert one.opening()[-1] == (b"Idempotency-Expires", b"Thu, 01 Jan 1970 00:17:40 GMT")


def test_a_response_of_declared_length_is_held_back_until_it_is_settled() -> None:
    one = recorder()
    one.open(200, [(b"content-length", b"4")])
    assert one.feed(b"ab", last=False) == HOLD
    assert one.feed(b"cd", last=False) == HOLD
    assert one.feed(b"", last=True) == Step(StoredResponse(200, [], b"abcd", 1060), True, b"abcd")


def test_a_stream_is_sent_as_it_comes_and_settled_before_its_last_piece() -> None:
    one = recorder()
    one.open(200, [])
    assert one.feed(b"ab", last=False) == Step(None, True, b"ab")
    assert one.feed(b"cd", last=False) == Step(None, False, b"cd")
    assert one.feed(b"ef", last=True) == Step(StoredResponse(200, [], b"abcdef", 1060), False, b"ef")


def test_a_stream_that_outgrows_what_is_kept_leaves_a_tombstone_at_that_moment() -> None:
    one = recorder()
    one.open(200, [])
    assert one.feed(b"x" * 9, last=False).settle is None
    assert one.feed(b"xx", last=False) == Step(StoredResponse(200, [], None, 1060), False, b"xx")
    assert one.feed(b"x", last=True) == Step(None, False, b"x")


def test_a_stream_that_breaks_off_leaves_a_tombstone() -> None:
    one = recorder()
    one.open(200, [])
    one.feed(b"x", last=False)
    assert one.broken("/p") == StoredResponse(200, [], None, 1060)
    assert one.broken("/p") is None


@pytest.mark.parametrize("code", [500, 503, 429, 401])
def test_a_failure_is_released_before_its_last_piece(code: int) -> None:
    one = recorder()
    one.open(code, [])
    assert one.feed(b"so", last=False) == Step(None, True, b"so")
    assert one.feed(b"rry", last=True) == Step(KeyAction.RELEASE, False, b"rry")
    assert one.opening() == []


@pytest.mark.parametrize("code", [200, 303, 400, 404, 409, 422])
def test_every_other_response_is_kept(code: int) -> None:
    one = recorder()
    one.open(code, [])
    assert one.feed(b"ok", last=True).settle == StoredResponse(code, [], b"ok", 1060)


def test_a_handler_that_fails_is_released_or_kept_as_the_rules_say() -> None:
    assert recorder().broken("/p") is KeyAction.RELEASE
    kept = recorder(releases=lambda code: False).broken("/p")
    assert isinstance(kept, StoredResponse)
    assert kept.status == 500
    assert json.loads(kept.body or b"")["type"] == "/p#failed"


def test_a_body_without_a_status_is_an_error_of_the_application() -> None:
    with pytest.raises(RuntimeError, match="status"):
        recorder().feed(b"x", last=True)


def test_the_policy_page_has_an_anchor_for_every_problem_and_states_the_rules() -> None:
    checker = KeyChecker(Rules(scope=ann, keep=3600, key_form="[a-f0-9<]{32}", wait=7))
    page = checker.admit(ask("GET", b"/idempotency-policy"))
    assert isinstance(page, HttpResponse)
    text = page.body.decode()
    left_out = {problem.name for problem in PROBLEMS if f'id="{problem.name}"' not in text}
    assert left_out == {"in-flight"}  # in strict mode it is the other way round
    for words in ("3600 seconds", "[a-f0-9&lt;]{32}", "up to 7 seconds", "401, 408, 425, 429, 500 to 599"):
        assert words in text
    assert checker.admit(ask("GET", b"/orders")) is None
    assert (
        KeyChecker(Rules(scope=ann, policy_url="https://x.example/p")).admit(ask("GET", b"/idempotency-policy")) is None
    )


def test_a_problem_points_at_the_page_wherever_the_application_is_mounted() -> None:
    checker = KeyChecker(Rules(scope=ann))
    response = checker.admit(HttpRequest("POST", b"/v 1/orders", [], {}, root="/v 1"))
    assert isinstance(response, HttpResponse)
    document = json.loads(response.body)
    assert document["type"] == "/v%201/idempotency-policy#key-missing"
    assert isinstance(
        checker.admit(HttpRequest("GET", b"/v%201/idempotency-policy", [], {}, root="/v 1")), HttpResponse
    )
    assert dict(response.headers)[b"Link"].startswith(b"</v%201/idempotency-policy#key-missing>;")


def test_the_policy_page_says_whether_a_key_may_come_without_quotes() -> None:
    checkers = [KeyChecker(Rules(scope=ann, bare_keys=bare)) for bare in (False, True)]
    pages = [checker.admit(ask("GET", b"/idempotency-policy")) for checker in checkers]
    bodies = [page.body.decode() for page in pages if isinstance(page, HttpResponse)]
    assert ["or without the quotes" in body for body in bodies] == [False, True]
