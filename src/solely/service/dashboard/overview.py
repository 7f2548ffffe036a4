"""The overview: health of the store, rates, and what needs attention; and the list of applications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from ...errors import SolelyError
from ...model import Finding
from .. import metrics
from ..attention import IN_THE_LOG, Attention
from ..charts.lines import Chart, Line
from ..feed import EventRecord
from ..figures import Figure
from ..health import checks, up
from ..readiness import PATIENCE, findings
from ..routes import READ, Answer, Call, Route
from ..service import Service
from . import history
from .failing import of_breakers, of_history, of_jobs, of_schedules
from .history import MetricsHistory
from .letters import LetterGroup, letter_groups
from .rendering import READ_PAGE, Page, View, show
from .state import AppPage

log = structlog.get_logger("solely.service")

CHARTS = (
    Chart(
        "rates",
        "Per second",
        (
            Line("service.granted", "granted", history.GRANTED),
            Line("service.spared", "spared", history.SPARED),
            Line("service.refused", "refused", history.REFUSED),
        ),
    ),
    Chart(
        "store",
        "Store round trip, ms",
        (Line("store.p50", "p50", metrics.OP_SECONDS), Line("store.p99", "p99", metrics.OP_SECONDS, 0.99)),
        " ms",
    ),
)
PAGE = Page("Overview", "solely:overview.html", "/", CHARTS)
APPLICATIONS = Page("Applications", "solely:applications.html", "/applications")
EVENTS = 200  # of which the page shows the first lines; its JSON has all
FRESH = 2.0  # seconds that the health of the store and its dead letters are shared: a probe and a scan each time
STORE = "/health#store"  # where findings about the store are
INTERVAL = 1.0  # seconds between updates of a live page: more often would flicker


class Rates(Answer):
    """Per second over the last minute, through this service."""

    granted: float
    spared: float
    refused: float


class Quantiles(Answer):
    """Seconds, over the last five minutes; null if there was no observation."""

    p50: float | None
    p99: float | None


class StoreHealth(Answer):
    """`level` is ok, warning or error; each finding names a cause and a remedy."""

    level: str
    findings: list[Finding]


class ServiceOverview(Answer):
    """`now` is the wall clock of the service; `lost` and `failed_open` are of the last five minutes."""

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
    oldest: LetterGroup | None
    events: list[EventRecord]


async def overview(call: Call[None, View]) -> object:
    """The overview."""
    return await show(call, PAGE, lambda: call.service.dashboard.views.share("overview", INTERVAL, lambda: _load(call)))


async def _load(call: Call[None, View]) -> ServiceOverview:
    service, past = call.service, call.service.dashboard.history
    views = service.dashboard.views
    health, letters, attention = await asyncio.gather(
        store_health(call), views.share("letters", FRESH, lambda: _letters(call)), needed(call)
    )
    lost, failed_open = past.count(history.LOST), past.count(history.FAILED_OPEN)
    return ServiceOverview(
        now=time.time(),
        up=up(),
        health=health,
        attention=attention,
        rates=_rates(past),
        op=_quantiles(call, metrics.OP_SECONDS),
        wait=_quantiles(call, metrics.WAITED),
        hold=_quantiles(call, metrics.HELD),
        lost=lost,
        failed_open=failed_open,
        dead_letters=sum(group.letters for group in letters),
        oldest=min(letters, key=lambda group: group.oldest, default=None),
        events=service.feed.last(EVENTS),
    )


def _rates(past: MetricsHistory) -> Rates:
    granted, spared, refused = map(past.rate, (history.GRANTED, history.SPARED, history.REFUSED))
    return Rates(granted=granted, spared=spared, refused=refused)


def _quantiles(call: Call[None, View], figure: Figure) -> Quantiles:
    past = call.service.dashboard.history
    return Quantiles(p50=past.quantile(figure, 0.5), p99=past.quantile(figure, 0.99))


async def store_health(call: Call[Any, Any]) -> StoreHealth:
    """What the store's own check finds, and whether it grants."""
    return await call.service.dashboard.views.share("health", FRESH, lambda: _health(call))


