"""Clients of both kinds on one store of each kind, on a clock that the test moves."""

import os

import pytest

from tests.client.conftest import start_worker
from tests.conftest import SECOND_SERVERS, STORES
from tests.reservations.conftest import guarded, observer, once, other, together

__all__ = ["guarded", "observer", "once", "other", "start_worker", "together"]

# The ops of queues are in the contract, which all stores keep: what stands on them runs on one server of each kind.
CHOSEN = [name for name in STORES if name not in SECOND_SERVERS or "SOLELY_TEST_ALL_STORES" in os.environ]


@pytest.fixture(params=CHOSEN)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh, empty store."""
    return STORES[request.param](request)


@pytest.fixture(params=[name for name in CHOSEN if name != "memory"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh store that several processes can share."""
    return STORES[request.param](request)
