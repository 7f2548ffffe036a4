"""Targets as their users declare them: in a settings file, through `solely check-config` and a real start, and over the
API; on each database."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

from solely.cli.program import perform
from solely.data import open_database
from tests.apps.hooks import Answer, hooks_aside
from tests.apps.operator import BECAUSE, Operator, operating
from tests.apps.probes.sites import (
    PASSWORD,
    USER,
    LongNameServer,
    StringsServer,
    counting_site,
    django_login,
    text_server,
)
from tests.cli.conftest import Running
from tests.conftest import STORES
from tests.service.serving import TOKENS, bearer, until

DOCS = Path(__file__).parents[3] / "docs" / "probes.md"
DATABASES = [name for name in ("sqlite", "postgres") if name in STORES]
STEPS: list[dict[str, Any]] = [
    {"name": "form", "url": "/login/", "extract": {"token": 'body:name="csrfmiddlewaretoken" value="([^"]+)"'}},
    {"name": "login", "url": "/login/", "form": {
        "username": "{user}", "password": "{password}", "csrfmiddlewaretoken": "{token}"}},
    {"name": "account", "url": "/account/", "signed_in": True, "expect": {"body": "Welcome"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with django_login() as address:
        yield address


@pytest.fixture(params=DATABASES)
def data_url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


def example_of_the_docs(site: str) -> str:
    """The first settings file of the page; its shop is the site of these tests, which has no certificate."""
    (text,) = re.findall(r"## In a minute\n\n```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    text = text.replace("https://shop.example.org", site).replace(", certificate_days = 14", "")
    text = text.replace('password = "…"', f'password = "{PASSWORD}"')
    return f'probes.guard_allow = ["127.0.0.0/8"]\n{text}'


def checked(file: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """How `solely check-config` ends, and what it says of what is wrong."""
    code = perform(["check-config", "--config", str(file)])
    return code, capfd.readouterr().err


def test_the_example_of_the_docs_starts_and_logs_in(
    tmp_path: Path, site: str, data_url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOLELY_URL", raising=False)
    file = tmp_path / "solely.toml"
    file.write_text(f'data_url = "{data_url}"\n{example_of_the_docs(site)}')
    assert checked(file, capfd) == (0, "")
    service = Running(f"sqlite:///{tmp_path}/store.db", ("serve", "--config", str(file), "--port", "0"))
    try:
        assert service.process.stdout is not None
        (address,) = re.findall(r"http://[^/\s]+", service.process.stdout.readline())
        for name in ("shop", "login"):
            result = httpx2.post(f"{address}/api/probes/run", json={"name": name}, timeout=60).json()
            assert (result["passed"], result["error"]) == (True, "")
        assert list(result["steps"]) == ["form", "login", "account"]
    finally:
        service.end()


def test_a_flow_that_extracts_is_added_over_the_api_and_logs_in(site: str, data_url: str) -> None:
    with operating("probes", {"guard_allow": ["127.0.0.0/8"]}, data_url=data_url) as desk:
        assert added(desk, site, STEPS).status_code == 200
        result = desk.post("/api/probes/run", {"name": "login"}, scope="write").json()
        assert (result["passed"], result["error"]) == (True, "")


def test_a_step_that_uses_what_a_later_one_extracts_is_refused(site: str) -> None:
    with operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        refused = added(desk, site, STEPS[::-1])
        assert refused.status_code == 400
        assert refused.json()["detail"] == (
            "target 'login', step 'login': form 'csrfmiddlewaretoken': {token} is neither a value of the target nor "
            "extracted before; known are 'password', 'user'"
        )


def added(desk: Operator, site: str, steps: list[dict[str, Any]]) -> httpx2.Response:
    values = {"user": USER, "password": PASSWORD}
    target = {"name": "login", "url": site, "steps": steps, "values": values, "interval": 3600}
    return desk.post("/api/probes/targets", {**target, "session_cookie": "sessionid", "reason": BECAUSE})


@pytest.mark.parametrize(
    ("step", "answer", "error"),
    [
        ({"url": "http://127.0.0.1:1/"}, None, "step 'next': cannot connect to 127.0.0.1"),
        ({"url": "/next"}, Answer(how="drop"), "step 'next': 127.0.0.1 did not answer"),
        ({"url": "http://10.0.0.7/"}, None, "step 'next': 10.0.0.7 is at 10.0.0.7, which is not a public address"),
        ({"headers": {"x-key": "{it}"}}, None, "step 'next': a request's header 'x-key' must be printable"),
    ],
)
def test_a_step_that_gets_no_response_is_named(step: dict[str, Any], answer: Answer | None, error: str) -> None:
    with hooks_aside() as page, operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        page.answers.append(Answer(body="Münch".encode()))
        page.answers.extend([answer] if answer else [])
        steps = [{"name": "first", "extract": {"it": "body:.*"}}, {"name": "next", **step}]
        target = {"name": "web", "url": page.url, "interval": 3600, "steps": steps, "reason": BECAUSE}
        assert desk.post("/api/probes/targets", target).status_code == 200
        result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
        assert result["error"].startswith(error)
        assert list(result["steps"]) == ["first"]


def test_a_step_that_takes_too_long_is_named() -> None:
    with counting_site(pause=3600) as slow, operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        target = {"name": "web", "url": slow.url("x"), "interval": 3600, "timeout": 1, "steps": [{"name": "slow"}]}
        assert desk.post("/api/probes/targets", {**target, "reason": BECAUSE}).status_code == 200
        result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
        assert result["error"] == "step 'slow': no answer within 1 s"


def test_an_error_in_the_settings_names_target_and_step_and_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are shown although they occur in what is hidden, such as the URL."""
    monkeypatch.delenv("SOLELY_URL", raising=False)
    file = tmp_path / "solely.toml"
    good = example_of_the_docs("https://shop.example.org")
    for right, wrong, says in (
        ('value="([^"]+)"', 'value="([^"]+"', "target 'login', step 'form': extract 'token': the pattern"),
        ("{token}", "{tokn}", "target 'login', step 'login': form 'csrfmiddlewaretoken': … is neither"),
        ("status = [200]", "status = [700]", "target 'shop': status 700 is neither a code"),
        ("https://shop.example.org/health", "https://u:pw-of-shop@h/", "target 'shop': url has a user or"),
    ):
        file.write_text(good.replace(right, wrong))
        code, said = checked(file, capfd)
        assert code == 2
        assert says in said
        assert not any(secret in said for secret in (PASSWORD, "pw-of-shop"))


INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("schedule", {"schedule": "nonsense"}, "target 'web': … is not a cron expression"),
    ("tz", {"schedule": "@hourly", "tz": "Nowhere/None"}, "target 'web': there is no time zone …"),
    ("values", {"values": {"user-name": "x"}}, "target 'web': values: 'user-name' cannot be used as {name}"),
    ("extract", {"steps": [{"extract": {"a b": "body:x"}}]}, "target 'web', step 'step': extract: 'a b' cannot be"),
    ("headers", {"steps": [{"headers": {"a b": "{c}"}}], "values": {"c": "d"}},
     "target 'web', step 'step': header 'a b' must be printable"),
    ("url", {"steps": [{"url": "ftp://x.example/"}]}, "target 'web', step 'step': url must begin with "),
    ("name", {"name": "web\n"}, "matching regex"),
    ("method", {"method": "GET\n"}, "matching regex"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), [each[1:] for each in INVALID], ids=[each[0] for each in INVALID])
def test_a_target_that_can_never_be_probed_is_refused_by_settings_and_api(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], says: str
) -> None:
    """Some made `solely serve` end although `solely check-config` had accepted them."""
    monkeypatch.delenv("SOLELY_URL", raising=False)
    target = {"name": "web", "url": "https://x.example/", **given}
    file = tmp_path / "solely.toml"
    file.write_text(f"probes.targets = [{_as_toml(target)}]")
    code, said = checked(file, capfd)
    said = re.sub(r"'(?:nonsense|Nowhere/None)'", "…", said.replace("'…'", "…"))
    assert (code, says in said) == (2, True), said
    with operating("probes", {}) as desk:
        refused = desk.post("/api/probes/targets", {**target, "reason": BECAUSE})
        said = re.sub(r"'(?:nonsense|Nowhere/None)'", "…", refused.json()["detail"])
        assert (refused.status_code, says in said) == (400, True), said


