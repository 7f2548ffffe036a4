"""Login flows against Django's own login: cookies, values from one step to the next, and sessions that do not stick."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from solely import AsyncClient
from solely.apps.probes.checks import Checker
from solely.apps.probes.model import ProbeTarget
from solely.apps.probes.mutex import ProbeMutex
from solely.apps.probes.prober import Prober
from tests.apps.hooks import Answer, hooks
from tests.apps.probes.sites import PASSWORD, USER, django_login
from tests.apps.probes.test_mutex import Pauses

FORM = {"username": "{user}", "password": "{password}", "csrfmiddlewaretoken": "{token}"}
TOKEN = {"token": 'body:name="csrfmiddlewaretoken" value="([^"]+)"'}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with django_login() as address:
        yield address


@pytest.fixture
async def checker() -> AsyncIterator[Checker]:
    it = Checker(guard_allow=("127.0.0.0/8",))
    yield it
    await it.close()


def login(site: str, path: str = "/login/", password: str = PASSWORD, **changed: Any) -> ProbeTarget:
    """Opens the form, sends it, and opens a page that needs the session."""
    steps = [
        {"name": "form", "url": path, "extract": TOKEN},
        {"name": "login", "url": path, "form": FORM},
        {"name": "account", "url": "/account/", "signed_in": True, "expect": {"body": f"Signed in as {USER}"}},
    ]
    given = {
        "name": "login",
        "url": site,
        "steps": steps,
        "values": {"user": USER, "password": password},
        "timeout": 30,
    }
    return msgspec.convert({**given, "session_cookie": "sessionid", **changed}, ProbeTarget)


async def test_a_login_passes_with_the_time_of_each_step(checker: Checker, site: str) -> None:
    outcome = await checker.check(login(site))
    assert (outcome.error, outcome.status) == ("", 200)
    assert list(outcome.steps) == ["form", "login", "account"]
    assert all(seconds > 0 for seconds in outcome.steps.values())
    assert sum(outcome.steps.values()) == pytest.approx(sum(outcome.phases.values()))


async def test_a_value_may_come_from_a_cookie_as_well(checker: Checker, site: str) -> None:
    steps = [
        {"name": "form", "url": "/login/", "extract": {"token": "cookie:csrftoken"}},
        {"name": "login", "url": "/login/", "form": {"username": USER, "password": PASSWORD},
         "headers": {"X-CSRFToken": "{token}"}},
        {"name": "account", "url": "/account/", "signed_in": True},
    ]  # fmt: skip
    assert (await checker.check(login(site, steps=steps))).error == ""


async def test_a_wrong_password_fails_since_there_is_no_session(checker: Checker, site: str) -> None:
    outcome = await checker.check(login(site, password="wrong"))
    assert outcome.error == "step 'account': the session did not stick: there is no cookie 'sessionid'"
    outcome = await checker.check(login(site, password="wrong", session_cookie=""))
    assert outcome.error == "step 'account': the session did not stick: the login page was shown again"


async def test_a_server_that_loses_its_sessions_is_detected(checker: Checker, site: str) -> None:
    outcome = await checker.check(login(site, "/forgetful/login/"))
    assert "the session did not stick" in outcome.error
    assert list(outcome.steps) == ["form", "login", "account"]


async def test_a_login_without_the_csrf_token_fails_at_its_step(checker: Checker, site: str) -> None:
    steps = [{"name": "login", "url": "/login/", "form": {"username": USER, "password": PASSWORD}}]
    assert (await checker.check(login(site, steps=steps))).error == "step 'login': status 403 is not 2xx or 3xx"


async def test_a_value_that_is_not_found_ends_the_flow(checker: Checker, site: str) -> None:
    steps = [{"name": "form", "url": "/login/", "extract": {"token": "json:$.token"}}, {"name": "next", "url": "/"}]
    outcome = await checker.check(login(site, steps=steps))
    assert outcome.error == "step 'form': 'token' was not found (json)"
    assert list(outcome.steps) == ["form"]


async def test_two_probes_share_no_session(checker: Checker, site: str) -> None:
    assert (await checker.check(login(site))).error == ""
    only_the_page = [{"name": "account", "url": "/account/", "signed_in": True}]
    assert "the session did not stick" in (await checker.check(login(site, steps=only_the_page))).error


async def test_a_denied_page_is_a_session_that_did_not_stick(checker: Checker) -> None:
    async with hooks() as server:
        server.answers.extend((Answer(headers=(("set-cookie", "sid=1; Path=/"),)), Answer(401)))
        steps = [{"name": "login", "form": {"a": "b"}}, {"name": "page", "url": "/in", "signed_in": True}]
        denied = msgspec.convert({"name": "x", "url": server.url, "steps": steps}, ProbeTarget)
        assert (await checker.check(denied)).error == "step 'page': the session did not stick: the status is 401"
        assert server.received[1].headers["cookie"] == "sid=1"


async def test_no_error_of_a_flow_shows_its_secrets(checker: Checker) -> None:
    async with hooks() as server:
        server.answers.append(Answer(500, body=b"you sent " + PASSWORD.encode()))
        steps = [{"name": "login", "form": {"password": "{password}"}, "expect": {"body": "fine"}}]
        values = {"password": PASSWORD}
        target = msgspec.convert({"name": "x", "url": server.url, "steps": steps, "values": values}, ProbeTarget)
        outcome = await checker.check(target)
        assert outcome.error == "step 'login': status 500 is not 2xx"
        assert PASSWORD not in repr(outcome)
        assert server.received[0].body == f"password={PASSWORD}".encode()


async def test_a_login_test_of_a_flow_passes_each_iteration(checker: Checker, site: str) -> None:
    async with AsyncClient("memory://") as once:
        prober, pauses = Prober(ProbeMutex(once), checker, sleep=(pauses := Pauses())), pauses
        result = await prober.run_synthetic_login_test(site, iterations=3, target=login(site))
    assert (result.passed, result.iterations, result.failures) == (True, 3, 0)
    assert set(result.timings) == {"resolve", "connect", "tls", "processing", "transfer", "slowest"}
    assert len(pauses.all) == 2
