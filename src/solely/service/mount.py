"""Mounts what the service serves: every module that has ROUTES, in the order of the documents, and the applications
that the settings name. A new noun adds one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..apps import find, has, module_of
from ..errors import InvalidInput
from . import health, openapi, policy, workers
from .acts import act_routes
from .api import (
    claims,
    dead_letter_acts,
    dead_letters,
    entries,
    events,
    history,
    hosts,
    limits,
    locks,
    marks,
    ops,
    queue_lists,
    queues,
    reservations,
    schedules,
    watermarks,
)
from .application import JOURNAL_DROPPED, Application
from .charts.queues import keep_sampling
from .dashboard import audit_log, dedup, keys, letters, live, login, overview, reference, rendering, search
from .dashboard import entries as entry_pages
from .dashboard import events as event_pages
from .dashboard import health as health_pages
from .dashboard import limits as limit_pages
from .dashboard import queues as queue_pages
from .dashboard import schedules as schedule_pages
from .dashboard import watermarks as watermark_pages
from .dashboard.app_overview import overview_route
from .dashboard.state import AppPage
from .problems import DATA_AWAY
from .routes import PUBLIC, Route
from .service import FAILURES, Service

MODULES = (
    locks, marks, claims, reservations, limits, watermarks, queues, queue_lists, schedules, dead_letters,
    dead_letter_acts, entries, hosts, events, history, ops, health, openapi, policy, overview, health_pages,
    event_pages, search, entry_pages, keys, dedup, limit_pages, queue_pages, schedule_pages, letters,
    watermark_pages, audit_log, login, reference, rendering, live,
)  # fmt: skip


def all_routes() -> list[Route]:
    """The routes of all modules: what the service serves without any application."""
    return [route for module in MODULES for route in module.ROUTES]


def mount(service: Service) -> list[Route]:
    """Creates the applications of this service, which start when it opens; returns the routes of all modules and
    applications.

    InvalidInput if there is no such application, or if two of them declare the same figure.
    """
    routes = all_routes()
    service.dashboard.rollup.add(line for chart in overview.CHARTS for line in chart.lines)
    if service.settings.history:
        service.background.append(_sample_queues)
    if service.settings.mounted:
        service.metrics.add((FAILURES, JOURNAL_DROPPED, *workers.FIGURES))
    for name in service.settings.mounted:
        kind = find(name)
        if kind.name != name:
            raise InvalidInput(f"the application {name} calls itself {kind.name}: it must have the name it is known by")
        service.metrics.add(kind.figures)
        service.dashboard.rollup.add(line for chart in kind.charts for line in chart.lines)
        if has(name, "templates"):
            rendering.add_templates(name, module_of(name))
        app: Application[Any] = kind(service, service.settings.section(name))
        service.apps[name] = app
        routes += [_of_app(name, route) for route in _app_routes(service, app)]
    return routes


async def _sample_queues(service: Service) -> None:
    await keep_sampling(service.once, service.store, service.dashboard.rollup)


def _app_routes(service: Service, app: Application[Any]) -> list[Route]:
    """The routes of the application and of its acts; with a page that shows these, unless it has pages of its own."""
    acts = app.acts()
    routes = [*app.routes(), *(route for act, perform in acts.items() for route in act_routes(act, perform))]
    pages = app.pages or (AppPage(app.title, f"/{app.name}", app.about),)
    service.dashboard.pages += pages
    return routes if app.pages else [*routes, overview_route(app.name, pages[0], acts)]


def _of_app(name: str, route: Route) -> Route:
    """The route as the documents list it: under the application's name, and with the problem of its database."""
    refusals = (*route.refusals, DATA_AWAY) if has(name, "migrations") and route.auth != PUBLIC else route.refusals
    return replace(route, tag=route.tag or name, refusals=refusals)