def _as_toml(value: object) -> str:
    """In one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_as_toml(each)}" for name, each in value.items()) + "}"
    return "[" + ", ".join(map(_as_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ('headers = { "a b" = "c" }', "module 'own': header 'a b' must be printable"),
        ('prober = "dns"', "module 'own': give query_name"),
        ('prober = "dns"\nquery_name = "x"\nquery_type = "ZZ"', "module 'own': write dns://server/name?type=A"),
        ('expect = { body = "(" }', "module 'own': the pattern '…' is invalid"),
    ],
)
def test_a_module_that_can_probe_nothing_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str, says: str
) -> None:
    """Each request of /probe was refused instead."""
    monkeypatch.delenv("SOLELY_URL", raising=False)
    file = tmp_path / "solely.toml"
    file.write_text(f"[probes.modules.own]\n{module}")
    code, said = checked(file, capfd)
    assert (code, says in said) == (2, True), said


def test_what_is_extracted_of_json_is_used_as_it_stands_there() -> None:
    """A boolean was used as True, in the words of Python."""
    with hooks_aside() as page, operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        page.answers.append(Answer(body=b'{"a": true, "b": [1.5, 12345678901234567890], "c": "x\\u00e9"}'))
        paths = {"a": "$.a", "b": "$.b[0]", "c": "$.b[1]", "d": "$.c"}
        first = {"name": "first", "extract": {name: f"json:{path}" for name, path in paths.items()}}
        steps = [first, {"name": "next", "url": "/next", "form": {name: f"{{{name}}}" for name in paths}}]
        target = {"name": "web", "url": page.url, "interval": 3600, "steps": steps, "reason": BECAUSE}
        assert desk.post("/api/probes/targets", target).status_code == 200
        result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
        assert (result["passed"], result["error"]) == (True, "")
        assert page.received[-1].body == b"a=true&b=1.5&c=12345678901234567890&d=x%C3%A9"


def test_a_target_whose_answer_leads_to_a_private_address_is_down_and_not_refused() -> None:
    """What a step extracts is the target's to say: it could hide its outage."""
    settings = {"guard_allow": ["127.0.0.0/8"], "backoff": [0.05]}
    with hooks_aside() as page, operating("probes", settings) as desk:
        page.answers.extend([Answer(body=b"http://10.0.0.7/")] * 100)
        steps = [{"name": "first", "extract": {"it": "body:.*"}}, {"name": "next", "url": "{it}"}]
        target = {"name": "web", "url": page.url, "interval": 1, "failure_threshold": 1, "steps": steps}
        assert desk.post("/api/probes/targets", {**target, "reason": BECAUSE}).status_code == 200
        until_state(desk, "DOWN")
        assert listed(desk)["error"].startswith("step 'next': 10.0.0.7 is at 10.0.0.7, which is not a public address")
        assert listed(desk)["uptime_24h"] == 0.0


@pytest.mark.parametrize(
    ("pattern", "body", "passes"),
    [
        ("(a+)+$", b"a" * 5_000 + b"!", False),
        (r"\s+$", b" " * 100_000 + b"!", False),
        (r"(.*)(.*)(.*)(.*)(.*)z$", b"y" * 200_000, False),
        (r"^(\w+\s*)*$", b"many words " * 9_000 + b"!", False),
        (r"(a|aa)+b", b"a" * 250_000 + b"b", True),
    ],
)
def test_no_pattern_of_a_target_blocks_the_service(pattern: str, body: bytes, passes: bool) -> None:
    """Each takes Python's own engine a minute or longer, in which the service would answer nobody."""
    with hooks_aside() as page, operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        page.answers.extend([Answer(body=body)] * 10)
        probe = {"name": "web", "url": page.url, "interval": 3600, "timeout": 60, "reason": BECAUSE}
        extract = {"steps": [{"extract": {"it": f"body:{pattern}"}}]}
        for given, failure in (
            ({"expect": {"body": pattern}}, "the body does not contain"),
            (extract, "step 'step': 'it' was not found (body)"),
        ):
            assert desk.post("/api/probes/targets", probe | given).status_code == 200
            result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
            assert (result["passed"], failure in result["error"]) == (passes, not passes)


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "(x{0,99}){10}" * 3])
def test_a_pattern_that_cannot_be_matched_in_good_time_is_refused(pattern: str) -> None:
    with operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        probe = {"name": "web", "url": "https://x.example/", "reason": BECAUSE}
        for given in ({"expect": {"body_not": pattern}}, {"steps": [{"extract": {"it": f"body:{pattern}"}}]}):
            refused = desk.post("/api/probes/targets", probe | given)
            assert refused.status_code == 400
            assert f"the pattern {pattern!r:.80} is " in refused.json()["detail"]


