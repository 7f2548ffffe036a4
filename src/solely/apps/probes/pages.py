"""The pages of the prober: all targets, one target, and for everybody the status page and the badges."""

from __future__ import annotations

import time
from collections import Counter
from html import escape
from typing import Annotated, Literal

import msgspec
from starlette.responses import Response

from ...kit import PUBLIC, READ_PAGE, UNKNOWN, Answer, Call, Page, Problem, Route, View, show, show_to_all
from .api import ListedTarget, NoQuery, ProbesApi
from .charts import CHARTS
from .history import Beat, Hourly
from .model import DOWN, PAUSED, PENDING, REFUSED, UP, Name, State
from .mutex import MutexStatus
from .runtime import ProbesRuntime
from .targets import Maintenance

OVERVIEW = Page("Probes", "probes:overview.html", "/probes", CHARTS)
TARGET = Page("Target", "probes:target.html", "/probes")
STATUS = Page("Status", "probes:status.html", "")
FRESH = 1.0  # seconds that a page's data are shared by all viewers
BARS = 40  # results of a target in a list: one bar each
ROWS = 25  # targets on a page: about two screens of a phone, and 160 KB with their bars
MOST_ROWS = 100
BEATS = 100  # results on the page of a target
_COLORS = {
    UP: "#1a7440",
    DOWN: "#b3261e",
    PENDING: "#8a5300",
    PAUSED: "#586273",
    REFUSED: "#8a5300",
}  # legible below white letters
_IN_MAINTENANCE = "#1d4fb8"
_LETTER = 6.6  # units that a letter of a badge takes: the widest of Verdana at 11 px are wider, most are narrower
_CACHED = "public, max-age=30"  # seconds: as short as an interval usually is


class TargetRow(Answer):
    """A target, and its latest results, the oldest first."""

    target: ListedTarget
    bars: list[Beat]


class ProbesOverview(Answer):
    """The data of the overview, the worst first; `counts` are the numbers of all targets by state."""

    rows: list[TargetRow]
    total: int
    counts: dict[str, int]
    windows: list[Maintenance]
    mutex: MutexStatus


class TargetView(Answer):
    """The data of the page of a target: its latest results, the newest first; its sums per hour (of a day and of a
    month) and per day (of a year)."""

    row: TargetRow
    beats: list[Beat]
    day: list[Hourly]
    month: list[Hourly]
    year: list[Hourly]


class PublicBeat(Answer):
    """What everybody may see of a result: not its error, which may name what is internal."""

    at: float
    passed: bool


class PublicWindow(Answer):
    """What everybody may see of a maintenance window; `current` says that it has begun."""

    reason: str
    starts: float
    ends: float
    current: bool


class PublicTarget(Answer):
    """What everybody may see of a public target."""

    name: str
    title: str
    state: State
    maintenance: bool
    uptime_24h: float | None
    uptime_30d: float | None
    uptime_1y: float | None
    bars: list[PublicBeat]


class StatusView(Answer):
    """The data of the status page; `up`, `down` and `total` count all public targets."""

    targets: list[PublicTarget]
    up: int
    down: int
    total: int
    windows: list[PublicWindow]


class TargetsView(View):
    """`skip` targets are on the pages before."""

    skip: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)] = ROWS


class StatusQuery(TargetsView):
    """`skip` is rounded to whole pages of ROWS targets, and nobody follows changes: strangers ask for few pages."""

    format: Literal["", "html", "json"] = ""


class TargetQuery(View):
    """The page of a target."""

    name: Annotated[Name, msgspec.Meta(description="of the target")]


