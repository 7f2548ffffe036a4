"""A refused caller leaves a copy in the outbox, in case the publishing worker dies; a late copy sends nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from solely.apps.alerts.model import Alert, AlertOutcome, Notification, key_of
from solely.apps.alerts.notifications.publishing import QUEUE
from tests.apps.alerts.working import Open, Worker, alert, until, working

OVER = alert(status="resolved")


@pytest.fixture
async def open_worker(tmp_path: Path) -> AsyncIterator[Open]:
    async with working(f"sqlite:///{tmp_path / 'solely.sqlite3'}") as open_one:
        yield open_one


async def sent_with_a_latecomer(
    alert: Alert, publishing_worker: Worker, late: Worker, patch: pytest.MonkeyPatch
) -> AlertOutcome:
    """One worker publishes; the other, which was refused meanwhile, leaves its copy only after that is settled."""
    refused, settled, leave = asyncio.Event(), asyncio.Event(), late.parts.outbox.leave_copy

    async def leave_late(*what: Any) -> None:
        refused.set()
        await settled.wait()
        await leave(*what)

    patch.setattr(late.parts.outbox, "leave_copy", leave_late)
    before = len(publishing_worker.publisher.ids)
    publishing_worker.publisher.open.clear()
    sending = asyncio.create_task(publishing_worker.receive(alert))
    await until(lambda: len(publishing_worker.publisher.ids) > before)
    refusal = asyncio.create_task(late.receive(alert))
    await asyncio.wait_for(refused.wait(), 100)
    publishing_worker.publisher.open.set()
    outcome = await sending
    settled.set()
    assert (await refusal).reason == "reserved"
    patch.undo()
    assert await late.waiting() == 1, "the copy came late, and that is what is tested here"
    return outcome


def statuses(*workers: Worker) -> list[str]:
    """What was sent, by whichever worker, in order."""
    sent = [each for worker in workers for each in worker.publisher.notifications]
    return [each.alert.status for each in sorted(sent, key=lambda each: each.at)]


async def test_a_late_copy_is_not_sent_after_it_was_resolved(
    open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing_worker, late = await open_worker(), await open_worker()
    assert (await sent_with_a_latecomer(alert(), publishing_worker, late, monkeypatch)).outcome == "published"
    assert (await publishing_worker.receive(OVER)).outcome == "published"
    await late.sweep_until_empty()
    assert statuses(publishing_worker, late) == ["firing", "resolved"]


async def test_a_late_copy_does_not_look_like_an_unsent_notification(
    open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing_worker, late = await open_worker(), await open_worker()
    await sent_with_a_latecomer(alert(), publishing_worker, late, monkeypatch)
    assert (await publishing_worker.receive(OVER)).outcome == "published"
    assert (await publishing_worker.receive(OVER)).reason == "not_firing"


async def test_a_late_copy_of_the_resolved_one_does_not_close_what_fires_again(
    open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing_worker, late = await open_worker(), await open_worker()
    await publishing_worker.receive(alert())
    assert (await sent_with_a_latecomer(OVER, publishing_worker, late, monkeypatch)).outcome == "published"
    assert (await publishing_worker.receive(alert())).outcome == "published"
    await late.sweep_until_empty()
    assert statuses(publishing_worker, late) == ["firing", "resolved", "firing"]


async def test_a_late_copy_is_recognized_too_when_an_older_notification_was_sent(
    open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing_worker, late = await open_worker(), await open_worker()
    left = Notification(id=f"msg_{secrets.token_hex(16)}", alert=alert(), at=0.0)
    dead = await publishing_worker.parts.outbox.add(key_of(alert()), left, 0.1)
    assert dead is not None
    await asyncio.sleep(0.15)  # the store's own clock: it is anybody's now
    assert (await sent_with_a_latecomer(alert(), publishing_worker, late, monkeypatch)).outcome == "published"
    assert publishing_worker.publisher.ids == [left.id]
    assert (await publishing_worker.receive(OVER)).outcome == "published"
    await late.sweep_until_empty()
    assert statuses(publishing_worker, late) == ["firing", "resolved"]


async def test_who_lost_its_reservation_to_another_leaves_it_to_that_one_under_the_same_id(
    open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = await open_worker(), await open_worker()
    reserved, settled, put_in = asyncio.Event(), asyncio.Event(), other.parts.outbox.add

    async def put_in_late(*what: Any) -> Any:
        reserved.set()
        await settled.wait()
        return await put_in(*what)

    monkeypatch.setattr(other.parts.outbox, "add", put_in_late)
    slow.publisher.open.clear()
    sending = asyncio.create_task(slow.receive(alert()))
    await until(lambda: slow.publisher.ids)
    assert await slow.once.expire_reservation(key_of(alert()), reason="as if it had stood still past its hold")
    taking_over = asyncio.create_task(other.receive(alert()))
    await asyncio.wait_for(reserved.wait(), 100)
    slow.publisher.open.set()
    assert (await sending).outcome == "published"
    settled.set()
    assert (await taking_over).outcome == "published"
    await other.sweep_until_empty()
    assert slow.publisher.ids == other.publisher.ids
    assert len(slow.publisher.ids) == 1
    assert (await other.receive(alert())).reason == "quiet"


async def test_a_worker_that_sent_it_after_its_hold_expired_still_starts_the_quiet_window(
    open_worker: Open,
) -> None:
    slow, other = await open_worker(policies={"critical": {"hold": 0.3}}), await open_worker()
    slow.publisher.open.clear()
    sending = asyncio.create_task(slow.receive(alert()))
    await until(lambda: slow.publisher.ids)
    for hold in list(slow.once._context.keeper.holds):
        slow.once._context.keeper.remove(hold)  # stands still: nobody renews it
    for _ in range(10):
        taken = await other.once.reserve(key_of(alert()))
        if taken:
            break
        await asyncio.sleep(taken.retry_after)
    assert await taken.release()
    slow.publisher.open.set()
    assert (await sending).outcome == "published"
    assert (await other.receive(alert())).reason == "quiet"


async def test_a_reservation_names_the_notification_that_is_sent(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert(name="🔔" * 255))  # whose name leaves no room for anything else
    (window,) = await worker.once.reservations(key_of(alert()))
    assert window.details["id"] == worker.publisher.ids[0]


async def test_what_another_has_in_hand_is_counted_as_queued(open_worker: Open) -> None:
    worker = await open_worker()
    left = Notification(id=f"msg_{secrets.token_hex(16)}", alert=alert(), at=0.0)
    assert await worker.parts.outbox.add(key_of(alert()), left, 60.0) is not None
    assert (await worker.receive(alert())).reason == "in_flight"
    assert worker.counted("queued") == 1


@pytest.mark.parametrize("again", [alert(), OVER], ids=["fires again", "is resolved"])
async def test_a_copy_in_another_hand_does_not_swallow_what_is_new(
    again: Alert, open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, late = await open_worker(), await open_worker()
    if again == OVER:
        await sending.receive(alert())
    assert (await sent_with_a_latecomer(again, sending, late, monkeypatch)).outcome == "published"
    held = await late.once.queue(QUEUE).take(ttl=60.0)  # by a worker that is about to drop it, and stands still
    assert held is not None
    await sending.receive(alert() if again == OVER else OVER)
    before = len(sending.publisher.ids)
    outcome = await sending.receive(again)
    assert outcome.outcome == "published"
    assert len(set(sending.publisher.ids)) == len(sending.publisher.ids) == before + 1
    assert await held.ack()
    assert await sending.waiting() == 0


@pytest.mark.parametrize("held", [False, True])
async def test_a_copy_of_what_was_sent_does_not_keep_the_next_one_out_of_the_outbox(
    held: bool, open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, late = await open_worker(), await open_worker()
    await sent_with_a_latecomer(alert(), sending, late, monkeypatch)
    item = await late.once.queue(QUEUE).take(ttl=60.0) if held else None
    await sending.receive(OVER)
    for _ in range(2):  # a repeat of the same notification adds nothing
        await sending.parts.outbox.ensure_queued(key_of(alert()), Notification(id="msg_new", alert=alert(), at=1.0))
    assert await sending.waiting() == 2
    if item is not None:
        await item.give_back()
    await sending.sweep_until_empty()
    assert sending.publisher.ids.count("msg_new") == 1