@pytest.mark.parametrize(
    "given",
    [
        {"expect": {"json": {"$.ok": True}}},
        {"steps": [{"expect": {"json": {"$.ok": True}}}]},
        {"steps": [{"extract": {"it": "json:$.ok"}}]},
        {"steps": [{"extract": {"it": "json:$[0]"}}]},
        {"steps": [{"extract": {"it": "header:x-next"}}, {"name": "next", "url": "http://[{it}/"}]},
    ],
)
@pytest.mark.parametrize("body", [b"[" * 100_000, b"[" * 900 + b"]" * 900, b'{"a":' * 50_000])
def test_what_a_target_sends_makes_it_fail_and_never_stay_up(data_url: str, given: dict[str, Any], body: bytes) -> None:
    """JSON that is nested too deep raised an error past the checks, and the state stayed UP."""
    with hooks_aside() as page, operating("probes", {"guard_allow": ["127.0.0.0/8"]}, data_url=data_url) as desk:
        page.answers.extend([Answer(200, (("x-next", "x"),), body)] * 1000)
        probe = {"name": "web", "url": page.url, "interval": 1, "failure_threshold": 1, "reason": BECAUSE}
        assert desk.post("/api/probes/targets", probe | given).status_code == 200
        result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
        assert result["passed"] is False
        assert result["error"]
        until(lambda: desk.ask("/api/probes/targets")["targets"][0]["state"] == "DOWN", 40)


def listed(desk: Operator, name: str = "web") -> dict[str, Any]:
    (found,) = [each for each in desk.ask("/api/probes/targets")["targets"] if each["name"] == name]
    return dict(found)


def until_state(desk: Operator, state: str, name: str = "web") -> None:
    until(lambda: listed(desk, name)["state"] == state, 40)


def test_calls_of_others_never_starve_scheduled_probes() -> None:
    """They used the slots of the scheduled probes, which then counted as failures without having been tried."""
    settings = {"guard_allow": ["127.0.0.0/8"], "at_once": 2, "on_demand_at_once": 3, "backoff": [0.05]}
    modules = {"slow": {"timeout": 60}}
    with (
        counting_site(pause=3600) as slow,
        counting_site() as quick,
        operating("probes", {**settings, "modules": modules}) as desk,
        ThreadPoolExecutor(12) as callers,
    ):
        for name in ("web", "shop"):
            target = {"name": name, "url": quick.url(name), "interval": 1, "timeout": 2, "failure_threshold": 1}
            assert desk.post("/api/probes/targets", {**target, "reason": BECAUSE}).status_code == 200

        def call(number: int) -> int:
            query = {"target": slow.url(str(number)), "module": "slow"}
            address, headers = f"{desk.service.address}/probe", bearer(TOKENS["write"])
            return httpx2.get(address, params=query, headers=headers, timeout=60).status_code

        calls = [callers.submit(call, number) for number in range(12)]
        until(lambda: sum(each.done() for each in calls) == 9, 50)
        assert sum(slow.at_once.values()) == 3
        seen = quick.counts()
        until(lambda: all(quick.counts()[name] >= seen[name] + 4 for name in ("web", "shop")), 50)
        for name in ("web", "shop"):
            assert listed(desk, name)["uptime_24h"] == 1.0
        slow.end()
        assert sorted(each.result() for each in calls) == [200] * 3 + [429] * 9


