"""The limit of requests per client, and the cap of a route's body."""

from __future__ import annotations

import time

import msgspec
import pytest

from solely.service.problems import Problem
from solely.service.quotas import RequestLimit
from solely.service.routes import PUBLIC, Answer, Body, Call, Route
from tests.service.serving import running


def test_a_client_over_its_limit_is_refused_with_the_time_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limit = RequestLimit(2, 10.0, "events_limit")
    limit.check("ann")
    now[0] += 4
    limit.check("ann")
    with pytest.raises(Problem) as refused:
        limit.check("ann")
    assert refused.value.kind.status == 429
    assert refused.value.document.retry_after == pytest.approx(6.0)
    assert "2 requests of this token came within 10 s (events_limit)" in refused.value.document.detail
    limit.check("bob")  # others are not affected
    now[0] += 6
    limit.check("ann")
    with pytest.raises(Problem):
        limit.check("ann")


class Upload(Body):
    """What is sent."""

    text: str


class Size(Answer):
    """How much it was."""

    size: int


async def measure(call: Call[Upload, None]) -> Size:
    """Measures it."""
    return Size(size=len(call.body.text))


def test_only_a_route_that_says_so_takes_more_than_the_service_takes_in_general() -> None:
    cap = 1 << 20
    routes = [
        Route("POST", "/usual", PUBLIC, measure, cap=cap),
        Route("POST", "/large", PUBLIC, measure, cap=cap, over_max_body=True),
    ]
    with running(routes, max_body=1024) as it:
        for path, size, status in (
            ("/usual", 900, 200), ("/usual", 2_000, 413), ("/large", 2_000, 200), ("/large", cap, 413),
        ):  # fmt: skip
            body = msgspec.json.encode({"text": "x" * size})
            answer = it.http.post(path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == status, (path, size, answer.text)
