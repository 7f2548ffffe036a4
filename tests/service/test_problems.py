"""Problem documents: whatever an error carries, its caller gets JSON and a Retry-After that is a number."""

from __future__ import annotations

import json
import math

import pytest

import solely
from solely import errors
from solely.service.problems import AGAIN, LATEST, problem_of
from solely.service.routes import PUBLIC, Call, Route
from tests.service.serving import running

ENDLESS = [math.inf, -math.inf, math.nan]
WAITING = [errors.Busy, errors.TimedOut, errors.Limited, errors.BreakerOpen]


@pytest.mark.parametrize("left", ENDLESS)
@pytest.mark.parametrize("kind", WAITING)
def test_a_time_that_has_no_end_is_told_as_the_longest_retry_after(kind: type[errors.SolelyError], left: float) -> None:
    problem = problem_of(kind("it is finished", key="a", left=left))
    assert problem.document.left is None
    assert AGAIN <= int(dict(problem.headers)[b"retry-after"]) <= LATEST
    assert problem.document.retry_after == (LATEST if left == math.inf else AGAIN)


@pytest.mark.parametrize("left", [0.2, 59.9, 599.9, 86_399.5])
def test_a_limit_says_one_time_and_not_two(left: float) -> None:
    problem = problem_of(errors.Limited("over the limit", key="a", left=left))
    assert problem.document.left == left
    assert problem.document.retry_after == math.ceil(left)
    assert dict(problem.headers)[b"retry-after"] == b"%d" % math.ceil(left)


def test_a_held_key_is_worth_another_try_before_its_hold_ends() -> None:
    problem = problem_of(errors.Busy("held", key="a", left=599.9))
    assert (problem.document.left, problem.document.retry_after) == (599.9, LATEST)


def test_a_key_that_stays_for_ever_is_refused_by_a_problem_and_not_by_a_bare_500() -> None:
    async def refuse(call: Call[None, None]) -> None:
        raise solely.Busy("lock 'a' is finished", key="a", left=math.inf)

    with running([Route("GET", "/v1/endless", PUBLIC, refuse, "Refuse")]) as it:
        answer = it.get("/v1/endless")
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"] == str(LATEST)
    assert answer.json()["type"].endswith("#busy")
    assert "left" not in json.loads(answer.text, parse_constant=pytest.fail)
