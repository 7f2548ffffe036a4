"""What needs attention: each application reports it; the overview, the page of health, the API and `solely doctor` show
it, and say that all is well only if it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from solely import DataError, DataUnavailable
from solely.apps.signals import GroupResult, SignalGroup
from solely.cli.program import perform
from solely.schedules.handle import AsyncSchedule
from solely.service.dashboard import failing
from tests.apps.operator import BECAUSE, Operator
from tests.apps.probes.sites import counting_site
from tests.apps.triggers.test_work_http import Desk
from tests.conftest import DATABASES
from tests.service.filled import DOWN, NEVER
from tests.service.serving import LINES, TOKENS, running, until

WELL = "All is well"
PAGES = ("/", "/health")


@pytest.fixture(params=DATABASES)
def data_url(request: pytest.FixtureRequest) -> str:
    """A database of this test alone."""
    return DATABASES[str(request.param)](request)


@pytest.fixture
def desk(data_url: str) -> Iterator[Desk]:
    with counting_site() as site:
        targets = [
            {"name": name, "url": url, "schedule": NEVER, "failure_threshold": 1}
            for name, url in (("shop", DOWN), ("search", site.url("")))
        ]
        probes = {"targets": targets, "guard_allow": ["127.0.0.0/8"]}
        with running(data_url=data_url, tokens=LINES, probes=probes, triggers={"gate": "off"}) as it:
            yield Desk(it)


def texts(desk: Operator) -> list[tuple[str, str]]:
    return [(each["level"], each["text"]) for each in desk.ask("/v1/attention")["attention"]]


def shows(desk: Operator, level: str, text: str) -> None:
    """Waits until the API has it, and then looks for it on the pages."""
    until(lambda: (level, text) in texts(desk))
    for path in PAGES:
        page = until(lambda path=path: text in (found := desk.get(path).text) and found)  # type: ignore[misc]
        assert WELL not in page
    health = desk.ask("/health?format=json")
    assert health["level"] == ("error" if "error" in [each["level"] for each in health["attention"]] else "warning")


def gone(desk: Operator, text: str) -> None:
    until(lambda: text not in [each for _, each in texts(desk)])


def test_all_is_well_only_if_no_application_reports_a_problem(desk: Desk) -> None:
    for path in PAGES:
        until(lambda path=path: WELL in desk.get(path).text)  # type: ignore[misc]
    assert texts(desk) == []


def test_the_page_of_health_has_what_a_probe_finds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    health = desk.ask("/health?format=json")
    assert health["checks"] == {"store": "ok", "data": "ok", "workers": "ok", "granting": "ok"}
    assert health["level"] == health["store"]["level"] == "ok"
    page = desk.get("/health").text
    for finding in health["store"]["findings"]:
        assert finding[1] in page  # its subject

    async def away() -> str:
        raise DataUnavailable("the database does not answer")

    monkeypatch.setitem(desk.service.service.readiness.checks, "data", away)
    until(lambda: desk.ask("/health?format=json")["checks"]["data"] == "error")
    assert desk.ask("/health?format=json")["level"] == "error"
    shows(desk, "error", "not ready: the check data fails; the log of the service says why")
    assert "the log of the service says why" in desk.get("/health").text


def test_alerts_that_fire_are_shown_until_they_are_resolved(desk: Desk) -> None:
    alert = {"name": "Disk full", "source": "db-1", "severity": "critical"}
    for fingerprint in ("one", "two"):
        desk.post("/api/alerts", alert | {"fingerprint": fingerprint}, "write")
    desk.post("/api/alerts", alert | {"name": "Later", "severity": "info", "fingerprint": "info"}, "write")
    shows(desk, "error", "2 critical alerts fire: Disk full")
    assert len(texts(desk)) == 1
    for fingerprint in ("one", "two"):
        assert desk.post("/api/alerts/acknowledge", {"fingerprint": fingerprint}).status_code == 200
    shows(desk, "warning", "2 critical alerts fire: all acknowledged")
    body = {"matchers": ["fingerprint=one"], "lasts": 600.0, "reason": BECAUSE}
    assert desk.post("/api/alerts/silences", body).status_code == 200
    shows(desk, "warning", "1 critical alert fires: all acknowledged")
    desk.post("/api/alerts", alert | {"fingerprint": "two", "status": "resolved"}, "write")
    until(lambda: WELL in desk.get("/").text)


def test_an_alert_that_every_receiver_refused_is_shown(data_url: str) -> None:
    refusing = {"type": "command", "name": "refusing", "argv": ["/bin/false"]}
    with running(
        data_url=data_url, tokens=LINES, apps=("alerts",), alerts={"publishers": [refusing], "max_attempts": 1}
    ) as it:
        desk = Desk(it)
        alert = {"name": "Disk full", "source": "db-1", "severity": "critical", "fingerprint": "one"}
        desk.post("/api/alerts", alert, "write")
        shows(desk, "error", "1 critical alert fires: Disk full (nobody was notified)")
        shows(desk, "warning", "1 dead letter in ~alerts/notifications")


def test_a_target_that_is_down_is_shown_unless_it_is_paused(desk: Desk) -> None:
    for name in ("shop", "search"):
        assert desk.post("/api/probes/run", {"name": name}).status_code == 200
    shows(desk, "error", "1 target is down: shop")
    assert desk.post("/api/probes/pause", {"name": "shop", "reason": BECAUSE}).status_code == 200
    gone(desk, "1 target is down: shop")


def test_failed_and_abandoned_runs_are_shown(desk: Desk) -> None:
    desk.trigger("failed", maxAttempts=1)
    desk.settle(desk.take("failed"), "fail", error="no")
    shows(desk, "warning", "1 run failed in default in the last 24 hours")
    desk.trigger("dead")
    desk.take("dead", lease=1)
    shows(desk, "warning", "1 run has no worker in default: theirs stopped renewing")


def test_signals_that_are_switched_off_are_shown(desk: Desk) -> None:
    assert desk.post("/api/signals/off", {"reason": BECAUSE}).status_code == 200
    shows(desk, "warning", "idempotent signals are switched off: everything that is posted is written")


def test_contention_of_signals_is_shown(desk: Desk) -> None:
    app: Any = desk.service.service.apps["signals"]
    group = SignalGroup("north", "slots")
    for _ in range(10):
        desk.service.on_loop(lambda: app._count(GroupResult(group, "contended")))
    shows(desk, "warning", "more than half of the attempts at groups of signals found another producer, in 5 minutes")


def test_an_alert_that_needs_somebody_is_shown_among_any_number_of_others(desk: Desk) -> None:
    alert = {"name": "Noise", "source": "db-1", "severity": "critical"}
    bodies = [alert | {"fingerprint": f"noise-{number}", "labels": {"of": "noise"}} for number in range(1_010)]
    body = {"matchers": ["of=noise"], "lasts": 600.0, "reason": BECAUSE}
    assert desk.post("/api/alerts/silences", body).status_code == 200
    for each in bodies:
        desk.post("/api/alerts", each, "write")
    assert texts(desk) == []
    desk.post("/api/alerts", alert | {"name": "Site", "severity": "page", "fingerprint": "one"}, "write")
    desk.post("/api/alerts", alert | {"name": "Disk", "severity": "Critical", "fingerprint": "two"}, "write")
    shows(desk, "error", "1 page alert fires: Site")
    shows(desk, "error", "1 Critical alert fires: Disk")


async def _once(schedule: AsyncSchedule, error: Exception | None = None) -> None:
    """Runs one tick of the schedule, whose job raises the error."""

    async def job(tick: Any) -> None:
        schedule.stop()
        if error is not None:
            raise error

    await schedule.run(job)


def test_schedules_that_fail_or_do_not_begin_are_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    once = desk.service.service.once
    desk.service.run(_once(once.every("nightly", 1.0), RuntimeError("no")))
    shows(desk, "warning", "1 schedule failed in the last run: nightly")
    assert desk.post("/v1/schedules/forget", {"key": "nightly", "reason": BECAUSE}).status_code == 200
    gone(desk, "1 schedule failed in the last run: nightly")
    monkeypatch.setattr(failing, "LATE", 0.0)
    desk.service.run(_once(once.every("often", 1.0)))  # and no replica runs it again
    shows(desk, "warning", "1 schedule did not begin in time: often")


def test_a_breaker_is_shown_while_it_is_open(desk: Desk) -> None:
    breaker = desk.service.service.once.breaker("smtp", threshold=1, cooldown=600)

    async def opened() -> None:
        with suppress(ZeroDivisionError):
            async with breaker:
                raise ZeroDivisionError

    desk.service.run(opened())
    shows(desk, "warning", "1 breaker is open, and most calls fail at once: smtp")
    assert desk.get("/keys/breaker/smtp").status_code == 200
    desk.service.run(breaker.reset())
    until(lambda: WELL in desk.get("/").text)


def test_a_job_that_fails_is_shown_until_it_works(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the database took no writes: results of probes are not recorded, so that no target is known to be down."""

    async def refused() -> None:
        raise DataError("attempt to write a readonly database")

    probes: Any = desk.service.service.apps["probes"]
    with monkeypatch.context() as patch:
        patch.setattr(probes.history, "flush", refused)
        shows(desk, "error", "probes: 1 job fails (results): attempt to write a readonly database")
    until(lambda: WELL in desk.get("/").text)


