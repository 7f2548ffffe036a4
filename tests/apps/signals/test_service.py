"""Signals over HTTP: batches of producers, the next signal for consumers, the flag, dead letters, metrics, alerts, the
page, the commands and the rollback."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from solely import DataUnavailable, StoreUnavailable
from solely.apps.signals.app import SignalsApp
from solely.apps.signals.model import SignalGroup
from solely.apps.signals.runtime import PostedSignal
from solely.cli.program import perform
from tests.apps.operator import BECAUSE, Operator, operating
from tests.cli.conftest import Told
from tests.service.serving import TOKENS, bearer, until

NASTY = "<script>alert('x')</script>&\"ü"
Run = Callable[..., Told]


@pytest.fixture
def desk() -> Iterator[Operator]:
    with operating("signals", {}) as it:
        yield it


def app_of(desk: Operator) -> SignalsApp:
    app = desk.service.service.apps["signals"]
    assert isinstance(app, SignalsApp)
    return app


def batch(*names: str, **more: Any) -> dict[str, Any]:
    return {"signals": [{"username": name, **more} for name in names]}


def post(desk: Operator, *names: str, group: str = "north/slots", **more: Any) -> dict[str, Any]:
    answer = desk.post(f"/api/signals/{group}", batch(*names, **more), "write")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def fail_writes(desk: Operator, error: Exception | None = None) -> None:
    """Has all writes of signals fail from now on; without an error they succeed again."""
    app = app_of(desk)

    async def fails(*given: Any) -> bool:
        assert error is not None
        raise error

    vars(app.table).pop("write", None)
    if error is not None:
        vars(app.table)["write"] = fails


# -- producers


def test_a_batch_is_written_once(desk: Operator) -> None:
    assert post(desk, "ann", "bob") == {"outcome": "generated", "generated": 2, "deduplicated": 0, "dead_lettered": 0}
    assert post(desk, "bob", "eve")["generated"] == 1
    assert post(desk, "ann", group="south/slots")["generated"] == 1
    assert len(desk.ask("/api/signals/waiting")["signals"]) == 4


def test_many_producers_at_once_write_each_signal_once(desk: Operator) -> None:
    app, group = app_of(desk), SignalGroup("north", "slots")
    names = [f"user-{number}" for number in range(20)]

    async def produce() -> Counter[str]:
        posted = [PostedSignal(group, name, {"username": name}) for name in names]
        results = await asyncio.gather(*(app.receive(posted, group) for _ in range(8)))
        assert sum(each.generated for each in results) == 20
        return Counter(each.outcome for each in results)

    outcomes = desk.service.run(produce())
    assert outcomes["generated"] >= 1
    waiting = desk.ask("/api/signals/waiting")["signals"]
    assert Counter(each["username"] for each in waiting) == Counter(dict.fromkeys(names, 1))


def test_a_group_that_another_producer_has_is_answered_409_and_may_be_posted_again(desk: Operator) -> None:
    app = app_of(desk)
    lease = desk.service.run(app.once.try_lock(app.own("signal:north:slots"), on_lost="flag"))
    assert lease is not None
    answer = desk.post("/api/signals/north/slots", batch("ann"), "write")
    assert (answer.status_code, answer.headers["retry-after"]) == (409, "1")
    assert "another producer is posting signals of north/slots" in answer.json()["detail"]
    desk.service.run(lease.release())
    assert post(desk, "ann")["generated"] == 1
    assert b"solely_signals_lock_contention_total 1.0" in desk.get("/metrics", "read").content


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"signals": []}, "length >= 1"),
        ({"signals": [{"username": "ann"}, {"user": "bob"}]}, "signals[1].username"),
        ({"signals": [{"username": 7}]}, "must be texts that are not empty, not 7"),
        ({"signals": [{"username": "x" * 500}]}, "more than 480 bytes"),
        ({"signals": ["ann"]}, "Expected `object`"),
        ({"signal": []}, "unknown field"),
    ],
)
def test_an_invalid_batch_is_refused_as_a_whole(desk: Operator, body: dict[str, Any], says: str) -> None:
    answer = desk.post("/api/signals/north/slots", body, "write")
    assert answer.status_code == 400
    assert says in answer.json()["detail"]
    assert desk.ask("/api/signals/waiting")["signals"] == []


def test_a_producer_needs_a_token_that_may_write(desk: Operator) -> None:
    assert desk.post("/api/signals/north/slots", batch("ann"), "read").status_code == 403


def test_an_unreachable_store_is_answered_503_and_nothing_is_written(desk: Operator) -> None:
    app = app_of(desk)

    async def away(*given: Any, **more: Any) -> Any:
        raise StoreUnavailable("the store is down")

    before, app.generator._once = app.generator._once, type("Away", (), {"try_lock": staticmethod(away)})
    assert desk.post("/api/signals/north/slots", batch("ann"), "write").status_code == 503
    app.generator._once = before
    assert desk.ask("/api/signals/waiting")["signals"] == []
    assert b"solely_signals_refused_total 1.0" in desk.get("/metrics", "read").content


# -- consumers


def test_the_next_signal_is_the_most_urgent_then_the_oldest_and_stays_until_acknowledged(desk: Operator) -> None:
    post(desk, "low")
    post(desk, "urgent", priority=4, jackpot="grand")
    post(desk, "later", priority=4)
    read = []
    for _ in range(3):
        found = desk.ask("/api/signals/north/slots/next")
        assert desk.ask("/api/signals/next") == found
        read.append(found["username"])
        for acknowledged in (True, False):
            answer = desk.post("/api/signals/acknowledge", {"id": found["id"]}, "write")
            assert answer.json() == {"acknowledged": acknowledged}
    assert read == ["urgent", "later", "low"]
    assert desk.get("/api/signals/north/slots/next").status_code == 404


def test_a_signal_comes_as_it_was_posted(desk: Operator) -> None:
    given: dict[str, Any] = {"priority": 2.5, "jackpot": {"tier": "grand", "value": [1, None, True]}, "note": NASTY}
    post(desk, "ann", **given)
    found = desk.ask("/api/signals/north/slots/next")
    assert found["signal"] == {"username": "ann", **given}
    assert (found["house"], found["game"], found["username"], found["priority"]) == ("north", "slots", "ann", 2.5)


def test_consumers_that_lease_get_different_signals(desk: Operator) -> None:
    post(desk, "ann", "bob")
    taken = [desk.post("/api/signals/north/slots/next", {"lease": 60}, "write").json()["id"] for _ in range(2)]
    assert len(set(taken)) == 2
    assert desk.post("/api/signals/north/slots/next", {}, "write").status_code == 404
    assert desk.ask("/api/signals/north/slots/next")["id"] in taken  # who does not lease reads as before
    assert desk.post("/api/signals/other/slots/next", {}, "write").status_code == 404


# -- dead letters


def test_failed_signals_become_dead_letters_and_are_replayed(desk: Operator) -> None:
    fail_writes(desk, DataUnavailable("the database is down"))
    assert post(desk, "ann", priority=3)["dead_lettered"] == 1
    (letter,) = desk.ask("/api/signals/dead-letters")["dead_letters"]
    assert (letter["username"], letter["attempts"]) == ("ann", 4)
    assert letter["signal"] == {"username": "ann", "priority": 3}
    assert "the database is down" in letter["error"]
    assert desk.post("/api/signals/replay", {"reason": BECAUSE}).json() == {"replayed": 0}
    fail_writes(desk)
    assert desk.post("/api/signals/replay?dry_run=true", {"reason": BECAUSE}).json()["would"] == (
        "replay 1 dead letter of signals"
    )
    assert desk.post("/api/signals/replay", {"reason": BECAUSE}).json() == {"replayed": 1}
    assert desk.ask("/api/signals/next")["priority"] == 3
    assert desk.ask("/api/signals/dead-letters")["dead_letters"] == []


# -- the flag


def test_the_flag_is_switched_for_all_workers_and_survives_a_restart(tmp_path: Path) -> None:
    places = {"url": f"sqlite:///{tmp_path / 'store.db'}", "data_url": f"sqlite:///{tmp_path / 'data.db'}"}
    with operating("signals", {}, **places) as one, operating("signals", {}, **places) as other:
        assert one.post("/api/signals/off", {"reason": BECAUSE}).json() == {"switched": True}
        assert one.post("/api/signals/off", {"reason": BECAUSE}).json() == {"switched": False}
        until(lambda: not app_of(other).generator.use_idempotent_signals)
        for _ in range(2):
            assert post(other, "ann") == {"outcome": "off", "generated": 1, "deduplicated": 0, "dead_lettered": 0}
    with operating("signals", {}, **places) as again:
        assert post(again, "ann")["outcome"] == "off"
        assert again.post("/api/signals/on", {"reason": BECAUSE}).json() == {"switched": True}
        assert post(again, "ann")["outcome"] == "generated"


def test_the_setting_switches_off_too() -> None:
    with operating("signals", {"use_idempotent_signals": False}) as desk:
        assert post(desk, "ann", "ann")["generated"] == 2
        assert desk.post("/api/signals/on", {"reason": BECAUSE}).json() == {"switched": False}


# -- metrics and alerts


def test_metrics_are_in_prometheus_and_in_the_log(desk: Operator, capfd: pytest.CaptureFixture[str]) -> None:
    post(desk, "ann", "bob")
    post(desk, "ann")
    text = desk.get("/metrics", "read").text
    for line in ("generated_total 2.0", "deduplicated_total 1.0", "lock_acquired_total 2.0", "dead_lettered_total 0.0"):
        assert f"solely_signals_{line}" in text
    assert "solely_signals_latency_seconds_bucket" in text
    assert "solely_signals_breaker_open 0.0" in text
    assert {job.every for job in app_of(desk).jobs() if job.name == "report"} == {60.0}
    capfd.readouterr()
    desk.service.run(app_of(desk).report())
    logged = "".join(capfd.readouterr())
    assert "signals.generated=2 signals.deduplicated=1 signals.lock_acquired=2 signals.lock_contention=0" in logged
    assert "signals.latency_ms.p99=" in logged


def test_the_three_rules_are_announced_and_resolved(desk: Operator) -> None:
    app, announced = app_of(desk), list[tuple[str, str]]()

    async def note(announcement: Any) -> None:
        assert announcement.source == "signals"
        announced.append((announcement.name, announcement.status))

    desk.service.on_loop(lambda: app.service.announce.register(note))
    fail_writes(desk, OSError("disk full"))
    post(desk, "ann")
    lease = desk.service.run(app.once.try_lock(app.own("signal:north:slots"), on_lost="flag"))
    assert lease is not None
    for _ in range(11):
        assert desk.post("/api/signals/north/slots", batch("bob"), "write").status_code == 409
    for _ in range(5):
        app.generator.breaker.judge(app.generator.breaker.admit(), False)
    desk.service.run(app.minutes.flush())
    for _ in range(2):  # announced once
        desk.service.run(app.report())
    assert sorted(announced) == [
        ("signals.breaker", "firing"), ("signals.dead_lettered", "firing"), ("signals.lock_contention", "firing"),
    ]  # fmt: skip
    announced.clear()
    fail_writes(desk)
    desk.service.run(lease.release())
    assert desk.post("/api/signals/replay", {"reason": BECAUSE}).json() == {"replayed": 1}
    app.generator.breaker = app._breaker()
    desk.service.run(app.service.data.run("DELETE FROM signals_minutes"))
    desk.service.run(app.report())
    assert sorted(announced) == [
        ("signals.breaker", "resolved"), ("signals.dead_lettered", "resolved"),
        ("signals.lock_contention", "resolved"),
    ]  # fmt: skip


# -- the page


def test_the_page_shows_groups_rates_contention_and_dead_letters_as_text(desk: Operator) -> None:
    post(desk, NASTY, "bob", group="north/slots")
    post(desk, "bob", group="north/slots")
    fail_writes(desk, OSError(NASTY))
    post(desk, NASTY, group="south/keno")
    page = desk.get("/signals", "read")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    view = desk.ask("/signals", format="json")
    groups = {(each["house"], each["game"]): each for each in view["groups"]}
    assert (groups["north", "slots"]["generated"], groups["north", "slots"]["deduplicated"]) == (2, 1)
    assert groups["north", "slots"]["waiting"] == 2
    assert groups["south", "keno"]["dead_lettered"] == 1
    assert [each["username"] for each in view["dead_letters"]] == [NASTY]
    assert (view["on"], view["breaker"]) == (True, "closed")
    assert desk.ask("/api/signals/groups")["groups"] == view["groups"]


def test_old_signals_are_deleted_only_if_they_were_acknowledged(desk: Operator) -> None:
    app = app_of(desk)
    post(desk, "ann", "bob")
    first = desk.ask("/api/signals/next")
    desk.post("/api/signals/acknowledge", {"id": first["id"]}, "write")
    desk.service.run(app.table.sweep(older_than=-10.0))
    rows = desk.service.run(app.service.data.rows("SELECT username FROM signals_signals"))
    assert [row["username"] for row in rows] == [({"ann", "bob"} - {first["username"]}).pop()]


# -- commands


@pytest.fixture
def run(desk: Operator, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("groups", …)` answers what `solely signals groups …` says to an admin of the service."""
    monkeypatch.setenv("SOLELY_URL", desk.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])

    def perform_it(*words: str) -> Told:
        capfd.readouterr()
        code = perform(["signals", *words])
        out, err = capfd.readouterr()
        return Told(code, re.sub(r"^\d{4}-.*\n", "", out, flags=re.MULTILINE), err)

    return perform_it


