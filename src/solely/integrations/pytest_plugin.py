"""pytest fixtures: a memory store for each test, with a clock that the test advances.

Enabled by `pytest_plugins = ["solely.integrations.pytest_plugin"]` in the topmost conftest.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from ..client import Client
from ..testing.clock import ManualClock


@pytest.fixture
def solely_clock() -> ManualClock:
    """The clock of the test's store: `solely_clock.advance(61)`."""
    return ManualClock()


@pytest.fixture
def solely(solely_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a fresh memory store on `solely_clock`. SOLELY_URL names that store while the test runs, so that a
    client which the tested code opens without a URL shares it."""
    url = f"memory://{secrets.token_hex(8)}"
    monkeypatch.setenv("SOLELY_URL", url)
    with Client(url, clock=solely_clock) as once:
        yield once