def test_a_schedule_of_an_application_that_ends_by_a_defect_is_shown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = desk.service.service

    async def broken(*_: object) -> None:
        raise KeyError("a defect")

    def start() -> None:
        schedule = service.apps["probes"].once.every("~probes/broken", 3600.0)
        monkeypatch.setattr(schedule, "run", broken)
        service.schedules.start("probes", schedule)

    desk.service.on_loop(start)
    shows(desk, "error", "probes: 1 job fails (~probes/broken): the log of the service says why")


def test_a_history_that_is_not_kept_is_shown() -> None:
    with running(tokens=LINES, apps=("none",), data_url="postgresql://127.0.0.1:1/none") as it:
        desk = Desk(it)
        (text,) = until(lambda: [text for _, text in texts(desk)])
        assert text.startswith("the history of keys is not kept: ")
        assert WELL not in desk.get("/").text


def test_an_application_with_a_defect_hides_no_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> list[object]:
        raise KeyError("a defect")

    monkeypatch.setattr(desk.service.service.apps["repos"], "attention", broken)
    shows(desk, "error", "repos: its state is unknown: the log of the service says why")


def test_an_application_that_cannot_tell_is_reported_and_hides_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> list[object]:
        raise DataUnavailable("the database does not answer")

    monkeypatch.setattr(desk.service.service.apps["probes"], "attention", broken)
    assert desk.post("/api/signals/off", {"reason": BECAUSE}).status_code == 200
    shows(desk, "error", "probes: its state is unknown: the database does not answer")
    assert ("warning", "idempotent signals are switched off: everything that is posted is written") in texts(desk)


def test_doctor_reports_what_needs_attention_at_a_service(
    desk: Desk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["write"])

    def examined() -> tuple[int, list[dict[str, str]]]:
        capfd.readouterr()
        code = perform(["doctor", "--url", desk.service.address, "--json"])
        printed = re.sub(r"^\d{4}-.*\n", "", capfd.readouterr().out, flags=re.MULTILINE)  # without the service's log
        return code, [each for each in json.loads(printed) if each["subject"] == "service"]

    assert examined() == (0, [{"level": "ok", "subject": "service", "text": "nothing needs attention"}])
    assert desk.post("/api/probes/run", {"name": "shop"}).status_code == 200
    down = {"level": "error", "subject": "service", "text": "1 target is down: shop"}
    until(lambda: down in examined()[1])  # and soon the alert that it has caused
    assert examined()[0] == 1
