"""A receiver, and callers that are closed after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from solely.outgoing import Caller, OutgoingSettings
from tests.apps.hooks import Hooks, hooks

Making = Callable[..., Caller]


@pytest.fixture
async def receiver() -> AsyncIterator[Hooks]:
    async with hooks() as server:
        yield server


@pytest.fixture
async def make() -> AsyncIterator[Making]:
    """Makes callers, and closes them twice."""
    made: list[Caller] = []

    def make_one(name: str = "api", *, once: Any = None, breaker: str = "", **given: Any) -> Caller:
        made.append(Caller(name, OutgoingSettings(**given), once=once, breaker=breaker))
        return made[-1]

    yield make_one
    for caller in made:
        await caller.close()
        await caller.close()
