"""The API of the prober: targets, pauses, maintenance, results, and the state of the mutexes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from ...kit import READ, Acts, Answer, Body, Call, Page, PageSize, Route, Rows, duration, list_page, list_route
from . import acts
from .history import Beat, TargetState, Uptime
from .model import PAUSED, PENDING, Name, ProbeResult, ProbeTarget, State
from .mutex import MutexStatus
from .prober import ITERATIONS, MOST_ITERATIONS, SyntheticLoginResult
from .runtime import ProbesRuntime
from .targets import Maintenance

DateTime = Annotated[datetime, msgspec.Meta(tz=True, description="a time as in RFC 3339: 2027-01-31T22:00:00+01:00")]
Duration = Annotated[str, msgspec.Meta(min_length=1, max_length=32, description='a duration such as "2h"')]
MUTEX_STATUS = "/api/internal/pilot/probe-mutex/status"


class TargetName(Body):
    """A target by its name."""

    name: Name


class LoginTest(TargetName):
    """How often the target is probed in a row."""

    iterations: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITERATIONS)] = ITERATIONS


class AddMaintenance(Body):
    """A window of `lasts` from `starts`, or from now, for these targets; for all of them if none is named."""

    lasts: Annotated[float, msgspec.Meta(gt=0.0)] | Duration
    targets: tuple[Name, ...] | str = ()
    starts: DateTime | None = None

    def names(self) -> list[str]:
        """The targets: a form sends one per line, a command separates them by commas."""
        given = self.targets
        return given.replace(",", " ").split() if isinstance(given, str) else [*given]


class WindowId(Body):
    """A maintenance window by its id."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class ListedTarget(Answer):
    """A target with its state and its uptime: shares of successful probes, null if there was none. `source` is
    settings or api; `maintenance` is the id of the window that covers it now."""

    name: str
    title: str
    url: str
    state: State
    since: float | None
    at: float | None
    error: str
    status: int | None
    seconds: float | None
    certificate_expires: float | None
    uptime_24h: float | None
    uptime_30d: float | None
    uptime_1y: float | None
    interval: float
    source: str
    public: bool
    maintenance: str
    definition: ProbeTarget


class NoQuery(Body):
    """The list has no filters."""


class ResultsQuery(Body):
    """Results of a target, before the one with the fence `after`."""

    target: Name
    after: str = ""
    limit: PageSize = 50


