"""The pages of the task-trigger API: runs with the gate and the buffer, and one run with its timeline and attempts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...kit import READ, READ_PAGE, UNKNOWN, Call, Page, PageSize, Route, View, show
from . import acts
from .charts import CHARTS
from .model import RunId
from .runtime import TriggersRuntime
from .views import (
    GateFilter,
    GateState,
    GateStates,
    ListedTriggerRuns,
    RunDetails,
    RunFilters,
    RunViews,
    TriggersOverview,
)

OVERVIEW = Page("Triggers", "triggers:overview.html", "/triggers", CHARTS)
ONE = Page("Run", "triggers:run.html", "/triggers")
FRESH = 1.0  # seconds that the overview's counts are shared by all viewers


class OverviewView(RunFilters):
    """The overview, with filters for its runs, 25 to a page. `format`, `note` and `trail` are those of every view."""

    limit: PageSize = 25
    format: Literal["", "html", "json", "live"] = ""
    note: str = ""
    trail: list[str] = msgspec.field(default_factory=list)
    range: Literal["", "10m", "1h", "24h", "7d"] = ""


class RunView(View):
    """One run."""

    id: RunId


class TriggerPages:
    """The handlers of pages and lists: of the environment of the caller's token, and of all of them for an admin."""

    def __init__(self, app: TriggersRuntime) -> None:
        self._app, self._views = app, RunViews(app)

    async def overview(self, call: Call[None, OverviewView]) -> object:
        """The overview."""
        return await show(call, OVERVIEW, lambda: self._overview(call))

    async def _overview(self, call: Call[None, OverviewView]) -> TriggersOverview:
        seen, shown = self._environments(call), self._environments(call, call.query.environment)
        gates = [await self._gate(call, environment) for environment in shown]
        listed, counts = await self._views.listed(shown, call.query), self._views.counts()
        return TriggersOverview(environments=seen, gates=gates, figures=counts, runs=listed.runs, next=listed.next)

    async def _gate(self, call: Call[Any, Any], environment: str) -> GateState:
        shared = call.service.dashboard.views
        return await shared.share(("triggers", environment), FRESH, lambda: self._views.gate_state(environment))

    async def run(self, call: Call[None, RunView]) -> object:
        """One run."""
        return await show(call, ONE, lambda: self._details(call, call.query.id))

    async def _details(self, call: Call[Any, Any], id: str) -> RunDetails:
        return await self._views.details(await self._app.find(call.principal, id))

    async def list_runs(self, call: Call[None, RunFilters]) -> ListedTriggerRuns:
        """Runs of the environments that the caller sees."""
        return await self._views.listed(self._environments(call, call.query.environment), call.query)

    async def details(self, call: Call[None, None]) -> RunDetails:
        """One run, with its timeline and attempts."""
        return await self._details(call, call.params["id"])

    async def gate(self, call: Call[None, GateFilter]) -> GateStates:
        """The gate and the buffer of each environment that the caller sees."""
        shown = self._environments(call, call.query.environment)
        return GateStates(gates=[await self._views.gate_state(environment) for environment in shown])

    def _environments(self, call: Call[Any, Any], named: str = "") -> list[str]:
        return list(self._app.environments_of(call.principal, named))


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes of pages and lists."""
    shown = TriggerPages(app)
    return [
        Route("GET", "/triggers", READ_PAGE, shown.overview, OVERVIEW.title, hidden=True),
        Route("GET", "/triggers/run", READ_PAGE, shown.run, ONE.title, hidden=True),
        Route("GET", acts.RUNS.path, READ, shown.list_runs, acts.RUNS.summary, refusals=(UNKNOWN,)),
        Route("GET", f"{acts.RUNS.path}/{{id}}", READ, shown.details, refusals=(UNKNOWN,)),
        Route("GET", acts.GATES.path, READ, shown.gate, acts.GATES.summary, refusals=(UNKNOWN,)),
    ]
