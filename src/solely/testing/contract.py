"""What every store guarantees, as tests: subclass one of these classes and provide a way to open your store.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def opener(self, tmp_path):
            return lambda clock: MyStore(tmp_path, clock=clock)

`opener` takes a clock and returns a new client of the store under test; all clients of one test share the same data.
`AsyncStoreContract` takes an opener of AsyncStores (called on the event loop) and runs the same tests. No test is
skipped, none sleeps until something expires, and all keys are unique, so the tests can run on a shared server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ..stores import AsyncStore, Clock, Store
from .clock import ManualClock
from .harness import BlockingAdapter, Harness
from .promises.amends import AmendPromises
from .promises.batches import BatchPromises
from .promises.clearing import ClearingPromises
from .promises.fences import FencePromises
from .promises.holds import HoldPromises
from .promises.kinds import KindPromises
from .promises.limits import LimitPromises
from .promises.lines import LinePromises
from .promises.losses import LossPromises
from .promises.marks import MarkPromises
from .promises.queues import QueuePromises
from .promises.reading import ReadingPromises
from .promises.results import ResultPromises
from .promises.resuming import ResumePromises
from .promises.waiting import WaitingPromises


class StoreContract(
    HoldPromises,
    FencePromises,
    WaitingPromises,
    ResumePromises,
    ResultPromises,
    MarkPromises,
    ClearingPromises,
    LimitPromises,
    QueuePromises,
    AmendPromises,
    LinePromises,
    ReadingPromises,
    BatchPromises,
    KindPromises,
    LossPromises,
):
    """The contract of a blocking store. The subclass defines the fixture `opener`: clock → Store."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def connect(self, opener: Callable[[Clock], Store], clock: ManualClock) -> Iterator[Callable[[], Harness]]:
        """Opens another client of the store under test; all of them are closed at the end of the test."""
        opened: list[Store] = []

        def connect() -> Harness:
            opened.append(opener(clock))
            return Harness(opened[-1])

        yield connect
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, connect: Callable[[], Harness]) -> Harness:
        return connect()


class AsyncStoreContract(StoreContract):
    """The contract of an asyncio store. The subclass defines the fixture `opener`: clock → AsyncStore."""

    @pytest.fixture
    def connect(self, opener: Callable[[Clock], AsyncStore], clock: ManualClock) -> Iterator[Callable[[], Harness]]:
        """Opens another client, on its own event loop; all of them are closed at the end of the test."""
        opened: list[BlockingAdapter] = []

        def connect() -> Harness:
            opened.append(BlockingAdapter(lambda: opener(clock)))
            return Harness(opened[-1])

        yield connect
        for store in opened:
            store.close()
            store.stop()
