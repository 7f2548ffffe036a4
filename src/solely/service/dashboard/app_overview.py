"""The page of an application that has none of its own: the forms of its acts, and what its queue workers do."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

from ...acts import Act
from ..routes import Answer, Call, Route
from ..security import Scope
from ..workers import IN_FLIGHT, ITEMS
from .rendering import READ_PAGE, Page, View, show
from .state import AppPage


class ActLink(Answer):
    """An act that the viewer may perform, and its form."""

    title: str
    path: str
    danger: bool


class WorkerRow(Answer):
    """A queue worker: items by outcome, of all processes; its last error, of this one."""

    name: str
    in_flight: int
    settled: dict[str, int]
    last_error: str
    queue: str
    dead_letters: str


class AppOverview(Answer):
    """What people can do with an application, and what it is doing."""

    about: str
    acts: list[ActLink]
    workers: list[WorkerRow]


def overview_route(app: str, page: AppPage, acts: Iterable[Act]) -> Route:
    """The route of the page. A form that needs a subject has no link."""
    shown = Page(page.title, "solely:application.html", page.path)
    forms = [act for act in acts if act.page and all(each.label or each.option for each in act.fields)]

    async def overview(call: Call[None, View]) -> object:
        async def load() -> AppOverview:
            return AppOverview(about=page.about, acts=_links(call, forms), workers=_workers(call, app))

        return await show(call, shown, load)

    return Route("GET", page.path, READ_PAGE, overview, page.title, hidden=True)


def _links(call: Call[None, View], acts: Iterable[Act]) -> list[ActLink]:
    permitted = [act for act in acts if call.principal.scope >= Scope[act.scope.upper()]]
    return [ActLink(title=act.title, path=act.page, danger=act.needs_reason) for act in permitted]


def _workers(call: Call[None, View], app: str) -> list[WorkerRow]:
    counts = call.service.metrics.counts()
    items, in_flight = counts.counters.get(ITEMS.name, {}), counts.gauges.get(IN_FLIGHT.name, {})
    return [
        WorkerRow(
            name=name,
            in_flight=int(in_flight.get((app, name), 0)),
            settled={outcome: int(n) for (of, worker, outcome), n in items.items() if (of, worker) == (app, name)},
            last_error=worker.health.last_error,
            queue=f"/queues?{urlencode({'queue': worker.name})}",
            dead_letters=f"/dead-letters?{urlencode({'group': worker.dead_letters.group})}",
        )
        for name, worker in call.service.workers.of(app).items()
    ]
