"""Answers: how an answer, a page or a problem goes out. Every one of them carries the security headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
import structlog
from starlette.responses import Response

from ..errors import SolelyError
from .problems import Problem, problem_of
from .routes import Reply, Route

log = structlog.get_logger("solely.http")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Scope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]

# A JSON answer is for programs: nothing in it is to be shown, run, framed or kept by a browser. Pages set their own.
GUARDS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
JSON: tuple[Header, ...] = ((b"content-type", b"application/json"), *GUARDS)
PROBLEM: tuple[Header, ...] = ((b"content-type", b"application/problem+json"), *GUARDS)
_encode = msgspec.json.Encoder().encode


async def send_answer(send: Send, route: Route, answer: object) -> int:
    """Sends what a handler answered; the status."""
    status: int = route.status
    more: tuple[Header, ...] = ()
    if type(answer) is Reply:
        status, more, answer = answer.status, answer.headers, answer.body
    if answer is None:
        status = 204 if status == 200 else status
        await _write(send, status, (*GUARDS, *more), b"")
    else:
        await _write(send, status, (*JSON, *more) if more else JSON, _encode(answer))
    return status


async def send_problem(send: Send, problem: Problem) -> int:
    """Sends a refusal; the status."""
    await _write(send, problem.kind.status, (*PROBLEM, *problem.headers), _encode(problem.document))
    return problem.kind.status


async def _write(send: Send, status: int, headers: tuple[Header, ...], body: bytes) -> None:
    if status != 204:
        headers = ((b"content-length", b"%d" % len(body)), *headers)
    await send({"type": "http.response.start", "status": status, "headers": headers})
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