def test_signals_are_sent_read_and_acknowledged_by_commands(run: Run) -> None:
    sent = run("send", "north", "slots", '[{"username": "ann"}]', "-o", "json")
    assert json.loads(sent.out)["generated"] == 1
    found = json.loads(run("next", "north", "slots", "--lease", "10s", "-o", "json").out)
    assert found["username"] == "ann"
    assert [each["house"] for each in json.loads(run("groups", "-o", "json").out)] == ["north"]
    assert run("ack", found["id"]).code == 0
    assert run("ack", found["id"]).code == 3
    assert run("next", "north", "slots").code == 3
    assert run("send", "north", "slots", "not json").code == 2


def test_a_rollback_is_one_command(desk: Operator, run: Run, tmp_path: Path) -> None:
    post(desk, "ann")
    fail_writes(desk, OSError("disk full"))
    post(desk, "bob")
    fail_writes(desk)
    file = tmp_path / "letters.jsonl"
    assert "1 dead letters" in run("rollback", "--export", str(file), "--reason", BECAUSE, "--dry-run").err
    assert app_of(desk).generator.use_idempotent_signals
    told = run("rollback", "--export", str(file), "--reason", BECAUSE, "--yes")
    assert told.code == 0, told.err
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert (letter["username"], letter["signal"]) == ("bob", {"username": "bob"})
    assert "the next signal is " in told.err
    app = app_of(desk)
    assert desk.service.run(app.once.marks(app.own("signal:"))) == []
    assert desk.ask("/api/signals/dead-letters")["dead_letters"] == []
    assert desk.ask("/api/signals/north/slots/next")["username"] == "ann"
    assert post(desk, "ann")["outcome"] == "off"
    assert run("rollback", "--export", str(file), "--reason", BECAUSE, "--yes").code == 1  # overwrites no export


