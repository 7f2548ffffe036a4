"""What an alert costs: how many ops, in how many round trips to the store."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import pytest

from solely.apps.alerts.model import Alert
from solely.model import Entry
from solely.ops import Op
from solely.stores.memory.handles import AsyncMemoryStore

from .working import Worker, alert

LIMITED = {"critical": {"limit": 5, "per": 60}}


class Cost(NamedTuple):
    """Ops, and the batches in which they were sent; a scan counts as one of each."""

    ops: int
    trips: int


class Counted:
    """Counts what is sent to every store in memory."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._batches: list[int] = []
        perform, scan = AsyncMemoryStore.perform, AsyncMemoryStore.scan

        def counted(store: AsyncMemoryStore, ops: Sequence[Op]) -> Any:
            self._batches.append(len(ops))
            return perform(store, ops)

        async def counted_scan(store: AsyncMemoryStore, prefix: str, after: str, limit: int) -> list[Entry]:
            self._batches.append(1)
            return await scan(store, prefix, after, limit)

        patch.setattr(AsyncMemoryStore, "perform", counted)
        patch.setattr(AsyncMemoryStore, "scan", counted_scan)

    async def cost(self, worker: Worker, given: Alert, outcome: str) -> Cost:
        """What this alert costs; its outcome and reason must be these."""
        worker.parts.receiver.forget(given.fingerprint)
        self._batches.clear()
        result = await worker.receive(given)
        assert f"{result.outcome} {result.reason}".strip() == outcome
        return Cost(sum(self._batches), len(self._batches))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    it = Worker("memory://", policies=LIMITED)
    await it.open()
    yield it
    await it.close()


def resolved(**given: Any) -> Alert:
    return alert(status="resolved", **given)


async def test_a_notified_alert_takes_14_ops_in_9_round_trips(counted: Counted, worker: Worker) -> None:
    assert await counted.cost(worker, alert(), "published") == (14, 9)


async def test_a_suppressed_alert_takes_one_round_trip(counted: Counted, worker: Worker) -> None:
    await worker.receive(alert())
    assert await counted.cost(worker, alert(), "suppressed quiet") == (2, 1)


async def test_a_repeat_within_a_moment_takes_no_op(
    counted: Counted, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solely.apps.alerts.worker.FRESH", 600.0)
    await worker.receive(alert())
    monkeypatch.setattr(worker.parts.receiver, "forget", lambda _: None)
    assert await counted.cost(worker, alert(), "suppressed quiet") == (0, 0)


async def test_a_resolved_alert_takes_16_ops_in_12_round_trips(counted: Counted, worker: Worker) -> None:
    await worker.receive(alert())
    assert await counted.cost(worker, resolved(), "published") == (16, 12)


async def test_an_alert_that_resolves_without_having_fired_takes_3_ops(counted: Counted, worker: Worker) -> None:
    assert await counted.cost(worker, resolved(), "suppressed not_firing") == (3, 3)


async def test_an_alert_that_fires_again_takes_16_ops_in_10_round_trips(counted: Counted, worker: Worker) -> None:
    """Two more than at first: it ends the window of the resolved notification, and replaces the counts of its key."""
    await worker.receive(alert())
    await worker.receive(resolved())
    assert await counted.cost(worker, alert(), "published") == (16, 10)


async def test_a_member_of_a_notified_group_takes_3_ops(counted: Counted, worker: Worker) -> None:
    await worker.receive(alert("a", group="east"))
    assert await counted.cost(worker, alert("b", group="east"), "suppressed grouped") == (3, 2)