async def _health(call: Call[Any, Any]) -> StoreHealth:
    try:
        async with asyncio.timeout(PATIENCE):
            found = await findings(call.service.once, call.service.store)
    except (SolelyError, TimeoutError):
        found = [Finding("error", "store", "The store is unavailable. Nothing is granted until it is back.")]
    levels = {finding.level for finding in found}
    worst = next((level for level in ("error", "warning") if level in levels), "ok")
    return StoreHealth(level=worst, findings=found)


async def _letters(call: Call[None, View]) -> list[LetterGroup]:
    try:
        return await letter_groups(call)
    except SolelyError:  # the health reports it
        return []


async def needed(call: Call[Any, Any]) -> list[Attention]:
    """What needs attention: of the store, of the service, and of applications; errors first."""
    return await call.service.dashboard.views.share("attention", FRESH, lambda: _needed(call))


async def _needed(call: Call[Any, Any]) -> list[Attention]:
    views, past = call.service.dashboard.views, call.service.dashboard.history
    running = call.service
    health, letters, levels, apps, schedules, breakers = await asyncio.gather(
        store_health(call),
        views.share("letters", FRESH, lambda: _letters(call)),
        checks(running),
        _of_applications(running),
        of_schedules(running.once),
        of_breakers(running.store),
    )
    service = _of_service(health, letters, past.count(history.LOST), past.count(history.FAILED_OPEN))
    here = [*_of_checks(levels), *of_jobs(running.failing), *of_history(running.history)]
    found = [*service, *here, *apps, *schedules, *breakers]
    return sorted(found, key=lambda each: each.level)  # error before warning


async def _of_applications(service: Service) -> list[Attention]:
    """What all applications report. One that cannot tell is reported itself."""
    found = await asyncio.gather(*(_of_application(service, name) for name in service.apps))
    return [each for some in found for each in some]


async def _of_application(service: Service, name: str) -> Sequence[Attention]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await service.apps[name].attention()
    except (SolelyError, TimeoutError) as error:
        why = str(error) or f"no answer within {PATIENCE:g} s"
    except Exception:  # a defect of one application hides no other
        log.exception("attention_failed", app=name)
        why = IN_THE_LOG
    return [Attention(level="error", text=f"{name}: its state is unknown: {why}", link=STORE)]


def _of_checks(levels: Mapping[str, str]) -> list[Attention]:
    """The checks of `/readyz` that fail, beside that of the store, whose findings say more."""
    failing = [name for name, level in levels.items() if level == "error" and name != "store"]
    return [
        Attention(level="error", text=f"not ready: the check {name} fails; {IN_THE_LOG}", link=STORE)
        for name in failing
    ]


def _of_service(health: StoreHealth, letters: list[LetterGroup], lost: int, failed_open: int) -> list[Attention]:
    """A warning about the store needs no action now: the page folds it."""
    found = [
        Attention(level="error", text=f"{finding.subject}: {finding.text}", link=STORE)
        for finding in health.findings
        if finding.level == "error"
    ]
    if failed_open:
        text = f'{failed_open} × proceeded without the store in the last five minutes (on_outage="proceed")'
        found.append(Attention(level="error", text=text, link="/#events"))
    if lost:
        ended = "1 lease ended under its holder" if lost == 1 else f"{lost} leases ended under their holders"
        text = f"{ended} in the last five minutes"
        found.append(Attention(level="warning", text=text, link="/#events"))
    for group in letters:
        many = f"{group.letters}{'+' if group.more else ''}"
        text = f"{many} dead letter{'' if many == '1' else 's'} in {group.group}"
        found.append(Attention(level="warning", text=text, link=group.link))
    return found


class Attentions(Answer):
    """What needs attention, errors first; empty if all is well."""

    attention: list[Attention]


async def attention(call: Call[None, None]) -> Attentions:
    """What needs attention now: of the store, of the service, and of applications."""
    return Attentions(attention=await needed(call))


# -- applications


class Applications(Answer):
    """The pages of applications."""

    pages: list[AppPage]


async def applications(call: Call[None, View]) -> object:
    """The list of applications."""

    async def load() -> Applications:
        return Applications(pages=call.service.dashboard.pages)

    return await show(call, APPLICATIONS, load)


ROUTES = [
    Route("GET", "/v1/attention", READ, attention, tag="service"),
    Route("GET", "/", READ_PAGE, overview, hidden=True),
    Route("GET", "/applications", READ_PAGE, applications, hidden=True),
]