def test_a_rollback_removes_nothing_while_the_flag_is_on_or_a_letter_is_not_exported(desk: Operator) -> None:
    fail_writes(desk, OSError("disk full"))
    post(desk, "ann")
    body = {"reason": BECAUSE, "exported": []}
    assert not desk.post("/api/signals/rollback", body).json()["rolled_back"]
    desk.post("/api/signals/off", {"reason": BECAUSE})
    assert not desk.post("/api/signals/rollback", body).json()["rolled_back"]
    (letter,) = desk.ask("/api/signals/dead-letters")["dead_letters"]
    body["exported"] = [f"{letter['fence']}/{letter['id']}"]
    assert desk.post("/api/signals/rollback", body).json()["rolled_back"]


def test_admin_acts_are_in_the_audit_log_with_their_reason(desk: Operator) -> None:
    desk.post("/api/signals/off", {"reason": "a drill"})
    page = desk.service.get("/audit", headers=bearer(TOKENS["admin"]), params={"format": "json"})
    (record,) = [each for each in page.json()["records"] if each["action"] == "signals.off"]
    assert (record["reason"], record["outcome"]) == ("a drill", "done")


def test_the_demo_writes_and_consumes_signals(desk: Operator) -> None:
    app = app_of(desk)
    task = asyncio.run_coroutine_threadsafe(app.demo(), desk.service.loop)
    until(lambda: desk.ask("/signals", format="json")["groups"], 30.0)
    task.cancel()
    assert all(each["house"].startswith("demo-") for each in desk.ask("/api/signals/groups")["groups"])
