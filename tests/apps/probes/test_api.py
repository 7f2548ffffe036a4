"""Targets over the API and by command, states, pauses, maintenance, the status page, badges and announcements."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from solely.service.dashboard import rendering
from tests.apps.hooks import Answer, Hooks, hooks_aside
from tests.apps.operator import BECAUSE, Operator, operating
from tests.apps.probes.sites import CountingSite, counting_site
from tests.service.serving import until

SOON = 40.0  # seconds: a target is probed every second
ALLOWED = {"guard_allow": ["127.0.0.0/8"], "backoff": [0.05]}
KEYS = ["active_probes", "active_probe_keys", "backoff_attempts", "config", "public_base_url"]  # of the document


@pytest.fixture
def site() -> Iterator[Hooks]:
    with hooks_aside() as it:
        yield it


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    public = {"public_base_url": "https://status.shop.example"}
    with operating("probes", ALLOWED, **public) as it:
        yield it


def add(desk: Operator, name: str, url: str, **given: Any) -> httpx2.Response:
    return desk.post("/api/probes/targets", {"name": name, "url": url, "interval": 1, "reason": BECAUSE, **given})


def found(desk: Operator, name: str) -> dict[str, Any]:
    (target,) = [each for each in desk.ask("/api/probes/targets")["targets"] if each["name"] == name]
    return dict(target)


def results(desk: Operator, name: str) -> list[dict[str, Any]]:
    return list(desk.ask("/api/probes/results", target=name)["results"])


def act(desk: Operator, path: str, **body: Any) -> Any:
    answer = desk.post(f"/api/probes/{path}", {"reason": BECAUSE, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_target_that_is_added_is_probed_goes_up_and_down(desk: Operator, site: Hooks) -> None:
    assert add(desk, "web", site.url, expect={"body": "fine"}, headers={"X-Key": "s3cret"}).status_code == 200
    site.answers.extend([Answer(body=b"fine")] * 2 + [Answer(503)] * 200)
    until(lambda: found(desk, "web")["state"] == "DOWN", SOON)
    assert found(desk, "web")["error"] == "status 503 is not 2xx"
    seen = results(desk, "web")
    assert [each["passed"] for each in seen][-2:] == [True, True]
    assert all(each["seconds"] > 0 and set(each["phases"]) >= {"connect", "processing"} for each in seen)
    site.answers.clear()
    site.answers.extend([Answer(body=b"fine")] * 1000)
    until(lambda: found(desk, "web")["state"] == "UP", SOON)
    shown = found(desk, "web")
    assert 0 < shown["uptime_24h"] < 1
    assert shown["definition"]["headers"] == {"X-Key": "…"}
    assert site.received[0].headers["x-key"] == "s3cret"
    assert act(desk, "targets/remove", name="web") == {"removed": True}
    assert desk.post("/api/probes/targets/remove", {"name": "web", "reason": BECAUSE}).json() == {"removed": False}


def test_a_paused_target_is_not_probed_until_it_is_resumed(desk: Operator) -> None:
    with counting_site() as counting:
        add(desk, "paused", counting.url("paused"))
        until(lambda: found(desk, "paused")["state"] == "UP", SOON)
        assert act(desk, "pause", name="paused") == {"paused": True}
        assert act(desk, "pause", name="paused") == {"paused": False}
        assert act(desk, "pause", name="nowhere") == {"paused": False}
        shown = found(desk, "paused")
        assert (shown["state"], shown["error"]) == ("PAUSED", BECAUSE)
        visits = _calm(counting)
        assert act(desk, "resume", name="paused") == {"resumed": True}
        until(lambda: counting.counts()["paused"] > visits, SOON)
        until(lambda: found(desk, "paused")["state"] == "UP", SOON)
        act(desk, "targets/remove", name="paused")


def _calm(counting: CountingSite) -> int:
    """The number of visits once no probe is on its way: more than an interval has passed without one."""
    visits = -1
    while visits != len(counting.visits):
        visits = len(counting.visits)
        time.sleep(1.5)
    return visits


def test_a_target_in_maintenance_is_not_probed_and_the_window_ends(desk: Operator) -> None:
    with counting_site() as counting:
        add(desk, "moved", counting.url("moved"), public=True)
        until(lambda: found(desk, "moved")["state"] == "UP", SOON)
        window = act(desk, "maintenance", targets=["moved"], lasts="1h")
        assert (window["targets"], window["made_by"]) == (["moved"], "adminer")
        assert found(desk, "moved")["maintenance"] == window["id"]
        visits = _calm(counting)
        until(lambda: f"Maintenance: {BECAUSE}" in desk.service.get("/status").text, SOON)
        assert "moved: maintenance" in desk.service.get("/probes/badge/moved.svg").text
        assert [each["id"] for each in desk.ask("/api/probes/maintenance")["maintenance"]] == [window["id"]]
        assert act(desk, "maintenance/end", id=window["id"]) == {"ended": True}
        until(lambda: counting.counts()["moved"] > visits, SOON)
        assert found(desk, "moved")["uptime_24h"] == 1.0
        act(desk, "targets/remove", name="moved")


def test_the_status_page_announces_planned_maintenance_and_calls_up_only_what_is_up(
    desk: Operator, site: Hooks
) -> None:
    add(desk, "planned", site.url, interval=3600, public=True)
    begins = datetime.now(UTC) + timedelta(days=2)
    window = act(desk, "maintenance", targets=["planned"], starts=begins.isoformat(), lasts="1h")
    until(lambda: "0 of 1 are up, none is down." in desk.service.get("/status").text, SOON)  # nothing is known yet
    page = desk.service.get("/status").text
    assert f"Planned maintenance: {BECAUSE}" in page
    assert f"from {begins:%Y-%m-%d %H:%M:%S} UTC" in page
    assert desk.post("/api/probes/run", {"name": "planned"}, scope="write").json()["passed"] is True
    until(lambda: "All systems are up." in desk.service.get("/status").text, SOON)
    assert "planned: up 100.00%" in desk.service.get("/probes/badge/planned.svg").text
    act(desk, "maintenance/end", id=window["id"])
    act(desk, "targets/remove", name="planned")


def test_a_target_is_probed_at_once_on_demand(desk: Operator, site: Hooks) -> None:
    add(desk, "demand", site.url, interval=3600)
    answer = desk.post("/api/probes/run", {"name": "demand"}, scope="write")
    assert answer.json()["passed"] is True
    assert answer.json()["fence"] > 0
    until(lambda: found(desk, "demand")["state"] == "UP", SOON)
    tested = desk.post("/api/probes/login-test", {"name": "demand", "iterations": 4}, scope="write").json()
    assert (tested["passed"], tested["iterations"], tested["attempts"]) == (True, 4, 1)
    assert desk.post("/api/probes/run", {"name": "nowhere"}, scope="write").status_code == 404
    assert desk.post("/api/probes/run", {"name": "demand"}, scope="read").status_code == 403
    act(desk, "targets/remove", name="demand")


def test_the_status_of_the_mutexes_has_exactly_the_shape_of_the_document(desk: Operator) -> None:
    status = desk.ask("/api/internal/pilot/probe-mutex/status")
    assert list(status) == KEYS
    config = {"backoff_sequence_sec": [0.05], "jitter_pct": 0.2, "lock_timeout_sec": 60.0}
    assert status["config"] == config
    assert status["public_base_url"] == "https://status.shop.example"
    assert desk.service.get("/api/internal/pilot/probe-mutex/status").status_code == 401


def test_the_defaults_of_the_mutex_are_those_of_the_document() -> None:
    with operating("probes", {}) as plain:
        assert plain.ask("/api/internal/pilot/probe-mutex/status") == {
            "active_probes": 0,
            "active_probe_keys": [],
            "backoff_attempts": {},
            "config": {"backoff_sequence_sec": [2.0, 5.0, 10.0], "jitter_pct": 0.2, "lock_timeout_sec": 60.0},
            "public_base_url": "",
        }


def test_a_running_probe_is_in_the_status_of_the_mutexes(desk: Operator) -> None:
    with counting_site(pause=3600) as slow:
        add(desk, "slow", slow.url("slow"), timeout=30)
        until(lambda: slow.at_once["slow"] == 1, SOON)
        status = desk.ask("/api/internal/pilot/probe-mutex/status")
        assert (status["active_probes"], len(status["active_probe_keys"][0])) == (1, 16)
        skipped = desk.post("/api/probes/run", {"name": "slow"}, scope="write").json()
        assert (skipped["passed"], skipped["skipped"]) == (False, "locked")
        status = desk.ask("/api/internal/pilot/probe-mutex/status")
        assert status["backoff_attempts"] == {status["active_probe_keys"][0]: 2}
        act(desk, "targets/remove", name="slow")
        assert slow.most["slow"] == 1


def test_a_slow_target_delays_no_other(desk: Operator) -> None:
    with counting_site(pause=3600) as slow, counting_site() as quick:
        for number in range(30):
            add(desk, f"slow-{number}", slow.url(str(number)), timeout=60)
        add(desk, "quick", quick.url("quick"))
        until(lambda: sum(slow.at_once.values()) == 30, SOON)
        seen = quick.counts()["quick"]
        until(lambda: quick.counts()["quick"] >= seen + 3, SOON)
        assert sum(slow.at_once.values()) == 30  # they are still at it
        for number in range(30):
            act(desk, "targets/remove", name=f"slow-{number}")
        act(desk, "targets/remove", name="quick")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "Web"}, "name"),
        ({"url": "ftp://x/"}, "url must begin with"),
        ({"interval": 0.1}, "interval"),
        ({"expect": {"body": "("}}, "the pattern '(' is invalid"),
        ({"expekt": {}}, "expekt"),
        ({"schedule": "61 * * * *"}, "cron expression"),
        ({"tz": "Mars/Base"}, "Mars/Base"),
    ],
)
def test_an_invalid_target_is_refused_and_nothing_changes(desk: Operator, given: dict[str, Any], says: str) -> None:
    body = {"name": "wrong", "url": "https://x.example/", "reason": BECAUSE, "schedule": "", **given}
    if "tz" in given:
        body["schedule"] = "0 3 * * *"
    answer = desk.post("/api/probes/targets", body)
    assert answer.status_code == 400, answer.text
    assert says in answer.text
    assert "wrong" not in {each["name"] for each in desk.ask("/api/probes/targets")["targets"]}


def test_only_public_targets_are_on_the_status_page_and_have_a_badge(desk: Operator, site: Hooks) -> None:
    add(desk, "open", site.url, title="Shop <b>", public=True)
    add(desk, "secret", site.url + "/secret")
    until(lambda: found(desk, "open")["state"] == "UP", SOON)
    until(lambda: "Shop &lt;b&gt;" in desk.service.get("/status").text, SOON)  # its data are shared for a second
    page = desk.service.get("/status")  # by anybody
    assert page.status_code == 200
    assert "secret" not in page.text
    assert str(site.port) not in page.text
    badge = desk.service.get("/probes/badge/open.svg")
    assert badge.headers["content-type"] == "image/svg+xml"
    assert re.search(r"<title>Shop &lt;b&gt;: up 100\.00%</title>", badge.text)
    assert desk.service.get("/probes/badge/secret.svg").status_code == 404
    for name in ("open", "secret"):
        act(desk, "targets/remove", name=name)


def test_the_status_page_is_made_once_for_all_strangers(
    desk: Operator, site: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they spell its address: each page costs the database a query, and rendering it takes milliseconds."""
    made: list[object] = []
    through = rendering.html

    def html(*given: Any) -> Any:
        made.append(given)
        return through(*given)

    add(desk, "shared", site.url, public=True)
    until(lambda: "shared" in desk.service.get("/status").text, SOON)
    monkeypatch.setattr(rendering, "html", html)
    monkeypatch.setattr("solely.apps.probes.pages.FRESH", 1_000.0)
    spelled = [f"/status?limit={limit}&skip={skip}&note={skip}" for limit in (1, 100) for skip in (0, 1, 10, 999_999)]
    pages = {desk.service.get(address).text for address in spelled}
    assert len(pages) == 1
    assert len(made) <= 1
    assert "shared" in pages.pop()
    act(desk, "targets/remove", name="shared")


