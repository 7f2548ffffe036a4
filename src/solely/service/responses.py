"""Sends responses: what a handler returned, a page, or a problem. Each of them carries the security headers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog
from starlette.responses import Response

from ..errors import SolelyError
from .bodies import to_json
from .problems import Problem, problem_of
from .routes import UNMATCHED, Call, JsonResponse

log = structlog.get_logger("solely.http")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Scope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]

# JSON is for programs: a browser must not render, run, frame or cache it. Pages set their own headers.
SECURITY_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_JSON_HEADERS = ((b"content-type", b"application/json"), *SECURITY_HEADERS)
_PROBLEM_HEADERS = ((b"content-type", b"application/problem+json"), *SECURITY_HEADERS)
_NO_HEADERS: tuple[Header, ...] = ()
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", re.IGNORECASE)  # accepted, and not with the weight 0


async def send_result(call: Call[Any, Any], send: Send, result: object) -> int:
    """Sends what a handler returned as JSON; returns the status, which is 204 for None."""
    status, headers, body = call.route.status, _NO_HEADERS, result
    if type(result) is JsonResponse:
        status, headers, body = result.status, result.headers, result.body
    if body is not None:
        return await _send(call, send, status, _JSON_HEADERS + headers, to_json(body))
    return await _send(call, send, 204 if status == 200 else status, SECURITY_HEADERS + headers, b"")


async def send_problem(call: Call[Any, Any], send: Send, problem: Problem) -> int:
    """Sends a problem document, or its `detail` alone where the route has text_errors; returns the status."""
    body: object = problem.document
    headers = _PROBLEM_HEADERS
    if call.path != UNMATCHED and call.route.error_field:
        problem.document.error = problem.document.detail
    if call.path != UNMATCHED and call.route.text_errors:
        body, headers = problem.document.detail, _JSON_HEADERS
    return await _send(call, send, problem.kind.status, headers + problem.headers, to_json(body))


async def _send(call: Call[Any, Any], send: Send, status: int, headers: tuple[Header, ...], body: bytes) -> int:
    if call.respond is None or not call.respond(status, headers, body):
        length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
        await send({"type": "http.response.start", "status": status, "headers": (*length, *headers)})
        await send({"type": "http.response.body", "body": body})
    return status


async def send_response(response: Response, scope: Scope, receive: Receive, send: Send) -> int:
    """Sends a Starlette response (a page, a stream) and adds the security headers that it does not set itself."""
    for name, value in SECURITY_HEADERS:
        response.headers.setdefault(name.decode(), value.decode())
    await response(scope, receive, send)
    return response.status_code


def accepts_gzip(accept_encoding: str) -> bool:
    """True if a caller with this header can read gzip."""
    return _GZIP.search(accept_encoding) is not None


def logged_problem(error: SolelyError, route: str) -> Problem:
    """The error as a problem. The cause of a failure is logged, since the response does not name it."""
    problem = problem_of(error)
    if problem.kind.status >= 500:
        log.warning("refused", route=route, problem=problem.kind.name, error=str(error))
    return problem


# -- encoding: text that callers stored may hold lone surrogates, which UTF-8 cannot encode; no response fails on them


def encodable(text: str) -> str:
    """The text, with a question mark in place of each lone surrogate."""
    return text.encode(errors="replace").decode()
