"""The store dies under the receiver: nothing is granted meanwhile, nothing is lost, and nothing gets a second id."""

import asyncio
from collections.abc import Iterator

import pytest

from solely import StoreUnavailable
from tests.apps.alerts.working import FakePublisher, alert, until, working
from tests.servers import Valkey

HOLD = {"critical": {"hold": 1.0}}


@pytest.fixture
def store() -> Iterator[Valkey]:
    """A server of this test alone, that keeps what it said it has."""
    with Valkey(appendonly="yes", appendfsync="always") as server:
        yield server


async def test_a_store_that_dies_during_a_reservation_grants_nothing(store: Valkey) -> None:
    async with working(store.url) as open_worker:
        worker = await open_worker(timeout=0.5, policies=HOLD)
        await worker.receive(alert("before"))
        store.pause()
        asking = asyncio.create_task(worker.parts.receiver.receive_all([alert(), alert()]))
        await asyncio.sleep(0.1)  # both are waiting for the store
        store.kill()
        assert [type(each) for each in await asking] == [StoreUnavailable] * 2
        assert (len(worker.publisher.ids), worker.parts.capacity.active) == (1, 0)
        store.start()
        assert (await worker.receive(alert())).outcome == "published"
        assert len(worker.publisher.ids) == 2


async def test_a_store_that_dies_during_a_publish_leads_to_a_repeat_under_the_same_id(store: Valkey) -> None:
    async with working(store.url) as open_worker:
        worker = await open_worker(FakePublisher(), timeout=0.5, policies=HOLD)
        worker.publisher.open.clear()
        asking = asyncio.create_task(worker.receive(alert()))
        await until(lambda: worker.publisher.ids)
        store.kill()
        worker.publisher.open.set()
        assert (await asking).outcome == "published"  # it was; that could not be written down
        store.start()
        await worker.sweep_until_empty()
        assert len(worker.publisher.ids) == 2
        assert len(set(worker.publisher.ids)) == 1
        worker.parts.receiver.forget("cpu")
        assert (await worker.receive(alert())).reason == "quiet"
