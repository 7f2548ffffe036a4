"""An acknowledged alert sends nothing until it resolves, or the acknowledgement expires or is removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from solely.apps.alerts.model import RESOLVED, Alert, key_of
from solely.apps.alerts.publishers import PublishFailed
from solely.apps.alerts.suppression.acknowledgements import Acknowledgement
from solely.cli.program import perform
from tests.apps.alerts.operator import Operator, operating
from tests.apps.alerts.test_pages import csrf_of, logged_in
from tests.apps.alerts.working import Open, Worker, alert
from tests.service.serving import TOKENS

ALWAYS = {"policies": {severity: {"quiet": 0.0, "limit": 0} for severity in ("critical", "warning")}}
A_DAY = 86_400.0


async def acknowledge(worker: Worker, severity: str = "", lasts: float = 60.0) -> Acknowledgement:
    worker.parts.receiver.forget("cpu")
    return await worker.parts.acknowledgements.add("cpu", severity=severity, lasts=lasts, by="ann", comment="looking")


async def again(worker: Worker, given: Alert) -> str:
    """What became of it, with nothing remembered from a moment ago."""
    worker.parts.receiver.forget(given.fingerprint)
    outcome = await worker.receive(given)
    return outcome.reason or outcome.outcome


async def test_an_acknowledged_alert_is_not_sent_again_by_any_worker(open_anywhere: Open) -> None:
    worker, other = await open_anywhere(**ALWAYS), await open_anywhere(**ALWAYS)
    await worker.receive(alert())
    await acknowledge(worker)
    for each in (worker, other):
        outcome = await each.receive(alert())
        assert (outcome.outcome, outcome.reason) == ("suppressed", "acknowledged")
        assert outcome.retry_after is not None
        assert 50 < outcome.retry_after <= 60
        assert each.counted("suppressed", "acknowledged") == 1
    assert (len(worker.publisher.ids), other.publisher.ids) == (1, [])
    assert await worker.waiting() == 0


async def test_the_resolution_is_sent_and_ends_it(open_anywhere: Open) -> None:
    worker = await open_anywhere(**ALWAYS)
    await worker.receive(alert())
    await acknowledge(worker)
    assert (await worker.receive(alert(status=RESOLVED))).outcome == "published"
    assert await worker.parts.acknowledgements.of_fingerprint("cpu") is None
    assert await again(worker, alert()) == "published"


async def test_it_ends_by_itself_and_when_it_is_taken_back(open_anywhere: Open) -> None:
    worker = await open_anywhere(**ALWAYS)
    await worker.receive(alert())
    made = await acknowledge(worker, lasts=0.3)
    assert await again(worker, alert()) == "acknowledged"
    await asyncio.sleep(max(0.0, made.ends - time.time()))
    assert await again(worker, alert()) == "published"
    await acknowledge(worker)
    assert await worker.parts.acknowledgements.remove("cpu")
    assert not await worker.parts.acknowledgements.remove("cpu")
    assert await again(worker, alert()) == "published"


async def test_another_severity_goes_through_unless_none_was_named(open_anywhere: Open) -> None:
    worker = await open_anywhere(**ALWAYS)
    await worker.receive(alert(severity="warning"))
    await acknowledge(worker, "Warning")
    assert await again(worker, alert(severity="warning")) == "acknowledged"
    assert await again(worker, alert(severity="critical")) == "published"
    await acknowledge(worker)  # takes the place of the first
    assert len(await worker.parts.acknowledgements.list()) == 1
    assert await again(worker, alert(severity="critical")) == "acknowledged"


async def test_a_queued_notification_is_not_sent_either(open_anywhere: Open) -> None:
    worker = await open_anywhere(**ALWAYS)
    await worker.receive(alert())
    worker.publisher.failure = PublishFailed("away")
    assert await again(worker, alert()) == "publish_failed"
    await acknowledge(worker)
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    assert len(worker.publisher.ids) == 1


async def test_copies_that_refused_callers_queue_are_not_sent(open_anywhere: Open) -> None:
    workers = [await open_anywhere(**ALWAYS) for _ in range(3)]
    await workers[0].receive(alert())
    await acknowledge(workers[0])
    for _ in range(5):
        for each in workers:
            each.parts.receiver.forget("cpu")
        await asyncio.gather(*(each.receive(alert()) for each in workers))
    await workers[0].parts.acknowledgements.remove("cpu")
    await workers[0].sweep_until_empty()
    assert sum(len(each.publisher.ids) for each in workers) == 1


async def test_an_acknowledged_alert_uses_up_no_limit_and_suppressed_ones_ask_nothing(open_anywhere: Open) -> None:
    worker = await open_anywhere(policies={"critical": {"quiet": 60.0, "limit": 2}})
    await worker.receive(alert())
    await acknowledge(worker)
    assert await again(worker, alert()) == "quiet"
    await worker.once.expire_reservation(key_of(alert()), reason="test")
    for _ in range(3):
        assert await again(worker, alert()) == "acknowledged"
    await worker.parts.acknowledgements.remove("cpu")
    assert await again(worker, alert()) == "published"


async def test_those_whose_time_is_over_are_forgotten(open_anywhere: Open) -> None:
    worker = await open_anywhere()
    await acknowledge(worker, lasts=0.01)
    await worker.parts.acknowledgements.add("disk", lasts=60, by="ann")
    await asyncio.sleep(0.02)
    assert [each.fingerprint for each in await worker.parts.acknowledgements.list()] == ["disk"]
    await worker.parts.acknowledgements.sweep()
    assert await worker.waiting("~alerts/acknowledged") == 1


# -- over HTTP


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    with operating(policies={"critical": {"quiet": 0.0, "limit": 0}}) as it:
        yield it


def sent(desk: Operator, fingerprint: str) -> str:
    """What became of it, once what the worker remembers of a moment ago is over."""
    outcomes = (desk.send(fingerprint) for _ in range(1000))
    outcome = next(each for each in outcomes if each.get("reason") not in ("reserved", "quiet"))
    return str(outcome.get("reason") or outcome["outcome"])


def test_acknowledging_over_http(desk: Operator) -> None:
    assert sent(desk, "http") == "published"
    made = desk.post("/api/alerts/acknowledge", {"fingerprint": "http", "comment": "on it"}, "write").json()
    assert (made["made_by"], made["comment"], made["severity"]) == ("writeer", "on it", "")
    assert made["ends"] - made["made"] == pytest.approx(A_DAY)
    assert sent(desk, "http") == "acknowledged"
    known = desk.why("http")
    assert known["acknowledged"] == made
    assert known["verdict"][0].startswith(f"Acknowledged by {made['made_by']}")
    assert made in desk.ask("/api/alerts/acknowledged")["acknowledged"]
    assert desk.post("/api/alerts/unacknowledge", {"fingerprint": "http"}, "write").json() == {"unacknowledged": True}
    assert desk.post("/api/alerts/unacknowledge", {"fingerprint": "http"}, "write").status_code == 404
    assert sent(desk, "http") == "published"


def test_for_how_long_can_be_said(desk: Operator) -> None:
    sent(desk, "said")
    wanted = {"fingerprint": "said", "severity": "critical", "for": 90.0}
    made = desk.post("/api/alerts/acknowledge", wanted, "write").json()
    assert (made["severity"], made["ends"] - made["made"]) == ("critical", pytest.approx(90))


def test_nobody_acknowledges_in_the_name_of_another(desk: Operator) -> None:
    sent(desk, "named")
    refused = desk.post("/api/alerts/acknowledge", {"fingerprint": "named", "by": "adminer"}, "write")
    assert (refused.status_code, "`by`" in refused.json()["detail"]) == (400, True)
    made = desk.post("/api/alerts/acknowledge", {"fingerprint": "named", "comment": "for Ann"}, "write").json()
    assert (made["made_by"], made["comment"]) == ("writeer", "for Ann")


def test_an_alert_that_was_not_sent_cannot_be_hidden(desk: Operator) -> None:
    refused = desk.post("/api/alerts/acknowledge", {"fingerprint": "unheard"}, "write")
    assert refused.status_code == 404
    assert "is not open" in refused.json()["detail"]
    assert sent(desk, "unheard") == "published"


def test_who_may_only_look_may_not_acknowledge(desk: Operator) -> None:
    sent(desk, "looked")
    assert desk.post("/api/alerts/acknowledge", {"fingerprint": "looked"}, "read").status_code == 403


@pytest.mark.parametrize("wrong", [{"for": 0}, {"for": 1e9}, {"comment": "x" * 501}, {"fingerprint": ""}], ids=str)
def test_what_cannot_be_is_refused(desk: Operator, wrong: dict[str, object]) -> None:
    assert desk.post("/api/alerts/acknowledge", {"fingerprint": "http", **wrong}, "write").status_code == 400


def test_pagerduty_acknowledges(desk: Operator) -> None:
    assert sent(desk, "paged") == "published"
    event = {"routing_key": TOKENS["write"], "event_action": "acknowledge", "dedup_key": "paged", "client": "phone"}
    answer = desk.service.post("/v2/enqueue", event)
    assert (answer.status_code, answer.json()["message"]) == (202, "Event processed")
    assert sent(desk, "paged") == "acknowledged"
    made = desk.why("paged")["acknowledged"]
    assert (made["made_by"], made["comment"]) == ("writeer", "phone")


def test_acknowledgements_are_in_the_audit_log_whoever_made_them(desk: Operator) -> None:
    sent(desk, "audited")
    desk.post("/api/alerts/acknowledge", {"fingerprint": "audited", "comment": "on it"}, "write")
    desk.post("/api/alerts/unacknowledge", {"fingerprint": "audited"}, "write")
    desk.post("/api/alerts/unacknowledge", {"fingerprint": "audited"}, "write")
    event = {"routing_key": TOKENS["write"], "event_action": "acknowledge", "dedup_key": "audited", "client": "phone"}
    for key in ("audited", "unheard-of"):
        desk.service.post("/v2/enqueue", event | {"dedup_key": key})
    records = desk.ask("/v1/audit")["records"][:5]
    assert [(each["action"], each["key"], each["reason"], each["outcome"]) for each in reversed(records)] == [
        ("alerts.acknowledge", "audited", "on it", "done"),
        ("alerts.unacknowledge", "audited", "", "done"),
        ("alerts.unacknowledge", "audited", "", "nothing"),
        ("alerts.acknowledge", "audited", "phone", "done"),
        ("alerts.acknowledge", "unheard-of", "phone", "nothing"),
    ]
    assert {each["who"] for each in records} == {"writeer"}


# -- by command and on the pages


def test_commands(desk: Operator, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLELY_URL", desk.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["write"])
    sent(desk, "by-command")
    capfd.readouterr()
    assert perform(["alerts", "acknowledge", "by-command", "--for", "2h", "--comment", "on it"]) == 0
    assert "on it" in capfd.readouterr().out
    assert sent(desk, "by-command") == "acknowledged"
    capfd.readouterr()
    assert perform(["alerts", "acknowledged"]) == 0
    assert "by-command" in capfd.readouterr().out
    assert perform(["alerts", "unacknowledge", "by-command"]) == 0
    assert perform(["alerts", "unacknowledge", "by-command"]) == 3
    assert perform(["alerts", "acknowledge", "never-sent"]) == 3
    assert sent(desk, "by-command") == "published"


def test_pages(desk: Operator) -> None:
    sent(desk, "by-page")
    where = f"/alerts/acknowledge?{urlencode({'fingerprint': 'by-page'})}"
    with logged_in(desk, "read") as reader:
        assert reader.get(where).status_code == 403
    with logged_in(desk, "write") as browser:
        asked = browser.get(where)
        assert 'value="1d"' in asked.text  # the default of the settings
        fields = {"csrf": csrf_of(asked.text), "fingerprint": "by-page"}
        more = {"for": "2h", "severity": "critical", "comment": "on it & more"}
        assert browser.post("/alerts/acknowledge", data={**fields, **more}).status_code == 303
        assert sent(desk, "by-page") == "acknowledged"
        assert "Acknowledged by writeer" in browser.get("/alerts/why?fingerprint=by-page").text
        assert "on it &amp; more" in browser.get("/alerts").text
        assert "Remove the acknowledgement" in browser.get(where).text
        assert browser.post("/alerts/unacknowledge", data=fields).status_code == 303
        again = browser.post("/alerts/unacknowledge", data=fields)
        assert again.headers["location"].endswith("note=moved-on")
    assert sent(desk, "by-page") == "published"
