"""What every store promises, as tests: whoever writes a store subclasses these and gives only a way to open it.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def opener(self, tmp_path):
            return lambda clock: MyStore(tmp_path, clock=clock)

`opener` is called with a clock and answers one more client of the store under test: all clients of one test see the
same data. `AsyncStoreContract` takes an opener of AsyncStores (it is called on the event loop) and runs the very same
promises. No test is ever skipped, none sleeps for an expiry, and keys are fresh, so a shared server will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ..stores import AsyncStore, Clock, Store
from .clock import ManualClock
from .face import Face, Looped
from .promises.batches import BatchPromises
from .promises.clearing import ClearingPromises
from .promises.fences import FencePromises
from .promises.holds import HoldPromises
from .promises.kinds import KindPromises
from .promises.limits import LimitPromises
from .promises.losses import LossPromises
from .promises.marks import MarkPromises
from .promises.queues import QueuePromises
from .promises.reading import ReadingPromises
from .promises.results import ResultPromises
from .promises.waiting import WaitingPromises


class StoreContract(
    HoldPromises,
    FencePromises,
    WaitingPromises,
    ResultPromises,
    MarkPromises,
    ClearingPromises,
    LimitPromises,
    QueuePromises,
    ReadingPromises,
    BatchPromises,
    KindPromises,
    LossPromises,
):
    """The promises, on a blocking store. The subclass has the fixture `opener`: clock → Store."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def connect(self, opener: Callable[[Clock], Store], clock: ManualClock) -> Iterator[Callable[[], Face]]:
        """Opens one more client of the store under test; all are closed in the end."""
        opened: list[Store] = []

        def connect() -> Face:
            opened.append(opener(clock))
            return Face(opened[-1])

        yield connect
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, connect: Callable[[], Face]) -> Face:
        return connect()


class AsyncStoreContract(StoreContract):
    """The promises, on an asyncio store. The subclass has the fixture `opener`: clock → AsyncStore."""

    @pytest.fixture
    def connect(self, opener: Callable[[Clock], AsyncStore], clock: ManualClock) -> Iterator[Callable[[], Face]]:
        """Opens one more client of the store under test, on an event loop of its own; all are closed in the end."""
        opened: list[Looped] = []

        def connect() -> Face:
            opened.append(Looped(lambda: opener(clock)))
            return Face(opened[-1])

        yield connect
        for looped in opened:
            looped.close()
            looped.stop()