def test_strangers_do_not_follow_the_status_page(desk: Operator) -> None:
    with desk.service.http.stream("GET", "/status?format=live") as response:
        assert response.status_code == 400
    assert desk.service.get("/status?format=json").json()["total"] >= 0


def test_down_and_up_are_announced_as_alerts(site: Hooks) -> None:
    quick = {"name": "web", "url": site.url, "interval": 1, "failure_threshold": 1, "severity": "warning"}
    with operating("probes", {**ALLOWED, "targets": [quick]}, apps=("alerts", "probes")) as both:
        site.answers.extend([Answer(500)] * 1000)
        (down,) = until(lambda: both.ask("/api/alerts/firing")["firing"], SOON)
        assert down["alert"]["fingerprint"] == "probes/web"
        assert (down["alert"]["name"], down["alert"]["severity"]) == ("Target down", "warning")
        assert down["alert"]["annotations"]["summary"] == "web is down: status 500 is not 2xx"
        site.answers.clear()
        until(lambda: not both.ask("/api/alerts/firing")["firing"], SOON)
        assert found(both, "web")["state"] == "UP"
        site.answers.extend([Answer(500)] * 1000)
        until(lambda: both.ask("/api/alerts/firing")["firing"], SOON)
        act(both, "pause", name="web")
        until(lambda: not both.ask("/api/alerts/firing")["firing"], SOON)


def test_a_target_of_the_settings_is_listed_as_such_and_shows_no_secret(site: Hooks) -> None:
    target = {"name": "web", "url": site.url, "interval": 1, "headers": {"Authorization": "Bearer t0ken-of-the-shop"}}
    with operating("probes", {**ALLOWED, "targets": [target]}) as configured:
        until(lambda: site.received, SOON)
        assert site.received[0].headers["authorization"] == "Bearer t0ken-of-the-shop"
        assert found(configured, "web")["source"] == "settings"
        for path in ("/api/probes/targets", "/probes", "/probes/target?name=web"):
            assert "t0ken" not in configured.get(path).text
        answer = configured.post("/api/probes/targets/remove", {"name": "web", "reason": BECAUSE})
        assert answer.status_code == 400
        assert "is in the settings" in answer.json()["detail"]
