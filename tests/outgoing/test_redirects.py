"""Redirects: how many are followed, with which method, and who gets credentials."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from solely.outgoing import CallFailed, Request
from tests.apps.hooks import Answer, Hooks, hooks
from tests.certificates import make_certificate, server_side
from tests.outgoing.conftest import Making
from tests.outgoing.resolver import Resolver

CREDENTIALS = {
    "Authorization": "Bearer hidden-1",
    "Cookie": "hidden-2",
    "Private-Token": "hidden-3",
    "Webhook-Signature": "v1,hidden-4",
    "X-Anything": "hidden-5",
}
SAFE = {"Accept": "text/plain", "Content-Type": "text/plain"}


@pytest.fixture
async def other() -> AsyncIterator[Hooks]:
    async with hooks() as server:
        yield server


def to(url: str, status: int = 302) -> Answer:
    return Answer(status, (("Location", url),))


async def test_three_are_followed_and_no_more(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([to("/1"), to("../2#x"), to("?q=3")])
    response = await make().call(Request("GET", receiver.url))
    assert [came.path for came in receiver.received] == ["/hook/of-the-test", "/1", "/2", "/2?q=3"]
    assert response.url == f"http://127.0.0.1:{receiver.port}/2?q=3"
    receiver.answers.extend([to("/again")] * 9)
    with pytest.raises(CallFailed, match="redirects more than 3 times") as raised:
        await make().call(Request("GET", receiver.url))
    assert raised.value.permanent
    assert len(receiver.received) == 8


async def test_none_is_followed_if_the_request_or_the_settings_say_so(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([to("/1")] * 3)
    assert (await make(max_redirects=0).call(Request("GET", receiver.url))).status == 302
    assert (await make().call(Request("GET", receiver.url, max_redirects=0))).status == 302
    with pytest.raises(CallFailed, match="answered 302; redirects are not followed") as raised:
        await make(max_redirects=0).call_ok(Request("GET", receiver.url))
    assert raised.value.permanent
    assert len(receiver.received) == 3


@pytest.mark.parametrize(
    ("status", "method", "follows"),
    [
        (301, "POST", "GET"),
        (302, "PUT", "GET"),
        (303, "POST", "GET"),
        (303, "HEAD", "HEAD"),
        (301, "GET", "GET"),
        (307, "POST", "POST"),
        (308, "PATCH", "PATCH"),
    ],
)
async def test_with_which_method(make: Making, receiver: Hooks, status: int, method: str, follows: str) -> None:
    receiver.answers.append(to("/next", status))
    body = b"" if method in ("GET", "HEAD") else b"sent"
    await make().call_ok(Request(method, receiver.url, SAFE | CREDENTIALS, body))
    first, second = receiver.received
    assert (first.method, second.method) == (method, follows)
    assert second.body == (body if follows == method else b"")
    assert ("content-type" in second.headers) is (follows == method)
    assert second.headers["authorization"] == "Bearer hidden-1"


@pytest.mark.parametrize("status", [302, 307])
async def test_another_origin_gets_no_credentials(make: Making, receiver: Hooks, other: Hooks, status: int) -> None:
    receiver.answers.append(to(other.url, status))
    other.answers.append(to(receiver.url, status))  # nor do they come back
    request = Request("GET", receiver.url, SAFE | CREDENTIALS, fresh_headers=lambda: {"X-Signature": "hidden-6"})
    await make().call_ok(request)
    assert all(name.lower() in receiver.received[0].headers for name in (*SAFE, *CREDENTIALS, "X-Signature"))
    for came in (other.received[0], receiver.received[1]):
        assert "hidden" not in str(came.headers)
        assert came.headers["accept"] == "text/plain"
    assert other.received[0].headers["host"] == f"127.0.0.1:{other.port}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "hooks.example")


async def test_none_leads_from_https_to_http(
    make: Making, receiver: Hooks, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",)))
    async with hooks(server_side(certificate)) as secure:
        secure.answers.append(to(receiver.url))
        receiver.answers.append(to(f"https://hooks.example:{secure.port}/"))
        caller = make(ca_file=str(certificate))
        with pytest.raises(CallFailed, match="redirects from https to http: refused") as raised:
            await caller.call(Request("GET", f"https://hooks.example:{secure.port}/"))
        assert raised.value.permanent
        assert receiver.received == []
        assert (await caller.call(Request("GET", receiver.url))).certificate_days


@pytest.mark.parametrize(
    "location",
    [
        "http://[::1",
        "mailto:a@b.example",
        "http://a:b@c.example/",
        "http://x:y/",
        "//xn--a\u2460/",
        f"//xn--{'x' * 300}/",
    ],
)
async def test_one_that_leads_nowhere_is_a_failure(make: Making, receiver: Hooks, location: str) -> None:
    receiver.answers.append(to(location))
    with pytest.raises(CallFailed, match=r"^api: 127\.0\.0\.1 redirects to an invalid URL$") as raised:
        await make().call(Request("GET", receiver.url))
    assert raised.value.permanent


async def test_a_redirect_without_a_location_is_a_response(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(Answer(302))
    assert (await make().call(Request("GET", receiver.url))).status == 302
