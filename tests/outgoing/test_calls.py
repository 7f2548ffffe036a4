"""Calls: what arrives at a real receiver, what comes back, and what becomes of a receiver that misbehaves."""

import asyncio
import secrets
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

import solely
from solely.client import restricted
from solely.errors import NameReserved
from solely.outgoing import Caller, CallFailed, OutgoingSettings, Request, Response, Timings
from solely.outgoing.message import retry_after
from tests.apps.hooks import DROP, FLOOD, HANG, SLOW_BODY, Answer, Hooks, hooks
from tests.certificates import make_certificate, server_side
from tests.outgoing.conftest import Making
from tests.outgoing.resolver import Resolver


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "hooks.example")


# -- requests and responses


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_any_method_with_headers_and_body(make: Making, receiver: Hooks, method: str) -> None:
    receiver.answers.append(Answer(201, (("X-Answer", "yes"),), b"body"))
    sent = b"" if method in ("GET", "HEAD") else b"\x00sent"
    response = await make().call(Request(method, receiver.url, {"X-Asked": "it", "User-Agent": "test"}, sent))
    (came,) = receiver.received
    assert (came.method, came.path, came.body) == (method, "/hook/of-the-test", sent)
    assert (came.headers["x-asked"], came.headers["user-agent"]) == ("it", "test")
    assert came.headers["accept-encoding"] == "identity"
    assert (response.status, response.headers["x-answer"], response.url) == (201, "yes", receiver.url)
    assert response.body == (b"" if method == "HEAD" else b"body")
    assert response.complete


async def test_json_goes_and_comes(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(Answer(200, body=b'{"id": 7}'))
    response = await make().call_ok(Request.json("POST", receiver.url, {"a": "ü"}))
    assert receiver.received[0].headers["content-type"] == "application/json"
    assert receiver.received[0].body.decode() == '{"a":"ü"}'
    assert response.json(dict[str, int]) == {"id": 7}
    with pytest.raises(CallFailed, match="JSON that was not expected: Expected `str`") as raised:
        response.json(dict[str, str])
    assert raised.value.permanent


@pytest.mark.parametrize("status", [200, 204, 304, 400, 401, 404, 418])
async def test_a_call_returns_every_status(make: Making, receiver: Hooks, status: int) -> None:
    receiver.answers.append(Answer(status, body=b"" if status in (204, 304) else b"why"))
    response = await make().call(Request("GET", receiver.url))
    assert (response.status, response.ok) == (status, status < 300)
    assert len(receiver.received) == 1


@pytest.mark.parametrize(("status", "permanent"), [(304, True), (400, True), (404, True), (429, False), (503, False)])
async def test_call_ok_raises_for_every_other_status(
    make: Making, receiver: Hooks, status: int, permanent: bool
) -> None:
    receiver.answers.append(Answer(status, (("Retry-After", "7"),), b"" if status == 304 else b"why\nso"))
    with pytest.raises(CallFailed, match=f"^api: 127.0.0.1 answered {status}") as raised:
        await make(retries=0).call_ok(Request("GET", receiver.url))
    failure = raised.value
    assert (failure.permanent, failure.retry_after, failure.phase) == (permanent, None if permanent else 7.0, "")
    assert isinstance(failure.response, Response)
    assert failure.response.status == status


async def test_the_clock_of_the_receiver(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(Answer(headers=(("Date", "Wed, 21 Oct 2015 07:28:00 GMT"),)))
    caller = make()
    first = await caller.call(Request("GET", receiver.url))
    second = await caller.call(Request("GET", receiver.url))
    assert (first.date, second.date) == (datetime(2015, 10, 21, 7, 28, tzinfo=UTC), None)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"method": "get"}, "method 'get' must be upper-case letters"),
        ({"method": "GET /x"}, "must be upper-case letters"),
        ({"url": "ftp://a.example"}, "url must begin with https:// or http://"),
        ({"url": "https://user:hidden-1@a.example"}, "url has a user or password in it"),
        ({"url": "https://a.example/hidden-1 x"}, "without spaces"),
        ({"url": "https://999.1.1.1/hidden-1"}, "names a host that cannot be"),
        ({"url": "https://user:hidden-1\u2100@a.example/"}, "is invalid: it must be ASCII"),
        ({"headers": {"a b": "hidden-1"}}, "header 'a b' must be printable"),
        ({"headers": {"a": "hidden-1\r\nb: c"}}, "header 'a' must be printable"),
        ({"headers": {"Content-Length": "1"}}, "'Content-Length' is set by the call itself"),
        ({"headers": {"transfer-encoding": "chunked"}}, "'transfer-encoding' is set by the call itself"),
        ({"max_redirects": 11}, "max_redirects=11 is out of bounds"),
    ],
)
def test_an_invalid_request_is_refused_without_showing_secrets(given: dict[str, Any], text: str) -> None:
    with pytest.raises(solely.InvalidInput) as raised:
        Request(**{"method": "GET", "url": "https://a.example/", **given})
    assert text in str(raised.value)
    assert "hidden-1" not in str(raised.value)


