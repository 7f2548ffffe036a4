"""No error and no log line shows what was sent as a secret, nor what a receiver sent back as one."""

import logging

import pytest

from solely.outgoing import CallFailed, Request
from tests.apps.hooks import Answer, Hooks
from tests.outgoing.conftest import Making

HEADERS = {"Authorization": "Bearer hidden-1-of-ours", "Private-Token": "hidden-2-of-ours"}
SETS = (("Set-Cookie", "sid=hidden-3-of-theirs; Path=/"), ("X-Token", "hidden-4-of-theirs"))


def request(receiver: Hooks) -> Request:
    url = f"http://127.0.0.1:{receiver.port}/hidden-5/path?key=hidden-6"
    return Request(
        "POST",
        url,
        HEADERS,
        b"hidden-7",
        secrets=("/hidden-5/path", "key=hidden-6"),
        fresh_headers=lambda: {"X-Signature": "hidden-8-of-ours"},
    )


async def test_errors_show_none(make: Making, receiver: Hooks) -> None:
    """Also if the receiver repeats what it got."""
    asked = request(receiver)
    echo = f"hidden-1-of-ours {asked.headers} {asked.url} hidden-8-of-ours"
    receiver.answers.append(Answer(400, SETS, echo.encode()))
    with pytest.raises(CallFailed, match="answered 400") as raised:
        await make().call_ok(asked)
    shown = f"{raised.value!r} {raised.value} {asked!r} {raised.value.response!r}"
    assert "hidden" not in shown
    assert raised.value.__cause__ is None


async def test_nothing_is_logged_at_debug_level(
    make: Making, receiver: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers.extend([Answer(headers=SETS), Answer(500, SETS)])
    session = make().session()
    await session.call(request(receiver))
    await session.call(request(receiver))
    assert "hidden" not in caplog.text
