"""Login: a token is exchanged for a session, which ends with its logout, after a working day, or with its token."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
import structlog
from starlette.responses import RedirectResponse, Response

from ..admission import LOGIN_PATH
from ..routes import PUBLIC, Answer, Body, Call, Route
from ..security import SESSION
from .rendering import READ_PAGE, Page, View, acted, html

log = structlog.get_logger("solely.http")

SHOWN = 8  # hex digits of a wrong token's digest: enough to see whether it is always the same, or one that was removed
PAGE = Page("Log in", "solely:login.html", "")


class LoginQuery(View):
    """`next` is the page that was wanted."""

    next: Annotated[str, msgspec.Meta(max_length=4096)] = "/"


class Login(Body):
    """The token."""

    token: Annotated[str, msgspec.Meta(max_length=512)]
    next: Annotated[str, msgspec.Meta(max_length=4096)] = "/"


class LoginForm(Answer):
    """What the form shows."""

    next: str
    wrong: bool = False


async def form(call: Call[None, LoginQuery]) -> Response:
    """The form; where there are no tokens, there is nothing to log in to."""
    if not call.service.tokens:
        return RedirectResponse("/", 303)
    return html(call, PAGE, LoginForm(next=local(call.query.next)))


async def login(call: Call[Login, LoginQuery]) -> Response:
    """Opens a session and goes to the page that was wanted; the form again if the token is nobody's."""
    token = call.body.token.strip().encode("utf-8", "surrogatepass")
    principal = call.service.tokens.whose(token)
    if principal is None:
        log.warning("login_failed", address=call.address, digest=hashlib.sha256(token).hexdigest()[:SHOWN])
        return html(call, PAGE, LoginForm(next=local(call.body.next), wrong=True), 401)
    response = RedirectResponse(local(call.body.next), 303)
    secure = call.header("origin").startswith("https://")  # as the browser sees us, whatever a proxy speaks to us
    cookie = call.service.sessions.open(principal)
    response.set_cookie(
        call.service.sessions.COOKIE, cookie, max_age=int(SESSION), httponly=True, samesite="lax", secure=secure
    )
    return response


async def logout(call: Call[Body, None]) -> Response:
    """Ends the session: in this browser, and for all who have a copy of its cookie. Says so if the store does not
    answer: then only this browser has lost it."""

    async def end() -> str:
        if call.cookie:
            await call.service.logouts.add(call.cookie)
        return LOGIN_PATH

    response = await acted(call, PAGE, end)
    response.delete_cookie(call.service.sessions.COOKIE, httponly=True, samesite="lax")
    return response


def local(path: str) -> str:
    """The path if it leads to a page of ours; else the first page. A browser reads // and /\\ as another host."""
    ours = path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()
    return path if ours else "/"


ROUTES = [
    Route("GET", LOGIN_PATH, PUBLIC, form, "Log in", hidden=True),
    Route("POST", LOGIN_PATH, PUBLIC, login, "Log in", form=True, hidden=True),
    Route("POST", "/logout", READ_PAGE, logout, "Log out", form=True, hidden=True),
]
