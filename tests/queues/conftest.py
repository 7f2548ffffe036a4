"""Clients of both kinds on one store of each kind, on a clock that the test moves."""

from tests.client.conftest import shared_url, start_worker
from tests.reservations.conftest import guarded, observer, once, other, together

__all__ = ["guarded", "observer", "once", "other", "shared_url", "start_worker", "together"]