class ProbePages:
    """The handlers of the pages."""

    def __init__(self, app: ProbesRuntime, api: ProbesApi) -> None:
        self._app, self._api = app, api

    async def overview(self, call: Call[None, TargetsView]) -> object:
        """All targets."""
        views, query = call.service.dashboard.views, call.query
        what = ("probes", query.skip, query.limit)
        return await show(call, OVERVIEW, lambda: views.share(what, FRESH, lambda: self._overview(query)))

    async def target(self, call: Call[None, TargetQuery]) -> object:
        """One target."""
        name = call.query.name
        page = TARGET._replace(title=name)
        return await show(call, page, lambda: self._target(name))

    async def status(self, call: Call[None, StatusQuery]) -> object:
        """The public targets, for everybody."""
        public = sum(each.public for each in await self._listed())
        skip = min(call.query.skip, max(0, public - 1)) // ROWS * ROWS
        call.query = StatusQuery(format=call.query.format, skip=skip)
        return await show_to_all(call, STATUS, ("probes.status", skip), FRESH, lambda: self._status(call.query))

    async def badge(self, call: Call[None, None]) -> Response:
        """The state of a public target as a picture."""
        name = call.params["name"].removesuffix(".svg")
        found = [each for each in await self._listed() if each.name == name and each.public]
        if not found:
            raise Problem(UNKNOWN, "there is no public target of this name")
        shown = _for_everybody(TargetRow(target=found[0], bars=[]))
        return Response(badge(shown), media_type="image/svg+xml", headers={"cache-control": _CACHED})

    async def _listed(self) -> list[ListedTarget]:
        """All targets, by name; shared by all viewers of all pages."""
        views = self._app.service.dashboard.views
        return await views.share("probes.targets", FRESH, lambda: self._api.targets(NoQuery()))

    async def _rows(self, targets: list[ListedTarget]) -> list[TargetRow]:
        """These targets with their latest results."""
        bars = await self._app.history.bars(BARS, [each.name for each in targets])
        return [TargetRow(target=each, bars=bars.get(each.name, [])) for each in targets]

    async def _overview(self, query: TargetsView) -> ProbesOverview:
        listed = sorted(await self._listed(), key=_worst_first)
        counts = Counter(each.state for each in listed)
        return ProbesOverview(
            rows=await self._rows(listed[query.skip : query.skip + query.limit]),
            total=len(listed),
            counts={state: counts[state] for state in (UP, DOWN, PENDING, PAUSED, REFUSED)},
            windows=[*self._app.targets.windows],
            mutex=await self._app.mutex.status(),
        )

    async def _target(self, name: str) -> TargetView:
        (row,) = await self._rows([each for each in await self._listed() if each.name == name]) or (None,)
        if row is None:
            raise Problem(UNKNOWN, f"there is no target {name!r}")
        history = self._app.history
        day, month, year = [await history.hourly(name, span) for span in ("24h", "30d", "1y")]
        return TargetView(row=row, beats=await history.results(name, limit=BEATS), day=day, month=month, year=year)

    async def _status(self, query: TargetsView) -> StatusView:
        public = [each for each in await self._listed() if each.public]
        rows = await self._rows(public[query.skip : query.skip + query.limit])
        names, now = {each.name for each in public}, time.time()
        shown = [each for each in self._app.targets.windows if not each.targets or names & set(each.targets)]
        return StatusView(
            targets=[_for_everybody(each) for each in rows],
            up=sum(each.state == UP for each in public),
            down=sum(each.state == DOWN for each in public),
            total=len(public),
            windows=[
                PublicWindow(reason=each.reason, starts=each.starts, ends=each.ends, current=each.starts <= now)
                for each in sorted(shown, key=lambda each: each.starts)
            ],
        )

    def routes(self) -> list[Route]:
        """The routes of the pages."""
        return [
            Route("GET", "/probes", READ_PAGE, self.overview, OVERVIEW.title, hidden=True),
            Route("GET", "/probes/target", READ_PAGE, self.target, TARGET.title, hidden=True),
            Route("GET", "/status", PUBLIC, self.status, STATUS.title, hidden=True),
            Route(
                "GET",
                "/probes/badge/{name}",
                PUBLIC,
                self.badge,
                "Badge of a public target",
                media="image/svg+xml",
                refusals=(UNKNOWN,),
            ),
        ]


def badge(target: PublicTarget) -> str:
    """The picture, as shields.io draws them."""
    share = "" if target.uptime_24h is None else f" {target.uptime_24h:.2%}"
    color = _IN_MAINTENANCE if target.maintenance else _COLORS[target.state]
    left, right = escape(target.title), f"{'maintenance' if target.maintenance else target.state.lower()}{share}"
    wide, all_of_it = _width(target.title), _width(target.title) + _width(right)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{all_of_it}" height="20" role="img" '
        f'aria-label="{left}: {right}">'
        f"<title>{left}: {right}</title>"
        f'<rect width="{all_of_it}" height="20" rx="3" fill="#555"/>'
        f'<rect x="{wide}" width="{all_of_it - wide}" height="20" rx="3" fill="{color}"/>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{wide / 2:.1f}" y="14">{left}</text>'
        f'<text x="{(all_of_it + wide) / 2:.1f}" y="14">{right}</text></g></svg>'
    )


def _width(text: str) -> int:
    return round(len(text) * _LETTER) + 12


def _worst_first(target: ListedTarget) -> tuple[int, str]:
    return (DOWN, REFUSED, PENDING, UP, PAUSED).index(target.state), target.name


def _for_everybody(row: TargetRow) -> PublicTarget:
    target = row.target
    return PublicTarget(
        name=target.name,
        title=target.title,
        state=target.state,
        maintenance=bool(target.maintenance),
        uptime_24h=target.uptime_24h,
        uptime_30d=target.uptime_30d,
        uptime_1y=target.uptime_1y,
        bars=[PublicBeat(at=each.at, passed=each.passed) for each in row.bars],
    )