class ProbesApi:
    """The handlers of one worker's prober. They are created before it starts, and read its parts at each call."""

    def __init__(self, app: ProbesRuntime) -> None:
        self._app = app

    async def mutex_status(self, call: Call[None, None]) -> MutexStatus:
        """The mutexes of all replicas."""
        return await self._app.mutex.status(call.service.settings.public_base_url)

    async def targets(self, query: NoQuery) -> list[ListedTarget]:
        """All targets, by name."""
        history = self._app.history
        states = await history.states()
        day, month, year = [await history.uptimes(span) for span in ("24h", "30d", "1y")]
        return [
            self._listed(target, states.get(name), [each.get(name, Uptime()) for each in (day, month, year)])
            for name, target in self._app.targets.all.items()
        ]

    def _listed(self, target: ProbeTarget, state: TargetState | None, uptimes: Sequence[Uptime]) -> ListedTarget:
        targets, name = self._app.targets, target.name
        pause, window = targets.pauses.get(name), targets.window(name)
        shown: State = PAUSED if pause else state.state if state else PENDING
        return ListedTarget(
            name=name,
            title=target.shown,
            url=target.url,
            state=shown,
            since=pause.at if pause else state.since if state else None,
            at=state.at if state else None,
            error=pause.reason if pause else state.error if state else "",
            status=state.status if state else None,
            seconds=state.seconds if state else None,
            certificate_expires=state.certificate_expires if state else None,
            uptime_24h=uptimes[0].share,
            uptime_30d=uptimes[1].share,
            uptime_1y=uptimes[2].share,
            interval=target.interval,
            source="settings" if targets.is_configured(name) else "api",
            public=target.public,
            maintenance=window.id if window else "",
            definition=target.without_secrets(),
        )

    async def results(self, query: ResultsQuery) -> Rows[Beat]:
        """The results of a target, the newest first."""
        before = int(query.after) if query.after.isdecimal() else 1 << 62
        found = await self._app.history.results(query.target, before=min(before, 1 << 62), limit=query.limit)
        return Rows(found, str(found[-1].fence) if len(found) == query.limit else None)

    async def windows(self, query: NoQuery) -> list[Maintenance]:
        """Current and future maintenance windows."""
        await self._app.targets.refresh()
        return [*self._app.targets.windows]

    # -- acts

    async def add(self, call: Call[ProbeTarget, None]) -> ProbeTarget:
        given = {name: getattr(call.body, name) for name in ProbeTarget.__struct_fields__}
        target = ProbeTarget(**given)
        await self._app.targets.add(target, call.principal.name)
        await self._app.follow()
        return target.without_secrets()

    async def remove(self, call: Call[TargetName, None]) -> bool:
        name = call.body.name
        if self._app.targets.find(name) is not None and not self._app.targets.is_configured(name):
            await self._app.settle_down(name)
        removed = await self._app.targets.remove(name)
        await self._app.history.forget(name)
        await self._app.follow()
        await self._app.runner.forget(name)
        return removed

    async def pause(self, call: Call[TargetName, None]) -> bool:
        name = call.body.name
        if self._app.targets.find(name) is None:
            return False
        paused = await self._app.targets.pause(name, call.principal.name, call.reason)
        await self._app.follow()
        await self._app.settle_down(name)
        return paused

    async def resume(self, call: Call[TargetName, None]) -> bool:
        if call.body.name in self._app.targets.pauses:
            await self._app.history.restart(call.body.name)  # a probe that ended after the pause has set a state
        resumed = await self._app.targets.resume(call.body.name)
        await self._app.follow()
        return resumed

    async def run(self, call: Call[TargetName, None]) -> ProbeResult | None:
        target = self._app.targets.find(call.body.name)
        return None if target is None else await call.waiting(self._app.runner.probe(target))

    async def login_test(self, call: Call[LoginTest, None]) -> SyntheticLoginResult | None:
        target = self._app.targets.find(call.body.name)
        if target is None:
            return None
        return await call.waiting(
            self._app.on_demand.run_synthetic_login_test(target.url, iterations=call.body.iterations, target=target)
        )

    async def add_window(self, call: Call[AddMaintenance, None]) -> Maintenance:
        body = call.body
        lasts = duration(body.lasts) if isinstance(body.lasts, str) else body.lasts
        starts = time.time() if body.starts is None else body.starts.timestamp()
        window = await self._app.targets.add_window(
            body.names(), starts, starts + lasts, call.principal.name, call.reason
        )
        await self._app.follow()
        return window

    async def end_window(self, call: Call[WindowId, None]) -> bool:
        ended = await self._app.targets.end_window(call.body.id)
        await self._app.follow()
        return ended

    def routes(self) -> list[Route]:
        """The lists, and the state of the mutexes."""
        return [
            Route("GET", MUTEX_STATUS, READ, self.mutex_status),
            list_route(acts.LIST, self.targets),
            list_route(acts.RESULTS, self.results),
            list_page(acts.RESULTS, self.results, "/probes/results", Page("Results", "probes:results.html", "/probes")),
            list_route(acts.WINDOWS, self.windows),
        ]

    def acts(self) -> Acts:
        """What people do."""
        return {
            acts.ADD: self.add,
            acts.REMOVE: self.remove,
            acts.PAUSE: self.pause,
            acts.RESUME: self.resume,
            acts.RUN: self.run,
            acts.LOGIN_TEST: self.login_test,
            acts.MAINTENANCE: self.add_window,
            acts.END_MAINTENANCE: self.end_window,
        }
