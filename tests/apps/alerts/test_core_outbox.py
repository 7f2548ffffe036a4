"""Whichever worker dies or server is unreachable: an accepted alert is sent, under one id."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from solely.apps.alerts.model import Notification, key_of
from solely.apps.alerts.notifications.publishing import QUEUE
from tests.apps.alerts.working import Open, Worker, alert, working
from tests.service.serving import environment

HOLD = 0.4  # seconds: short enough to be waited for, long enough for a slow machine to come before its end
SHORT = {"critical": {"hold": HOLD}}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'solely.sqlite3'}"


@pytest.fixture
async def open_worker(url: str) -> AsyncIterator[Open]:
    async with working(url) as open_one:
        yield open_one


async def die_after(step: str, worker: Worker) -> Notification:
    """Does what a worker does with an alert, and no more after this step."""
    notification = Notification(id=f"msg_{secrets.token_hex(4)}", alert=alert(), at=0.0)
    hold = await worker.once.reserve(key_of(alert()), hold=HOLD, quiet=300, renew=False)
    if step == "reserve":
        return notification
    await worker.parts.outbox.add(key_of(alert()), notification, HOLD)
    if step == "put in":
        return notification
    await worker.publisher.publish(notification)
    if step == "publish":
        return notification
    await hold.record()
    return notification


async def test_who_dies_after_reserving_blocks_nobody_for_longer_than_the_hold(open_worker: Open) -> None:
    dead, worker = await open_worker(), await open_worker(policies=SHORT)
    await die_after("reserve", dead)
    await asyncio.sleep(HOLD + 0.1)  # the store's own clock
    assert (await worker.receive(alert())).outcome == "published"
    assert await worker.waiting() == 0


async def test_an_alert_suppressed_by_a_worker_that_died_before_queueing_is_sent_in_its_place(
    open_worker: Open,
) -> None:
    dead, worker = await open_worker(), await open_worker(policies=SHORT)
    await die_after("reserve", dead)
    outcome = await worker.receive(alert())  # the sender got no answer before, and does not ask again after this one
    assert (outcome.outcome, outcome.reason) == ("suppressed", "reserved")
    await worker.sweep()
    assert worker.publisher.ids == []
    await worker.sweep_until(lambda: worker.publisher.ids)
    assert len(worker.publisher.ids) == 1
    assert (await worker.receive(alert())).reason == "quiet"


async def test_copies_that_suppressed_callers_queue_are_not_sent_again(open_worker: Open) -> None:
    workers = [await open_worker(policies=SHORT) for _ in range(3)]
    for _ in range(5):
        await asyncio.gather(*(worker.receive(alert()) for worker in workers))
        for worker in workers:
            worker.parts.receiver.forget("cpu")
    await workers[0].sweep_until_empty()
    assert sum(len(worker.publisher.ids) for worker in workers) == 1


@pytest.mark.parametrize("step", ["put in", "publish"])
async def test_who_dies_before_recording_is_taken_over_after_the_hold(open_worker: Open, step: str) -> None:
    dead, worker = await open_worker(), await open_worker(policies=SHORT)
    notification = await die_after(step, dead)
    await worker.sweep()
    assert worker.publisher.ids == []  # it has its hold
    await worker.sweep_until(lambda: worker.publisher.ids)
    assert worker.publisher.ids == [notification.id]
    assert await worker.waiting() == 0
    assert (await worker.receive(alert())).reason == "quiet"
    assert worker.counted("reservations_expired") == 1


async def test_who_dies_after_recording_is_not_repeated(open_worker: Open) -> None:
    dead, worker = await open_worker(), await open_worker(policies=SHORT)
    await die_after("record", dead)
    await worker.sweep_until_empty()
    assert worker.publisher.ids == []


async def test_who_looks_while_it_is_being_published_puts_it_back(open_worker: Open) -> None:
    dead, worker = await open_worker(), await open_worker(policies=SHORT)
    notification = Notification(id="msg_1", alert=alert(), at=0.0)
    await dead.once.reserve(key_of(alert()), hold=2 * HOLD, quiet=300, renew=False)
    await dead.parts.outbox.add(key_of(alert()), notification, 0.1)
    await asyncio.sleep(0.15)  # the item's lease is over before the reservation's hold
    await worker.sweep()
    (item,) = await worker.once.queue(QUEUE).list()
    assert (item.attempts, worker.publisher.ids) == (1, [])  # to wait for another worker is no attempt
    await worker.sweep_until(lambda: worker.publisher.ids)
    assert worker.publisher.ids == ["msg_1"]


async def test_an_alert_that_comes_first_adopts_what_the_dead_one_left(open_worker: Open) -> None:
    dead, worker = await open_worker(), await open_worker(policies=SHORT)
    notification = await die_after("put in", dead)
    await asyncio.sleep(HOLD + 0.1)  # the store's own clock
    assert (await worker.receive(alert(name="again"))).outcome == "published"
    assert worker.publisher.ids == [notification.id]
    assert await worker.waiting() == 0


CHILD = """
import asyncio, sys
from tests.apps.alerts.working import FakePublisher, Worker, alert

class Stuck(FakePublisher):
    async def publish(self, notification):
        print(notification.id, flush=True)
        await asyncio.sleep(60)

async def main():
    worker = Worker(sys.argv[1], Stuck(), policies={"critical": {"hold": 0.5}})
    await worker.open()
    await worker.receive(alert())

asyncio.run(main())
"""


async def test_a_killed_process_is_taken_over_with_the_same_id(url: str, tmp_path: Path, open_worker: Open) -> None:
    here = environment(tmp_path)
    here["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[3])
    child = subprocess.Popen([sys.executable, "-c", CHILD, url], stdout=subprocess.PIPE, text=True, env=here)
    try:
        assert child.stdout is not None
        id = (await asyncio.to_thread(child.stdout.readline)).strip()
        worker = await open_worker(policies=SHORT)
        assert (await worker.receive(alert())).reason == "reserved"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    assert id.startswith("msg_")
    await worker.sweep_until(lambda: worker.publisher.ids)
    assert worker.publisher.ids == [id]
