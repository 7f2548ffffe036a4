"""The history: notifications and suppressed alerts are found again, on both databases; nobody waits for it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from solely.apps.alerts import history as module
from solely.apps.alerts.history import AlertHistory
from solely.apps.alerts.model import Alert, Notification
from solely.data import HOUR, Database, journal, open_database
from solely.errors import DataError, InvalidInput
from tests.apps.alerts.operator import operating
from tests.apps.alerts.working import parts_on

LATER = 3 * HOUR


def history_on(data: Database) -> AlertHistory:
    return parts_on(data).history


def alert(fingerprint: str = "cpu", severity: str = "critical", **more: Any) -> Alert:
    return Alert(**{"name": "CPU high", "source": "host-1", "fingerprint": fingerprint, "severity": severity, **more})


def notification(id: str = "n-1", at: float | None = None, **more: Any) -> Notification:
    return Notification(id=id, alert=alert(**more), at=time.time() if at is None else at, trace="00-ab-cd-01")


async def test_what_was_sent_is_found_again_as_it_was(data: Database) -> None:
    history = history_on(data)
    sent = notification(labels={"env": "prod"}, annotations={"summary": "hot"})
    history.record("published", sent, {"hook": "ok", "slack": "timed out"}, 0.25)
    await history.flush()
    (found,) = await history.recent()
    assert (found.id, found.outcome, found.fingerprint, found.severity) == ("n-1", "published", "cpu", "critical")
    assert (found.labels, found.annotations) == ({"env": "prod"}, {"summary": "hot"})
    assert (found.results, found.seconds) == ({"hook": "ok", "slack": "timed out"}, 0.25)
    assert (found.name, found.source, found.status, found.trace) == ("CPU high", "host-1", "firing", "00-ab-cd-01")
    assert found.notified is not None
    assert abs(found.notified - time.time()) < 10
    assert await history.last_notified("cpu") == found.notified
    assert await history.last_notified("disk") is None


async def test_a_notification_is_one_row_whatever_becomes_of_it(data: Database) -> None:
    history = history_on(data)
    sent = notification()
    history.record("queued", sent, {"hook": "refused", "slack": "refused"})
    await history.flush()
    assert [(each.outcome, each.notified) for each in await history.recent()] == [("queued", None)]
    history.record("published", sent, {"hook": "ok"}, 1.0)
    history.record("dead", sent, {"slack": "dead letter: no such channel"})
    await history.flush()
    (found,) = await history.recent()
    assert found.outcome == "published"  # one publisher has it
    assert found.results == {"hook": "ok", "slack": "dead letter: no such channel"}


async def test_a_dead_letter_that_is_replayed_was_sent(data: Database) -> None:
    history = history_on(data)
    history.record("queued", notification(), {"hook": "refused"})
    history.record("dead", notification(), {"hook": "dead letter: gave up"})
    await history.flush()
    assert [each.outcome for each in await history.recent()] == ["dead"]
    history.record("published", notification(), {"hook": "ok"}, 0.1)
    await history.flush()
    assert [(each.outcome, each.results) for each in await history.recent()] == [("published", {"hook": "ok"})]


async def test_pages_lead_through_all_of_it_once(data: Database) -> None:
    history = history_on(data)
    for number in range(25):
        severity, fingerprint = ("critical", "warning")[number % 2], ("cpu", "disk")[number % 5 == 0]
        history.record(
            "published",
            notification(f"n-{number:02}", at=1000.0 + number // 3, severity=severity, fingerprint=fingerprint),
            {},
            0.1,
        )
    await history.flush()
    seen, after = list[str](), ""
    for _ in range(10):
        page = await history.recent(after=after, limit=4)
        seen += [each.id for each in page]
        if len(page) < 4:
            break
        after = page[-1].place
    assert seen == [f"n-{number:02}" for number in reversed(range(25))]
    assert [each.id for each in await history.recent(fingerprint="disk")] == ["n-20", "n-15", "n-10", "n-05", "n-00"]
    assert {each.severity for each in await history.recent(severity="warning")} == {"warning"}
    assert [each.id for each in await history.recent(fingerprint="disk", severity="warning", since=1004.0)] == ["n-15"]
    for nowhere in ("yesterday", "nan/n-01", "inf/n-01"):
        with pytest.raises(InvalidInput, match="not a position"):
            await history.recent(after=nowhere)


async def test_suppressed_ones_are_summed_by_reason(data: Database) -> None:
    one, other = history_on(data), history_on(data)
    for history in (one, other):
        for _ in range(50):
            history.suppressed(alert(), "quiet")
        history.suppressed(alert(), "reserved")
        history.suppressed(alert("disk", "warning"), "silenced")
    await asyncio.gather(one.flush(), other.flush())
    counted = await one.suppressed_counts()
    assert [(each.reason, each.count) for each in counted] == [("quiet", 100), ("reserved", 2), ("silenced", 2)]
    assert all(abs(each.last - time.time()) < 10 for each in counted)
    assert [(each.reason, each.count) for each in await one.suppressed_counts(fingerprint="disk")] == [("silenced", 2)]
    assert await one.suppressed_counts(since=time.time() + LATER) == []
    assert [(each.fingerprint, each.count) for each in await one.most_suppressed()] == [("cpu", 102), ("disk", 2)]


async def test_the_last_alert_of_each_severity_is_known(data: Database) -> None:
    history = history_on(data)
    history.record("published", notification("old", at=1000.0, labels={"env": "test"}), {}, 0.1)
    history.record("published", notification("new", at=2000.0, labels={"env": "prod"}), {}, 0.1)
    history.suppressed(alert(severity="warning", labels={"env": "dev"}), "silenced")
    await history.flush()
    assert [(each.severity, each.labels["env"]) for each in await history.samples("cpu")] == [
        ("warning", "dev"), ("critical", "prod"),
    ]  # fmt: skip
    assert await history.samples("disk") == []


async def test_what_counts_towards_a_limit_is_counted(data: Database) -> None:
    history = history_on(data)
    for number, severity in enumerate(("critical", "critical", "warning")):
        history.record("published", notification(f"n-{number}", at=1000.0 + number, severity=severity), {}, 0.1)
    history.record("published", notification("n-7", at=1001.0, fingerprint="disk"), {}, 0.1)
    history.record("published", notification("n-8", at=1001.0, status="resolved"), {}, 0.1)
    history.record("queued", notification("n-9", at=1001.0), {})
    await history.flush()
    assert await history.notified_since(1000.0, severity="critical", fingerprint="cpu") == 2
    assert await history.notified_since(1000.5, severity="critical", fingerprint="cpu") == 1
    assert await history.notified_since(1000.0, severity="critical") == 3
    assert await history.notified_since(1000.0, severity="info") == 0


async def test_names_that_are_too_long_for_an_index_are_cut(data: Database) -> None:
    history, long = history_on(data), "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))  # which no index can compress
    history.record(
        "published", notification(fingerprint=long, severity=long, name=long, source=long), {"hook": long}, 0.1
    )
    history.suppressed(alert(long, long), "quiet")
    await history.flush()
    (found,) = await history.recent(fingerprint=long, severity=long)
    assert found.name == long[:255]
    assert [each.count for each in await history.suppressed_counts(fingerprint=long)] == [1]


async def test_only_what_is_old_is_forgotten(data: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PAGE", 10)
    parts, now = parts_on(data), time.time()
    history = parts.history

    async def forget(older_than: float) -> int:
        """Deletes what is older, as the service does with what is older than the retention."""
        kept = [(each, older_than + each.keep - parts.settings.retention) for each in parts._journals]
        return sum([await each.journal.sweep(each.forget, older) for each, older in kept if each.forget is not None])

    for number in range(35):
        history.record("published", notification(f"n-{number:02}", at=now - 40 + number), {}, 0.1)
        history.suppressed(alert(f"f-{number}"), "quiet")
    await history.flush()
    assert await forget(24.5) == 16
    assert len(await history.recent()) == 19
    assert len(await history.most_suppressed(limit=100)) == 35
    assert await forget(-LATER) == 19 + 35  # as if three hours had passed
    assert await history.recent() == []


async def test_what_the_database_refuses_is_kept_for_the_next_time(data: Database) -> None:
    history = history_on(data)
    await data.run("ALTER TABLE alerts_history RENAME TO away")
    history.record("published", notification(), {"hook": "ok"}, 0.1)
    history.suppressed(alert(), "quiet")
    with pytest.raises(DataError):
        await history.flush()
    history.suppressed(alert(), "quiet")
    await data.run("ALTER TABLE away RENAME TO alerts_history")
    await data.run("ALTER TABLE alerts_suppressed RENAME TO away")
    with pytest.raises(DataError):
        await history.flush()
    history.suppressed(alert(), "quiet")
    await data.run("ALTER TABLE away RENAME TO alerts_suppressed")
    await history.flush()
    assert [each.id for each in await history.recent()] == ["n-1"]
    assert [each.count for each in await history.suppressed_counts()] == [3]
    assert history.dropped == 0


async def test_the_buffers_are_bounded_and_count_what_they_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTIFICATIONS", 3)
    monkeypatch.setattr(module, "MOST_SUPPRESSED", 2)
    database = open_database("sqlite:///:memory:")  # without tables
    history = history_on(database)
    for number in range(5):
        history.record("published", notification(f"n-{number}"), {}, 0.1)
        history.suppressed(alert(f"f-{number}"), "quiet")
    history.suppressed(alert("f-0"), "quiet")  # fits: its sum is there already
    assert history.dropped == 2 + 3
    writing = asyncio.create_task(history.flush())
    await asyncio.sleep(0)  # it has begun, and there is room again
    history.record("published", notification("n-8"), {}, 0.1)
    with pytest.raises(DataError):
        await writing
    assert history.dropped == 6
    history.record("published", notification("n-9"), {}, 0.1)
    assert history.dropped == 7
    await database.close()


async def test_texts_that_a_database_cannot_keep_lose_nothing(data: Database) -> None:
    history = history_on(data)
    odd = "nul\0 and 'quotes\" and \\u0000 :name ::text"
    history.record("published", notification(fingerprint=odd, name=odd, labels={odd: odd}), {"hook": odd}, 0.1)
    history.record("published", notification(fingerprint=odd), {"hook": odd}, 0.1)
    history.suppressed(alert(odd, severity=odd), "quiet")
    await history.flush()
    (found,) = await history.recent(fingerprint=odd)
    kept = odd.replace("\0", "\ufffd")
    assert (found.name, found.labels, found.results) == (kept, {kept: kept}, {"hook": kept})
    assert [each.count for each in await history.suppressed_counts(fingerprint=odd)] == [1]
    assert await history.suppressed_of([odd, "cpu"], since=0.0) == {(kept, kept): 1}
    assert await history.recent(after="1.0/\0") == []


def test_what_the_history_drops_is_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTIFICATIONS", 0)
    with operating() as it:
        it.send("a")
        it.send("b")
        assert 'solely_journal_dropped_total{app="alerts"} 2.0' in it.get("/metrics").text
