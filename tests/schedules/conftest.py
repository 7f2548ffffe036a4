"""Replicas of a schedule on one store of each kind, on a clock that the test moves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from solely.stores import Store, open_store
from solely.testing.clock import ManualClock
from tests.conftest import PATIENT
from tests.schedules.replica import Replica

START_REPLICA = Callable[..., Replica]


@pytest.fixture
def replica(store_url: str, clock: ManualClock) -> Iterator[START_REPLICA]:
    """Starts a replica with a client of its own."""
    opened: list[Store] = []

    def start(**options: Any) -> Replica:
        opened.append(open_store(store_url, clock=clock, timeout=PATIENT))
        return Replica(opened[-1], clock, **options)

    yield start
    for store in opened:
        store.close()
