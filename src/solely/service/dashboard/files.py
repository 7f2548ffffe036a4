"""The files that pages are made with: styles, scripts and the chart. Ours, and uPlot's under its licence."""

from __future__ import annotations

from importlib.resources import files

from starlette.responses import Response

from ..problems import NOT_FOUND, Problem
from ..routes import PUBLIC, Call, Route

KINDS = {
    "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}  # fmt: skip
KEPT = "public, max-age=86400"  # pages name the version, so that a new one is fetched at once
FILES = {
    file.name: (file.read_bytes(), KINDS[file.name.rpartition(".")[2]])
    for file in files("solely.service.dashboard").joinpath("static").iterdir()
}


async def static(call: Call[None, None]) -> Response:
    """The file."""
    found = FILES.get(call.params["name"])
    if found is None:
        raise Problem(NOT_FOUND)
    return Response(found[0], headers={"content-type": found[1], "cache-control": KEPT})


ROUTES = [Route("GET", "/static/{name}", PUBLIC, static, "A file of the dashboard", hidden=True)]
