"""The policy page: what a repeat of each request does, and all problems, generated from what is enforced."""

from __future__ import annotations

from starlette.responses import HTMLResponse

from ..integrations.idempotency import PROBLEMS
from .dashboard.rendering import public_page
from .idempotency import KEEP, WAIT
from .problems import KINDS, POLICY_PATH
from .routes import PUBLIC, Call, Route


async def policy(call: Call[None, None]) -> HTMLResponse:
    """What a repeat of each request does, and all problems."""
    repeats = [route for route in call.routes if route.again]
    view = {"routes": repeats, "problems": (*KINDS, *PROBLEMS), "keep": KEEP, "wait": WAIT}
    page = public_page("solely:policy.html", view)
    page.headers["cache-control"] = "max-age=300"
    return page


ROUTES = [Route("GET", POLICY_PATH, PUBLIC, policy, media="text/html", tag="service")]
