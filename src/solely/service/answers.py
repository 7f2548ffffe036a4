"""Answers: how an answer, a page or a problem goes out. Every one of them carries the security headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog
from starlette.responses import Response

from ..errors import SolelyError
from .encoding import json_of
from .problems import Problem, problem_of
from .routes import Reply, Route, Whole

log = structlog.get_logger("solely.http")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Scope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]


class Head:
    """Headers that many answers have in common, as pairs and as they go over the wire."""

    def __init__(self, *pairs: Header) -> None:
        self.pairs = pairs
        self.lines = b"".join(b"%b: %b\r\n" % pair for pair in pairs)


# A JSON answer is for programs: nothing in it is to be shown, run, framed or kept by a browser. Pages set their own.
GUARDS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
EMPTY = Head(*GUARDS)
JSON = Head((b"content-type", b"application/json"), *GUARDS)
PROBLEM = Head((b"content-type", b"application/problem+json"), *GUARDS)


async def send_answer(send: Send, whole: Whole | None, route: Route, answer: object) -> int:
    """Sends what a handler answered; the status."""
    status: int = route.status
    more: tuple[Header, ...] = ()
    if type(answer) is Reply:
        status, more, answer = answer.status, answer.headers, answer.body
    if answer is None:
        status = 204 if status == 200 else status
        await _write(send, whole, status, EMPTY, more, b"")
    else:
        await _write(send, whole, status, JSON, more, json_of(answer))
    return status


async def send_problem(send: Send, whole: Whole | None, problem: Problem) -> int:
    """Sends a refusal; the status."""
    await _write(send, whole, problem.kind.status, PROBLEM, problem.headers, json_of(problem.document))
    return problem.kind.status


async def _write(
    send: Send, whole: Whole | None, status: int, head: Head, more: tuple[Header, ...], body: bytes
) -> None:
    if whole is not None and not more and whole(status, head.lines, body):
        return
    length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
    await send({"type": "http.response.start", "status": status, "headers": (*length, *head.pairs, *more)})
    await send({"type": "http.response.body", "body": body})


async def send_response(response: Response, scope: Scope, receive: Receive, send: Send) -> int:
    """Sends a Starlette response (a page, a stream), with those of our headers that it does not set itself."""
    for name, value in GUARDS:
        response.headers.setdefault(name.decode(), value.decode())
    await response(scope, receive, send)
    return response.status_code


def told(error: SolelyError, route: str) -> Problem:
    """The error as a problem; what the caller is not told is logged."""
    problem = problem_of(error)
    if problem.kind.status >= 500:
        log.warning("refused", route=route, problem=problem.kind.name, error=str(error))
    return problem
