"""Rendering: one look, in the form that is asked for: a page, JSON, or a live stream of what changes on the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from jinja2 import BaseLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ... import __version__
from ...errors import SolelyError
from ..answers import told
from ..encoding import sendable
from ..problems import Problem
from ..routes import Answer, Bearer, Body, Call
from ..security import LOCAL, Scope
from ..settings import without_password
from ..streams import EventStream, message
from . import telling

LIVE = 0.5  # seconds between looks of a live page: what another process does is on screen within one
READ_PAGE = Bearer(Scope.READ, page=True)
WRITE_PAGE = Bearer(Scope.WRITE, page=True)
ADMIN_PAGE = Bearer(Scope.ADMIN, page=True)

# A page runs and shows files of ours only, and no script or style that stands in the page itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
NAVIGATION = (
    ("Overview", "/"),
    ("Locks", "/locks"),
    ("Claims", "/claims"),
    ("Reservations", "/reservations"),
    ("Dedup", "/dedup"),
    ("Dead letters", "/dead-letters"),
    ("Watermarks", "/watermarks"),
    ("Audit log", "/audit"),
)

_packages: dict[str, BaseLoader] = {"solely": PackageLoader("solely.service.dashboard")}
_templates = Environment(
    loader=PrefixLoader(_packages, ":"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_templates.filters.update(telling.FILTERS)
_templates.globals["parts"] = _templates.get_template("solely:parts.html").module


def add_templates(prefix: str, package: str) -> None:
    """The templates of an application's package are found as `prefix:name`; they extend `solely:page.html`."""
    _packages[prefix] = PackageLoader(package)


class View(Body, kw_only=True):
    """The query of every view: in which form it is wanted, and what an action that led here has done."""

    format: Literal["", "html", "json", "live"] = ""
    note: str = ""


class Page(NamedTuple):
    """How a look is shown: its title, its template, and where it stands in the navigation."""

    title: str
    template: str
    place: str


Look = Callable[[], Awaitable[Answer]]


async def show(call: Call[Any, Any], page: Page, look: Look, status: int = 200) -> object:
    """The look in the form that the caller wants. A page tells what went wrong as a page."""
    wanted = call.query.format or ("json" if _prefers_json(call) else "html")
    if wanted == "json":
        return await look()
    if wanted == "live":
        return EventStream(call, _live(call, page, look))
    try:
        return html(call, page, await look(), status)
    except Problem as problem:
        return _refusal(call, page, problem)
    except SolelyError as error:
        return _refusal(call, page, told(error, call.path))


async def acted(call: Call[Any, Any], page: Page, act: Callable[[], Awaitable[str]]) -> Response:
    """Does it, and leads on to the address that it answers, where everything is looked at anew."""
    try:
        return RedirectResponse(await act(), 303)
    except Problem as problem:
        return _refusal(call, page, problem)
    except SolelyError as error:
        return _refusal(call, page, told(error, call.path))
    finally:
        call.service.desk.looks.forget()


def _prefers_json(call: Call[Any, Any]) -> bool:
    accepted = call.header("accept")
    return "application/json" in accepted and "text/html" not in accepted


def html(call: Call[Any, Any], page: Page, view: object, status: int = 200) -> HTMLResponse:
    """The whole page."""
    text = _templates.get_template(page.template).render(_facts(call, page, view))
    return HTMLResponse(sendable(text), status, headers={"content-security-policy": POLICY, "vary": "accept, cookie"})


def _refusal(call: Call[Any, Any], page: Page, problem: Problem) -> HTMLResponse:
    refused = html(call, page._replace(template="solely:refusal.html"), problem.document, problem.kind.status)
    for name, value in problem.headers:
        refused.headers[name.decode()] = value.decode()
    return refused


async def _live(call: Call[Any, Any], page: Page, look: Look) -> AsyncGenerator[bytes, None]:
    """The page's live part, whenever it is another than before; `away` while the look fails."""
    template, shown = _templates.get_template(page.template), ""
    while True:
        try:
            async with call.service.slots.take():
                facts = template.new_context(_facts(call, page, await look(), live=True))
                region = sendable("".join(template.blocks["region"](facts)))
        except (SolelyError, Problem):
            shown = ""
            yield message("away", {"now": time.time()})
        else:
            if region != shown:
                shown = region
                yield message("region", {"now": time.time(), "html": region})
        await asyncio.sleep(LIVE)


def _facts(call: Call[Any, Any], page: Page, view: object, live: bool = False) -> dict[str, Any]:
    """All that templates can name."""
    service, who = call.service, call.principal
    return {
        "view": view,
        "page": page,
        "live": live,
        "now": time.time(),
        "here": lambda **other: _link(call, other),
        "query": call.query,
        "navigation": NAVIGATION,
        "applications": service.desk.pages,
        "may_write": who.scope >= Scope.WRITE,
        "may_admin": who.scope >= Scope.ADMIN,
        "who": who,
        "anybody": who is LOCAL,
        "csrf": call.csrf,
        "store": without_password(service.settings.store_url),
        "workers": service.settings.workers,
        "version": __version__,
    }


def _link(call: Call[Any, Any], other: dict[str, Any]) -> str:
    """The address of this view, with other fields of the query: it can be shared."""
    fields = {name: getattr(call.query, name) for name in call.query.__struct_fields__ if name != "note"} | other
    kept = {name: value for name, value in fields.items() if value not in ("", None, False)}
    return call.path + (f"?{urlencode(kept)}" if kept else "")