def test_calls_for_the_url_of_a_target_never_keep_it_from_being_probed() -> None:
    """A caller that asks again and again had the mutex whenever the schedule tried it: after one call, the scheduled
    probe that was refused comes first."""
    settings = {"guard_allow": ["127.0.0.0/8"], "backoff": [0.05], "lock_retries": 0}
    with counting_site() as site, operating("probes", settings) as desk, ThreadPoolExecutor(1) as caller:

        def call() -> int:
            return desk.get("/probe", "write", target=site.url("x"), module="http_2xx").status_code

        site.answer(False)
        first = caller.submit(call)
        until(lambda: site.at_once["x"] == 1, 60)
        target = {"name": "web", "url": site.url("x"), "interval": 1, "timeout": 60, "reason": BECAUSE}
        assert desk.post("/api/probes/targets", target).status_code == 200
        until(lambda: desk.ask("/api/internal/pilot/probe-mutex/status")["backoff_attempts"], 60)
        site.answer(True)
        assert first.result() == 200
        until(lambda: call() == 200, 60)
        assert len(site.visits) >= 3


def test_hosts_of_callers_that_cannot_be_resolved_delay_no_scheduled_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """They used all threads that resolve names, so that scheduled probes took too long and counted as failures."""
    leave, real, asked = Event(), socket.getaddrinfo, set[str]()

    def resolve(host: Any, *rest: Any, **options: Any) -> Any:
        if str(host).endswith("slow.example"):
            asked.add(host)
            leave.wait(120)
            raise OSError("no answer")
        return real(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    settings = {"guard_allow": ["127.0.0.0/8", "::1/128"], "backoff": [0.05]}
    with (
        counting_site() as quick,
        operating("probes", {**settings, "modules": {"slow": {"timeout": 60}}}) as desk,
        ThreadPoolExecutor(80) as callers,
    ):

        def call(number: int) -> int:
            query = {"target": f"http://{number}.slow.example/", "module": "slow"}
            address, headers = f"{desk.service.address}/probe", bearer(TOKENS["write"])
            return httpx2.get(address, params=query, headers=headers, timeout=120).status_code

        calls = [callers.submit(call, number) for number in range(80)]
        try:
            until(lambda: len(asked) >= 64, 60)
            url = quick.url("x").replace("127.0.0.1", "localhost")
            target = {"name": "web", "url": url, "interval": 1, "timeout": 30, "failure_threshold": 1}
            assert desk.post("/api/probes/targets", {**target, "reason": BECAUSE}).status_code == 200
            until(lambda: len(desk.ask("/api/probes/results", target="web")["results"]) >= 3, 60)
        finally:
            leave.set()
        assert {each.result() for each in calls} == {200}
        assert listed(desk)["uptime_24h"] == 1.0


def test_a_reply_of_a_name_server_blocks_nobody() -> None:
    """Thousands of records had one name of 32 kB: to read them took 15 s, in which the service answered nobody."""
    server = LongNameServer()
    with text_server(server) as port, operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        target = {"name": "web", "url": f"dns://127.0.0.1:{port}/x.example?type=NS", "timeout": 60, "interval": 3600}
        assert desk.post("/api/probes/targets", {**target, "reason": BECAUSE}).status_code == 200
        result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
        assert (result["passed"], result["error"]) == (False, "a name of the reply is too long")


def test_a_target_that_the_guard_refuses_is_not_down_and_pages_nobody(data_url: str) -> None:
    """It was never called: nothing is known about it, but that its settings are wrong."""
    alerts = {"publishers": [{"type": "log"}]}
    settings = {"backoff": [0.05]}
    with operating("probes", settings, apps=("probes", "alerts"), alerts=alerts, data_url=data_url) as desk:
        for name, url in (
            ("web", "http://127.0.0.1/"), ("tcp", "tcp://10.0.0.7:22"), ("tls", "tls://10.0.0.7:22"),
            ("dns", "dns://192.168.0.1/x.example"),
        ):  # fmt: skip
            target = {"name": name, "url": url, "interval": 1, "failure_threshold": 1, "public": True}
            assert desk.post("/api/probes/targets", {**target, "reason": BECAUSE}).status_code == 200
            until_state(desk, "REFUSED", name)
            found = listed(desk, name)
            assert "add its network to guard_allow" in found["error"]
            assert found["uptime_24h"] is None
            result = desk.post("/api/probes/run", {"name": name}, scope="write").json()
            assert (result["passed"], result["skipped"]) == (False, "refused")
        assert desk.ask("/api/alerts/firing")["firing"] == []
        for path in ("/probes", "/probes/target?name=web", "/status", "/probes/badge/web.svg"):
            assert desk.get(path).status_code == 200
            assert "refused" in desk.get(path).text.lower()
        assert "0 of 4 are up, none is down" in desk.get("/status").text


def test_a_target_that_is_refused_after_it_was_down_resolves_its_alert(data_url: str) -> None:
    alerts = {"publishers": [{"type": "log"}]}
    settings = {"guard_allow": ["127.0.0.1/32"], "backoff": [0.05]}
    target = {"name": "web", "interval": 1, "failure_threshold": 1, "reason": BECAUSE}
    with operating("probes", settings, apps=("probes", "alerts"), alerts=alerts, data_url=data_url) as desk:
        desk.post("/api/probes/targets", {**target, "url": "tcp://127.0.0.1:1"})
        until(lambda: desk.ask("/api/alerts/firing")["firing"], 40)
        desk.post("/api/probes/targets", {**target, "url": "tcp://127.0.0.2:1"})
        until(lambda: listed(desk)["state"] == "REFUSED", 40)
        until(lambda: not desk.ask("/api/alerts/firing")["firing"], 40)
        with counting_site() as site:
            desk.post("/api/probes/targets", {**target, "url": site.url("x"), "success_threshold": 2})
            until(lambda: listed(desk)["state"] == "UP", 40)


def test_an_outage_that_is_over_before_it_is_announced_is_resolved(data_url: str) -> None:
    """Both results were written at once, after the database was away: the target was announced as down when it was UP
    again, and nothing resolved that."""
    alerts = {"publishers": [{"type": "log"}]}
    settings = {"guard_allow": ["127.0.0.0/8"]}
    with (
        hooks_aside() as page,
        operating("probes", settings, apps=("probes", "alerts"), alerts=alerts, data_url=data_url) as desk,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        target = {"name": "web", "url": page.url, "interval": 1, "failure_threshold": 1, "reason": BECAUSE}
        assert desk.post("/api/probes/targets", target).status_code == 200
        until_state(desk, "UP")
        locked, over = Event(), Event()
        lock = elsewhere.submit(lambda: asyncio.run(_lock_states(data_url, locked, over)))
        assert locked.wait(60)
        page.answers.append(Answer(500))
        until(lambda: not page.answers, 40)
        seen = len(page.received)
        until(lambda: len(page.received) >= seen + 2, 40)
        over.set()
        lock.result()
        until(lambda: announced(desk) >= 2, 40)  # that it is down, and that it is no longer
        until(lambda: desk.ask("/api/alerts/firing")["firing"] == [], 40)
        assert listed(desk)["state"] == "UP"


def announced(desk: Operator) -> float:
    return sum(map(float, re.findall(r"^solely_announced_total\S* (\S+)$", desk.get("/metrics").text, re.MULTILINE)))


async def _lock_states(data_url: str, locked: Event, over: Event) -> None:
    """No state can be written until it is over."""
    data = open_database(data_url, timeout=60.0)
    async with data.transaction() as inside:
        await inside.run("UPDATE probes_states SET at = at")
        locked.set()
        await asyncio.to_thread(over.wait, 120)
    await data.close()


@pytest.mark.parametrize("truncated", [False, True])
def test_a_long_text_record_of_several_strings_is_one_text(truncated: bool) -> None:
    """A datagram may say only that the reply does not fit; it is then asked for over a connection."""
    server = StringsServer(b"v=DKIM1; k=rsa; p=" + b"A" * 200, *[b"B" * 250] * 3, b" end", truncated=truncated)
    with text_server(server) as port, operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        expect = {"body": "^v=DKIM1; k=rsa; p=A{200}B{750} end$"}
        target = {"name": "web", "url": f"dns://127.0.0.1:{port}/x.example?type=TXT", "expect": expect}
        assert desk.post("/api/probes/targets", {**target, "interval": 3600, "reason": BECAUSE}).status_code == 200
        result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
        assert (result["passed"], result["error"]) == (True, "")


@pytest.mark.parametrize(("redirects", "error"), [(4, ""), (10, ""), (11, "redirects more than 10 times")])
def test_ten_redirects_are_followed_as_blackbox_exporter_does(redirects: int, error: str) -> None:
    with hooks_aside() as page, operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as desk:
        page.answers.extend([Answer(302, (("location", "/next"),))] * redirects)
        target = {"name": "web", "url": page.url, "interval": 3600, "reason": BECAUSE}
        assert desk.post("/api/probes/targets", target).status_code == 200
        result = desk.post("/api/probes/run", {"name": "web"}, scope="write").json()
        assert (result["passed"], error in result["error"]) == (not error, True)


def test_the_pages_of_a_thousand_targets_are_small(data_url: str) -> None:
    """The overview had 4.0 MB, once a second, and so had the status page, which is for everybody."""
    names = [f"t{number:04}" for number in range(1000)]
    given = [{"name": name, "url": "https://x.example/", "interval": 86_400, "public": True} for name in names]
    with operating("probes", {"targets": given}, data_url=data_url) as desk:
        asyncio.run(_with_results(data_url, names))
        first, last = names[0], names[-1]
        for path in ("/probes", "/status"):
            page = desk.get(path)
            assert len(page.content) < 400_000
            assert f">{first}<" in page.text
            assert f">{last}<" not in page.text
            assert 'rel="next"' in page.text
            assert f">{last}<" in desk.get(path, skip=975).text
            assert desk.get(path, skip=5000).status_code == 200
        view = desk.get("/probes", format="json").json()
        assert (view["total"], len(view["rows"]), len(view["rows"][0]["bars"])) == (1000, 25, 40)
        assert desk.service.get("/status").text.count("of 1000 are up") == 1
        assert len(desk.get("/probes/target", name="t0500", format="json").json()["row"]["bars"]) == 40
        assert "t0500: pending" in desk.service.get("/probes/badge/t0500.svg").text


async def _with_results(data_url: str, names: list[str]) -> None:
    """Forty results of each target."""
    data = open_database(data_url, timeout=60.0)
    statement = (
        "INSERT INTO probes_results (target, fence, at, due, passed, error, status, seconds, phases) "
        "VALUES (:target, :fence, :at, NULL, 1, '', 200, 0.1, '{}')"
    )
    now = time.time()
    rows = [{"target": name, "fence": n, "at": now - 60 + n} for name in names for n in range(1, 41)]
    async with data.transaction() as inside:
        await inside.run_many(statement, rows)
    await data.close()


@pytest.mark.parametrize("how", ["pause", "maintenance"])
def test_a_probe_that_ends_after_a_pause_pages_nobody(data_url: str, how: str) -> None:
    """It made the target DOWN, which was announced, and stayed so as long as the target was paused."""
    alerts = {"publishers": [{"type": "log"}]}
    settings = {"guard_allow": ["127.0.0.0/8"], "backoff": [0.05]}
    body: dict[str, Any] = {"name": "web"} if how == "pause" else {"targets": ["web"], "lasts": "1h"}
    with (
        counting_site(pause=3600) as slow,
        operating("probes", settings, apps=("probes", "alerts"), alerts=alerts, data_url=data_url) as desk,
    ):
        target = {"name": "web", "url": slow.url("x"), "interval": 1, "timeout": 5, "failure_threshold": 1}
        assert desk.post("/api/probes/targets", {**target, "reason": BECAUSE}).status_code == 200
        until(lambda: slow.at_once["x"] == 1, 40)
        assert desk.post(f"/api/probes/{how}", {**body, "reason": BECAUSE}).status_code == 200
        until(lambda: desk.ask("/api/probes/results", target="web")["results"], 40)
        time.sleep(1.0)  # in which it would be announced: nothing else says that it was not
        assert desk.ask("/api/alerts/firing")["firing"] == []
        if how == "pause":
            assert desk.post("/api/probes/resume", {"name": "web", "reason": BECAUSE}).status_code == 200
            assert listed(desk)["state"] == "PENDING"
