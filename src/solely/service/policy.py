"""The policy page: what a repeat of each request does, and all problems, generated from what is enforced."""

from __future__ import annotations

from starlette.responses import HTMLResponse

from ..integrations.idempotency import PROBLEMS
from .dashboard.rendering import public_page
from .idempotency import KEEP, WAIT
from .problems import KINDS, POLICY_PATH
from .routes import PUBLIC, Call, Route

FRESH = 300.0  # seconds that the page is kept, here and by browsers: it changes with the version only


async def policy(call: Call[None, None]) -> HTMLResponse:
    """What a repeat of each request does, and all problems."""

    async def make() -> HTMLResponse:
        repeats = [route for route in call.routes if route.again]
        view = {"routes": repeats, "problems": (*KINDS, *PROBLEMS), "keep": KEEP, "wait": WAIT}
        page = public_page("solely:policy.html", view)
        page.headers["cache-control"] = f"max-age={FRESH:g}"
        return page

    return await call.service.dashboard.views.share("policy", FRESH, make)


ROUTES = [Route("GET", POLICY_PATH, PUBLIC, policy, media="text/html", tag="service")]