# -- time and size


async def test_of_a_long_body_the_beginning_is_kept(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(body=b"12345"), Answer(body=b"123456"), Answer(body=b"f" * FLOOD)])
    caller = make(max_response=5)
    first, second, third = [await caller.call_ok(Request("GET", receiver.url)) for _ in range(3)]
    assert (first.body, first.complete) == (b"12345", True)
    assert (second.body, second.complete) == (b"12345", False)
    assert (third.body, third.complete) == (b"fffff", False)
    with pytest.raises(CallFailed, match="sent more than the 5 bytes that were read"):
        second.json(dict)
    async with asyncio.timeout(100):
        while not receiver.broken:
            await asyncio.sleep(0.01)


async def test_a_body_that_takes_too_long_is_a_failure_or_incomplete(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([SLOW_BODY, SLOW_BODY])
    with pytest.raises(CallFailed, match=r"no answer within 3 s") as raised:
        await make(timeout=3.0).call(Request("GET", receiver.url))
    assert raised.value.phase == "transfer"
    response = await make(body_timeout=0.2).call(Request("GET", receiver.url))
    assert response.ok
    assert not response.complete


async def test_the_time_of_each_phase(make: Making, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",)))
    async with hooks(server_side(certificate)) as receiver:
        caller = make(ca_file=str(certificate))
        url = f"https://hooks.example:{receiver.port}/"
        first, second = [await caller.call_ok(Request("GET", url)) for _ in range(2)]
    assert min(first.timings) > 0
    assert second.timings[:3] == (0.0, 0.0, 0.0)
    assert min(second.timings[3:]) > 0
    assert first.timings.total == sum(first.timings)
    assert isinstance(first.timings, Timings)


async def test_slowness_is_counted_where_it_is(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(Answer(body=b"x" * 5, how="slow body"))  # 50 ms per byte
    timings = (await make().call_ok(Request("GET", receiver.url))).timings
    assert timings.transfer > 0.15
    receiver.answers.append(Answer(how="slow head"))
    timings = (await make().call_ok(Request("GET", receiver.url))).timings
    assert timings.first_byte > 0.5
    assert timings.tls == 0.0


async def test_a_try_that_hangs_leaves_time_for_the_next(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(HANG)
    response = await make(timeout=30.0, try_timeout=3.0).call(Request("GET", receiver.url))
    assert response.ok
    assert len(receiver.received) == 2


async def test_a_failure_says_how_far_the_call_got(make: Making, receiver: Hooks) -> None:
    async with hooks() as gone:
        url = gone.url
    with pytest.raises(CallFailed, match=r"cannot connect to 127\.0\.0\.1: Connection refused$") as raised:
        await make(retries=0).call(Request("GET", url))
    assert raised.value.phase == "connect"
    receiver.answers.extend([HANG, DROP])
    with pytest.raises(CallFailed, match="no answer within") as raised:
        await make(retries=0, timeout=3.0).call(Request("GET", receiver.url))
    assert raised.value.phase == "first_byte"
    with pytest.raises(CallFailed, match="did not answer: RemoteProtocolError") as raised:
        await make(retries=0).call(Request("GET", receiver.url))
    assert (raised.value.phase, raised.value.permanent) == ("first_byte", False)


# -- TLS


async def test_the_peer_is_known(make: Making, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",)))
    async with hooks(server_side(certificate)) as receiver:
        url = f"https://hooks.example:{receiver.port}/"
        response = await make(ca_file=str(certificate)).call(Request("GET", url))
        assert response.address == "127.0.0.1"
        assert 1 < (response.certificate_days or 0) <= 2
        blind = await make(verify=False).call(Request("GET", url))
        assert (blind.status, blind.certificate_days) == (200, None)
        with pytest.raises(CallFailed, match="certificate"):
            await make(retries=0).call(Request("GET", url))


async def test_without_tls_there_is_no_certificate(make: Making, receiver: Hooks) -> None:
    assert (await make().call(Request("GET", receiver.url))).certificate_days is None


# -- retries


@pytest.mark.parametrize("answer", [Answer(500), Answer(503), Answer(408), Answer(425), Answer(429), DROP])
async def test_what_may_pass_is_tried_again(make: Making, receiver: Hooks, answer: Answer) -> None:
    receiver.answers.extend([answer, answer])
    assert (await make().call(Request("PUT", receiver.url, body=b"x"))).ok
    assert [came.body for came in receiver.received] == [b"x"] * 3


async def test_after_the_last_try_its_response_is_returned(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(502, body=b"bad")] * 9)
    response = await make(retries=1).call(Request("GET", receiver.url))
    assert (response.status, response.text, len(receiver.received)) == (502, "bad", 2)


async def test_what_must_not_be_done_twice_is_not_sent_twice(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(503), DROP])
    assert (await make().call(Request("POST", receiver.url))).status == 503
    with pytest.raises(CallFailed, match="did not answer"):
        await make().call(Request("POST", receiver.url))
    assert len(receiver.received) == 2
    receiver.answers.append(DROP)
    assert (await make().call(Request("POST", receiver.url, repeatable=True))).ok


async def test_what_was_not_sent_is_tried_again(make: Making, receiver: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.9",), ("127.0.0.1",)))  # nobody listens at the first
    assert (await make().call(Request("POST", f"http://hooks.example:{receiver.port}/"))).ok
    assert len(receiver.received) == 1


async def test_what_a_redirect_has_answered_was_sent(
    make: Making, receiver: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form was taken, and only the page behind it cannot be reached."""
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.9",)))  # nobody listens there
    receiver.answers.append(Answer(303, (("Location", f"http://hooks.example:{receiver.port}/"),)))
    with pytest.raises(CallFailed, match=r"cannot connect to hooks\.example: Connection refused") as raised:
        await make().call(Request("POST", receiver.url))
    assert raised.value.phase == "connect"
    assert len(receiver.received) == 1


async def test_fresh_headers_are_made_at_each_try(make: Making, receiver: Hooks) -> None:
    numbers = iter(range(9))
    receiver.answers.append(Answer(500))
    await make().call_ok(Request("GET", receiver.url, fresh_headers=lambda: {"X-Try": str(next(numbers))}))
    assert [came.headers["x-try"] for came in receiver.received] == ["0", "1"]


async def test_fresh_headers_are_checked_too(make: Making, receiver: Hooks) -> None:
    with pytest.raises(solely.InvalidInput, match="header 'a' must be printable"):
        await make().call(Request("GET", receiver.url, fresh_headers=lambda: {"a": "b\r\nc: d"}))
    assert receiver.received == []


def test_what_retry_after_may_say() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert retry_after("7") == 7
    assert 95 < (retry_after(soon) or 0) <= 100
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after("9" * 5000) == 3600
    assert retry_after("Wed, 21 Oct 2215 07:28:00 GMT") == 3600
    invalid = (
        "",
        "-1",
        "soon",
        "1.5",
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "1 Jan 1 00:00 +9999999999999999",
        "²",
        "1 " * 9,
    )
    assert [retry_after(text) for text in invalid] == [None] * len(invalid)


# -- the breaker


async def test_the_breaker_is_shared_by_callers_of_one_store(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(500)] * 5)
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as once:
        caller = make(once=once, breaker="b", retries=0)
        assert [(await caller.call(Request("GET", receiver.url))).status for _ in range(5)] == [500] * 5
        with pytest.raises(CallFailed, match="is open for another") as raised:
            await make("other", once=once, breaker="b").call(Request("GET", receiver.url))
        assert 25 < (raised.value.retry_after or 0) <= 30
        assert (await make("third", once=once).call(Request("GET", receiver.url))).ok


async def test_a_refusal_of_the_receiver_opens_no_breaker(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(404)] * 6)
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as once:
        caller = make(once=once)
        assert [(await caller.call(Request("GET", receiver.url))).status for _ in range(7)] == [404] * 6 + [200]


async def test_a_store_that_is_away_stops_no_call(make: Making, receiver: Hooks) -> None:
    async with solely.AsyncClient("redis://127.0.0.1:1") as away:
        began = time.monotonic()
        assert (await make(once=away).call(Request("GET", receiver.url))).ok
        assert time.monotonic() - began < 10


async def test_a_breaker_with_the_name_of_another_is_an_error(make: Making, receiver: Hooks) -> None:
    def check(_: object) -> None:
        raise NameReserved("not yours")

    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as once:
        with pytest.raises(NameReserved, match="not yours"):
            await make(once=restricted(once, check)).call(Request("GET", receiver.url))
    assert receiver.received == []


# -- bounds of a caller


async def test_no_more_calls_at_once_than_the_settings_say(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(HANG)
    caller = make(at_once=1, timeout=30.0)
    first, second = (asyncio.ensure_future(caller.call(Request("GET", receiver.url))) for _ in range(2))
    async with asyncio.timeout(100):
        while not receiver.received:
            await asyncio.sleep(0.01)
    await asyncio.wait([second], timeout=0.1)
    assert len(receiver.received) == 1
    first.cancel()
    assert (await second).ok


async def test_connections_are_kept(make: Making, receiver: Hooks) -> None:
    caller = make()
    for _ in range(3):
        await caller.call(Request("GET", receiver.url))
    assert (len(receiver.received), receiver.connections) == (3, 1)


def test_settings_have_bounds() -> None:
    with pytest.raises(solely.InvalidInput, match=r"guard_allow: 10\.0\.0\.1/8 has host bits set"):
        OutgoingSettings(guard_allow=("10.0.0.1/8",))
    with pytest.raises(solely.InvalidInput, match=r"api: ca_file '/none' cannot be read"):
        Caller("api", OutgoingSettings(ca_file="/none"))
