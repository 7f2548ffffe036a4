"""The ASGI application. It handles each request in this order: host and origin, route, caller, body and query, handler,
response; then it counts and logs the request."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import unquote

import structlog
from starlette.responses import Response

from ..audit import NOTHING
from ..errors import SolelyError
from ..holder import ON_BEHALF
from . import problems
from .authentication import (
    authenticate,
    caller_of,
    check_origin,
    check_plausible,
    check_session,
    read_headers,
    verify,
)
from .dashboard.rendering import prefers_html, problem_page
from .disconnects import ClientGone
from .endpoints import LARGE_BODY, Endpoint, RouteTable, read_body
from .idempotency import IdempotentRequests, has_key
from .problems import Problem
from .responses import Receive, Scope, Send, logged_problem, send_problem, send_response, send_result
from .routes import RESPOND, UNMATCHED, Bearer, Call, Route
from .service import Service

log = structlog.get_logger("solely.http")

DENIED = (401, 403)  # logged like failures: somebody tries what is not permitted. Other refusals are normal
GONE = 499  # nginx's status for callers that disconnected
RESTART_DELAY = 1.0  # seconds before a worker that cannot start exits and is replaced: starting one costs CPU, too


class AsgiApp:
    """The service as an ASGI application. With `replaced`, a worker that cannot start exits, and its parent starts
    another: what it needs was available when the program began."""

    def __init__(self, service: Service, routes: Iterable[Route], *, replaced: bool = False) -> None:
        self.service = service
        self._replaced = replaced
        self.routes = tuple(routes)
        self._table = RouteTable(self.routes, service.settings.max_body)
        self._idempotent: IdempotentRequests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:  # noqa: BLE001 - the server must report it, whatever it is
            log.error("not_started", error=str(error))
            if self._replaced:  # uvicorn's own way to fail would stop all other workers too
                await asyncio.sleep(RESTART_DELAY)
                os._exit(1)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def open(self) -> None:
        """Opens the service."""
        await self.service.open()
        self._idempotent = IdempotentRequests(
            self._without_key, self.service.own, self.service.settings, (each for each in self.routes if each.keyed)
        )

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call[Any, Any] = Call(self.service, scope, receive)
        call.respond = scope.get(RESPOND)
        started = time.perf_counter()
        telemetry = self.service.telemetry
        if telemetry is None:
            status = await self._handle(call, send)
        else:
            with telemetry.span(scope) as span:
                status = await self._handle(call, send)
                telemetry.handled(span, scope["method"], call.path, status)
        self._report(call, status, time.perf_counter() - started)

    def _report(self, call: Call[Any, Any], status: int, seconds: float) -> None:
        method, path = call.scope["method"], call.path
        self.service.metrics.handled(method if path != UNMATCHED else "any", path, status, seconds)
        failed = status >= 500 or status in DENIED
        if failed or self.service.settings.access_log:
            facts = {"method": method, "route": path, "status": status, "seconds": round(seconds, 6)}
            log.log(logging.WARNING if failed else logging.INFO, "request", address=call.address, **facts)

    async def _without_key(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request that the middleware for Idempotency-Key let through."""
        await self._handle(Call(self.service, scope, receive), send)

    async def _handle(self, call: Call[Any, Any], send: Send) -> int:
        """Sends the response; returns its status."""
        scope = call.scope
        try:
            call.headers = read_headers(scope["headers"], self.service.settings.max_header)
            check_origin(call)
            endpoint = self._table.find(scope["method"], scope["path"], call)
            call.route = route = endpoint.route
            call.path = route.path
            call.routes, call.page = self.routes, partial(self._page, call)
            login = authenticate(call, endpoint.scope)
            if login is None and call.cookie:
                login = await check_session(call)
            if login is not None:
                await call.stranger_turn()
                return await send_response(login, scope, call.receive, send)
            if route.keyed and has_key(scope):
                return await self._idempotent.handle(scope, call.receive, send, call.principal.name)
            result = await self._perform(endpoint, call)
            if isinstance(result, Response):
                return await send_response(result, scope, call.receive, send)
            return await send_result(call, send, result)
        except ClientGone:
            return GONE
        except Problem as refusal:
            return await self._refuse_in_turn(call, send, refusal)
        except SolelyError as error:
            return await _refuse(call, send, logged_problem(error, call.path))
        except Exception:
            log.exception("failed", route=call.path)
            return await _refuse(call, send, Problem(problems.BROKEN))

    async def _refuse_in_turn(self, call: Call[Any, Any], send: Send, refusal: Problem) -> int:
        try:
            await call.stranger_turn()
        except ClientGone:
            return GONE
        return await _refuse(call, send, refusal)

    async def _perform(self, endpoint: Endpoint, call: Call[Any, Any]) -> object:
        """What the handler returns, after the request was checked and decoded."""
        route, service = endpoint.route, self.service
        if route.grants and service.stopping.is_set():
            raise Problem(problems.STOPPING)
        if endpoint.query is not None:
            call.query = endpoint.query(call.scope["query_string"])
        if endpoint.webhook is not None:
            check_plausible(endpoint.webhook, call)
            with service.bodies.counting() as count:
                call.raw = await read_body(call, endpoint.cap, count)
                await call.stranger_turn()
                await verify(endpoint.webhook, call)
                return await self._handled(endpoint, call)
        if endpoint.body is not None:
            call.raw = await read_body(call, endpoint.cap)
        await call.stranger_turn()
        return await self._handled(endpoint, call)

    async def _page(self, call: Call[Any, Any], address: str) -> object:
        """What the page at this address returns to the same caller, who has been authenticated; raises Problem if there
        is no such page, or the caller may not see it."""
        if not address.isascii():
            raise Problem(problems.INVALID, "an address has only ASCII characters")
        path, _, query = address.partition("?")
        raw = {"raw_path": path.encode(), "query_string": query.encode()}
        scope = {**call.scope, **raw, "method": "GET", "path": unquote(path)}
        page: Call[Any, Any] = Call(self.service, scope, call.receive)
        endpoint = self._table.find("GET", scope["path"], page)
        page.route, page.path, page.routes = endpoint.route, endpoint.route.path, call.routes
        if not (isinstance(page.route.auth, Bearer) and page.route.auth.page):
            raise Problem(problems.NOT_FOUND)
        page.headers = call.headers
        if authenticate(page, endpoint.scope) is not None:
            raise Problem(problems.NO_TOKEN)
        return await self._perform(endpoint, page)

    async def _handled(self, endpoint: Endpoint, call: Call[Any, Any]) -> object:
        """What the handler returns, after the body was read and the caller is known."""
        route, service = endpoint.route, self.service
        if endpoint.body is not None:
            large = len(call.raw) > LARGE_BODY
            call.body = await asyncio.to_thread(endpoint.body, call) if large else endpoint.body(call)
        acting = ON_BEHALF.set(caller_of(call, endpoint.holds))
        try:
            if endpoint.audited:
                return await self._audited(call)
            if not endpoint.takes_slot:
                return await route.handler(call)
            async with service.slots.take():
                return await route.handler(call)
        finally:
            ON_BEHALF.reset(acting)

    async def _audited(self, call: Call[Any, Any]) -> object:
        """What the handler of an admin action returns; the audit log says what became of it."""
        route, body = call.route, call.body
        key = str(getattr(body, "key", ""))
        async with self.service.audit.acting(call.principal.name, route.name, key, body.reason) as act:
            answer = await route.handler(call)
            if route.changed and not getattr(answer, route.changed):
                act.outcome = NOTHING
            return answer


async def _refuse(call: Call[Any, Any], send: Send, problem: Problem) -> int:
    """Sends the problem: as a page to a browser that loads one, else as a problem document; returns the status."""
    if prefers_html(call):
        return await send_response(problem_page(problem), call.scope, call.receive, send)
    return await send_problem(call, send, problem)
