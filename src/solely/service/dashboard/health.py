"""The health of the service for people: what needs attention, whether it is ready, and what the store's check finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..attention import Attention
from ..health import checks
from ..routes import Answer, Call, Route
from .overview import StoreHealth, needed, store_health
from .rendering import READ_PAGE, Page, View, show

PAGE = Page("Health", "solely:health.html", "/health")


class HealthPage(Answer):
    """`level` is the worst of all: ok, warning or error. `checks` are those of `/readyz`, by name."""

    level: str
    attention: list[Attention]
    checks: dict[str, str]
    store: StoreHealth


async def health(call: Call[None, View]) -> object:
    """The page of health."""
    return await show(call, PAGE, lambda: _load(call))


async def _load(call: Call[None, View]) -> HealthPage:
    attention, levels, store = await asyncio.gather(needed(call), checks(call.service), store_health(call))
    worst = _worst([*(each.level for each in attention), *levels.values(), store.level])
    return HealthPage(level=worst, attention=attention, checks=levels, store=store)


def _worst(levels: Iterable[str]) -> str:
    found = set(levels)
    return next((level for level in ("error", "warning") if level in found), "ok")


ROUTES = [Route("GET", "/health", READ_PAGE, health, hidden=True)]
