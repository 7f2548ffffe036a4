"""The overview: is the store well, how much is going on, does anything need somebody's attention."""

from __future__ import annotations

import asyncio
import time

from ...errors import SolelyError
from ...model import Finding
from .. import metrics
from ..feed import Told
from ..figures import Figure
from ..health import PATIENCE, examined, up
from ..routes import Answer, Call, Route
from . import history
from .groups import Group, groups
from .history import History, Series
from .rendering import READ_PAGE, Page, View, show

PAGE = Page("Overview", "solely:overview.html", "/")
EVENTS = 50
FRESH = 2.0  # seconds that the store's health and its dead letters are shared
TOLD = 1.0  # seconds of what happens that one look of a live page tells: more often would only flicker


class Rates(Answer):
    """Per second over the last minute, as far as it went through this service."""

    granted: float
    spared: float
    refused: float


class Quantiles(Answer):
    """Seconds, over the last five minutes; null where there was nothing."""

    p50: float | None
    p99: float | None


class Attention(Answer):
    """Something that somebody should look at, and where."""

    level: str
    text: str
    link: str


class StoreHealth(Answer):
    """`level` is ok, warning or error; each finding says what, and what to do."""

    level: str
    findings: list[Finding]


class Overview(Answer):
    """All of it. `now` is the wall clock of the service; `lost` and `failed_open` are of the last five minutes."""

    now: float
    up: float
    health: StoreHealth
    attention: list[Attention]
    rates: Rates
    op: Quantiles
    wait: Quantiles
    hold: Quantiles
    lost: int
    failed_open: int
    dead_letters: int
    oldest: Group | None
    series: Series
    events: list[Told]


async def overview(call: Call[None, View]) -> object:
    """The page."""
    return await show(call, PAGE, lambda: call.service.desk.looks.share("overview", TOLD, lambda: _look(call)))


async def _look(call: Call[None, View]) -> Overview:
    service, past = call.service, call.service.desk.history
    looks = service.desk.looks
    health, letters = await asyncio.gather(
        looks.share("health", FRESH, lambda: _health(call)), looks.share("letters", FRESH, lambda: _letters(call))
    )
    lost, failed_open = past.count(history.LOST), past.count(history.FAILED_OPEN)
    return Overview(
        now=time.time(),
        up=up(),
        health=health,
        attention=_attention(health, letters, lost, failed_open),
        rates=_rates(past),
        op=_quantiles(call, metrics.OP_SECONDS),
        wait=_quantiles(call, metrics.WAITED),
        hold=_quantiles(call, metrics.HELD),
        lost=lost,
        failed_open=failed_open,
        dead_letters=sum(group.letters for group in letters),
        oldest=min(letters, key=lambda group: group.oldest, default=None),
        series=past.series(),
        events=service.feed.last(EVENTS),
    )


def _rates(past: History) -> Rates:
    granted, spared, refused = map(past.rate, (history.GRANTED, history.SPARED, history.REFUSED))
    return Rates(granted=granted, spared=spared, refused=refused)


def _quantiles(call: Call[None, View], figure: Figure) -> Quantiles:
    past = call.service.desk.history
    return Quantiles(p50=past.quantile(figure, 0.5), p99=past.quantile(figure, 0.99))


async def _health(call: Call[None, View]) -> StoreHealth:
    try:
        async with asyncio.timeout(PATIENCE):
            found = await examined(call.service.once, call.service.store)
    except (SolelyError, TimeoutError):
        found = [Finding("error", "store", "The store does not answer. Nothing is granted until it does.")]
    levels = {finding.level for finding in found}
    worst = next((level for level in ("error", "warning") if level in levels), "ok")
    return StoreHealth(level=worst, findings=found)


async def _letters(call: Call[None, View]) -> list[Group]:
    try:
        return await groups(call)
    except SolelyError:  # the health says so
        return []


def _attention(health: StoreHealth, letters: list[Group], lost: int, failed_open: int) -> list[Attention]:
    """What needs attention, the worst first."""
    found = [
        Attention(level=finding.level, text=f"{finding.subject}: {finding.text}", link="#store")
        for finding in health.findings
        if finding.level != "ok"
    ]
    if failed_open:
        text = f'{failed_open} × went on without the store in the last five minutes (on_outage="proceed")'
        found.append(Attention(level="error", text=text, link="#events"))
    if lost:
        ended = "1 lease ended under its holder" if lost == 1 else f"{lost} leases ended under their holders"
        text = f"{ended} in the last five minutes"
        found.append(Attention(level="warning", text=text, link="#events"))
    for group in letters:
        many = f"{group.letters}{'+' if group.more else ''}"
        text = f"{many} dead letter{'' if many == '1' else 's'} in {group.group}"
        found.append(Attention(level="warning", text=text, link=group.link))
    return sorted(found, key=lambda each: each.level)  # error before warning


ROUTES = [Route("GET", "/", READ_PAGE, overview, "Overview", hidden=True)]
