"""Login: exchanges a token for a session, which ends by a logout, after a working day, or with its token."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
import structlog
from starlette.responses import RedirectResponse, Response

from ..authentication import LOGIN_PATH
from ..routes import PUBLIC, Answer, Body, Call, Route
from ..sessions import SESSION
from .rendering import READ_PAGE, Page, View, acted, html

log = structlog.get_logger("solely.http")

LOGGED = 8  # hex digits of an invalid token's digest: enough to recognize a repeated or a removed token
PAGE = Page("Log in", "solely:login.html", "")


class LoginQuery(View):
    """`next` is the page to open after the login."""

    next: Annotated[str, msgspec.Meta(max_length=4096)] = "/"


class LoginForm(Body):
    """The token, and the page to open."""

    token: Annotated[str, msgspec.Meta(max_length=512)]
    next: Annotated[str, msgspec.Meta(max_length=4096)] = "/"


class LoginPage(Answer):
    """The page with the form."""

    next: str
    wrong: bool = False


async def form(call: Call[None, LoginQuery]) -> Response:
    """The form; without tokens, no login is needed."""
    if not call.service.tokens:
        return RedirectResponse("/", 303)
    return html(call, PAGE, LoginPage(next=local(call.query.next)))


async def login(call: Call[LoginForm, LoginQuery]) -> Response:
    """Opens a session and redirects to `next`; shows the form again if the token is invalid."""
    token = call.body.token.strip().encode("utf-8", "surrogatepass")
    principal = call.service.tokens.whose(token)
    if principal is None:
        log.warning("login_failed", address=call.address, digest=hashlib.sha256(token).hexdigest()[:LOGGED])
        return html(call, PAGE, LoginPage(next=local(call.body.next), wrong=True), 401)
    response = RedirectResponse(local(call.body.next), 303)
    secure = call.header("origin").startswith("https://")  # the scheme that the browser uses, whatever a proxy uses
    cookie = call.service.sessions.open(principal)
    response.set_cookie(
        call.service.sessions.COOKIE, cookie, max_age=int(SESSION), httponly=True, samesite="lax", secure=secure
    )
    return response


async def logout(call: Call[Body, None]) -> Response:
    """Ends the session in this browser and for everybody who has a copy of its cookie. If the store is unavailable,
    only the cookie of this browser is deleted, and the page says so."""

    async def end() -> str:
        if call.cookie:
            await call.service.logouts.add(call.cookie)
        return LOGIN_PATH

    response = await acted(call, PAGE, end)
    response.delete_cookie(call.service.sessions.COOKIE, httponly=True, samesite="lax")
    return response


def local(path: str) -> str:
    """The path if it is on this site; else the first page. A browser takes // and /\\ for another host."""
    ours = path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()
    return path if ours else "/"


ROUTES = [
    Route("GET", LOGIN_PATH, PUBLIC, form, hidden=True),
    Route("POST", LOGIN_PATH, PUBLIC, login, form=True, hidden=True),
    Route("POST", "/logout", READ_PAGE, logout, form=True, hidden=True),
]
