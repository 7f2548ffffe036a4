"""Renders a view in the requested form: a page, JSON, or a live stream of changes to the page; and serves static
files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec
from jinja2 import BaseLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ... import __version__
from ...errors import SolelyError
from ..charts.lines import Chart
from ..charts.rollup import ChartData
from ..problems import NOT_FOUND, Problem
from ..responses import encodable, logged_problem
from ..routes import PUBLIC, Bearer, Body, Call, Route
from ..security import LOCAL, Scope
from ..settings import without_password
from .addresses import Address, Trail
from .formatting import FILTERS
from .live import LiveView, Update
from .sentences import event_lines
from .state import SHORTEST

LIVE = 0.5  # seconds between updates of a live page: changes by other processes show within one second
READ_PAGE = Bearer(Scope.READ, page=True)
WRITE_PAGE = Bearer(Scope.WRITE, page=True)
ADMIN_PAGE = Bearer(Scope.ADMIN, page=True)


# A page loads only our own files, and no inline script or style.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
NAVIGATION = (
    ("Overview", "/"),
    ("Health", "/health"),
    ("Events", "/events"),
    ("Locks", "/locks"),
    ("Claims", "/claims"),
    ("Reservations", "/reservations"),
    ("Dedup", "/dedup"),
    ("Limits", "/limits"),
    ("Queues", "/queues"),
    ("Schedules", "/schedules"),
    ("Dead letters", "/dead-letters"),
    ("Watermarks", "/watermarks"),
    ("Audit log", "/audit"),
)

_packages: dict[str, BaseLoader] = {"solely": PackageLoader("solely.service.dashboard")}
_templates = Environment(
    loader=PrefixLoader(_packages, ":"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_templates.filters.update(FILTERS, event_lines=event_lines)
_templates.globals["parts"] = _templates.get_template("solely:parts.html").module


def add_templates(prefix: str, package: str) -> None:
    """Registers the templates of an application's package as `prefix:name`; they extend
    `solely:page.html`, or `solely:live.html` if the block `region` of the page is to follow changes."""
    _packages[prefix] = PackageLoader(package)


class View(Body, kw_only=True):
    """The query of every view: its form, the outcome of the action that redirected here, and, in a list, where the
    pages before this one begin."""

    format: Literal["", "html", "json", "live"] = ""
    note: str = ""
    trail: Trail = msgspec.field(default_factory=list)
    range: Literal["", "10m", "1h", "24h", "7d"] = ""  # of charts


class Page(NamedTuple):
    """How a view is shown: its title, its template, its place in the navigation, and its charts."""

    title: str
    template: str
    place: str
    charts: tuple[Chart, ...] = ()


class DrawnChart(NamedTuple):
    """A chart and its points."""

    chart: Chart
    data: ChartData


Load = Callable[[], Awaitable[object]]


async def show(call: Call[Any, Any], page: Page, load: Load, status: int = 200) -> object:
    """The view in the form that the caller requests. Errors are shown as a page, too."""
    wanted = _form(call)
    if wanted == "json":
        return await load()
    if wanted == "live":
        return LiveView(call, _updates(call, page, load))
    try:
        return html(call, page, await load(), status, await _drawn(call, page))
    except Problem as problem:
        return _refusal(call, page, problem)
    except SolelyError as error:
        return _refusal(call, page, logged_problem(error, call.path))


async def show_to_all(call: Call[Any, Any], page: Page, what: Hashable, fresh: float, load: Load) -> object:
    """As `show`, for a page that is the same for all callers: it is made once in `fresh` seconds. Whatever it depends
    on is part of `what`."""
    return await call.service.dashboard.views.share((what, _form(call)), fresh, lambda: show(call, page, load))


def _form(call: Call[Any, Any]) -> str:
    """The form in which the caller wants the view."""
    return call.query.format or ("json" if _prefers_json(call) else "html")


async def _drawn(call: Call[Any, Any], page: Page) -> list[DrawnChart]:
    """The charts of the page with their points, over the range that the viewer chose."""
    over = getattr(call.query, "range", "") or SHORTEST
    return [DrawnChart(chart, await call.service.dashboard.chart(chart, over)) for chart in page.charts]


async def acted(call: Call[Any, Any], page: Page, act: Callable[[], Awaitable[str]]) -> Response:
    """Performs an action and redirects to the address that it returns, where nothing is cached."""
    try:
        return RedirectResponse(await act(), 303)
    except Problem as problem:
        return _refusal(call, page, problem)
    except SolelyError as error:
        return _refusal(call, page, logged_problem(error, call.path))
    finally:
        call.service.dashboard.views.clear()


def _prefers_json(call: Call[Any, Any]) -> bool:
    return "application/json" in call.header("accept") and not prefers_html(call)


def html(
    call: Call[Any, Any], page: Page, view: object, status: int = 200, charts: Sequence[DrawnChart] = ()
) -> HTMLResponse:
    """The view as a page."""
    text = _templates.get_template(page.template).render(_facts(call, page, view, charts))
    return HTMLResponse(encodable(text), status, headers={"content-security-policy": POLICY, "vary": "accept, cookie"})


def _refusal(call: Call[Any, Any], page: Page, problem: Problem) -> HTMLResponse:
    page = page._replace(template="solely:refusal.html")
    return with_headers(html(call, page, problem.document, problem.kind.status), problem)


def with_headers(page: HTMLResponse, problem: Problem) -> HTMLResponse:
    """The page with the headers of the problem that it shows, such as Retry-After."""
    for name, value in problem.headers:
        page.headers[name.decode()] = value.decode()
    return page


async def _updates(call: Call[Any, Any], page: Page, load: Load) -> AsyncGenerator[Update, None]:
    """The live region of the page whenever it changes; `away` while it cannot be loaded."""
    template, shown = _templates.get_template(page.template), ""
    while True:
        try:
            async with call.service.slots.take():
                facts = _facts(call, page, await load(), await _drawn(call, page), live=True)
                region = encodable(template.render(facts))
        except (SolelyError, Problem):
            shown = ""
            yield Update("away")
        else:
            if region != shown:
                shown = region
                yield Update("region", region)
        await asyncio.sleep(LIVE)


def _facts(
    call: Call[Any, Any], page: Page, view: object, charts: Sequence[DrawnChart] = (), live: bool = False
) -> dict[str, Any]:
    """The variables of templates."""
    service, who = call.service, call.principal
    return {
        "view": view,
        "page": page,
        "charts": charts,
        "over": getattr(call.query, "range", "") or SHORTEST,
        "live": live,
        "now": time.time(),
        "here": Address(_path(call), call.query),
        "query": call.query,
        "navigation": NAVIGATION,
        "applications": service.dashboard.pages,
        "may_write": who.scope >= Scope.WRITE,
        "may_admin": who.scope >= Scope.ADMIN,
        "who": who,
        "anybody": who is LOCAL,
        "csrf": call.csrf,
        "store": without_password(service.settings.store_url),
        "workers": service.settings.workers,
        "version": __version__,
    }


def _path(call: Call[Any, Any]) -> str:
    """The path of this request, in which parameters of the route have their values."""
    return str(call.scope["raw_path"], "ascii") if "{" in call.path else call.path


# -- pages for everybody: they say nothing of the service, and need no login


def prefers_html(call: Call[Any, Any]) -> bool:
    """True for a browser that loads a page: programs, and scripts that follow a stream, accept other types."""
    return "text/html" in call.header("accept")


def public_page(template: str, view: object, status: int = 200) -> HTMLResponse:
    """A page without navigation, in the style of the dashboard."""
    text = _templates.get_template(template).render(view=view, version=__version__)
    return HTMLResponse(encodable(text), status, headers={"content-security-policy": POLICY})


def problem_page(problem: Problem) -> HTMLResponse:
    """The problem for a person: what is wrong, and what to do."""
    page = with_headers(public_page("solely:problem.html", problem.document, problem.kind.status), problem)
    page.headers["vary"] = "accept, cookie"
    return page


# -- static files: styles, scripts and the chart; ours, and uPlot's under its license

# A worker obeys the policy that its script was sent with, not that of the page.
SCRIPT_POLICY = "default-src 'none'; connect-src 'self'; frame-ancestors 'none'"

CONTENT_TYPES = {
    "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}  # fmt: skip
CACHED = "public, max-age=86400"  # links contain the version, so that a new one is loaded at once
FILES = {
    file.name: (file.read_bytes(), CONTENT_TYPES[file.name.rpartition(".")[2]])
    for file in files("solely.service.dashboard").joinpath("static").iterdir()
}


async def static(call: Call[None, None]) -> Response:
    """A static file."""
    found = FILES.get(call.params["name"])
    if found is None:
        raise Problem(NOT_FOUND)
    headers = {"content-type": found[1], "cache-control": CACHED}
    if found[1] == CONTENT_TYPES["js"]:
        headers["content-security-policy"] = SCRIPT_POLICY
    return Response(found[0], headers=headers)


ROUTES = [Route("GET", "/static/{name}", PUBLIC, static, hidden=True)]
