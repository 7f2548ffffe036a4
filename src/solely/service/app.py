"""The app: routes as ASGI, in one pass per request and in this order: from where it comes, who asks, what may be sent,
whether it is well formed, the handler, the answer; and then it is counted and logged."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from typing import Any

import structlog
from starlette.responses import Response

from ..errors import SolelyError
from . import problems
from .admission import check_session, check_whence, identify, read_headers, verify
from .answers import Receive, Scope, Send, send_answer, send_problem, send_response, told
from .endpoints import Endpoint, Table
from .keyed import Keyed, is_keyed
from .problems import Problem
from .receiving import read_body
from .routes import UNMATCHED, WHOLE, Call, Route
from .service import Service
from .watching import ClientGone

log = structlog.get_logger("solely.http")

DENIED = (401, 403)  # these count as failed in the log: somebody tries what it may not. Other refusals are usual
REPLACED = 1.0  # seconds before a worker that could not start makes room for the next: to start one is work, too


class App:
    """The service as an ASGI application. A `replaced` one that cannot start ends its process, and another comes in its
    place: what it needs was there when the program began."""

    def __init__(self, service: Service, routes: Iterable[Route], *, replaced: bool = False) -> None:
        self.service = service
        self._replaced = replaced
        service.routes = tuple(routes)
        self._table = Table(service.routes)
        self._keyed: Keyed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, the server must hear of it
            log.error("not_started", error=str(error))
            if self._replaced:  # uvicorn's own way to fail would stop all other workers too
                await asyncio.sleep(REPLACED)
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
        self._keyed = Keyed(self._again, self.service.own, self.service.settings)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call[Any, Any] = Call(self.service, scope, receive)
        call.whole = scope.get(WHOLE)
        started = time.perf_counter()
        telemetry = self.service.telemetry
        if telemetry is None:
            status = await self._answer(call, send)
        else:
            with telemetry.span(scope) as span:
                status = await self._answer(call, send)
                telemetry.answered(span, scope["method"], call.path, status)
        self._answered(call, status, time.perf_counter() - started)

    def _answered(self, call: Call[Any, Any], status: int, seconds: float) -> None:
        method, path = call.scope["method"], call.path
        self.service.metrics.answered(method if path != UNMATCHED else "any", path, status, seconds)
        failed = status >= 500 or status in DENIED
        if failed or self.service.settings.access_log:
            facts = {"method": method, "route": path, "status": status, "seconds": round(seconds, 6)}
            log.log(logging.WARNING if failed else logging.INFO, "request", address=call.address, **facts)

    async def _again(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request that the middleware for Idempotency-Key let through."""
        await self._answer(Call(self.service, scope, receive), send)

    async def _answer(self, call: Call[Any, Any], send: Send) -> int:
        scope = call.scope
        try:
            call.headers = read_headers(scope["headers"], self.service.settings.max_header)
            check_whence(call)
            endpoint = self._table.find(scope["method"], scope["path"], call)
            call.route = route = endpoint.route
            call.path = route.path
            elsewhere = identify(call, endpoint.scope)
            if elsewhere is None and call.cookie:
                elsewhere = await check_session(call)
            if elsewhere is not None:
                return await send_response(elsewhere, scope, call.receive, send)
            if route.keyed and is_keyed(scope):
                return await self._keyed.answer(scope, call.receive, send, call.principal.name)
            answer = await self._perform(endpoint, call)
            if isinstance(answer, Response):
                return await send_response(answer, scope, call.receive, send)
            return await send_answer(send, call.whole, route, answer)
        except ClientGone:
            return 499  # as nginx counts callers that hung up
        except Problem as refusal:
            return await send_problem(send, call.whole, refusal)
        except SolelyError as error:
            return await send_problem(send, call.whole, told(error, call.path))
        except Exception:
            log.exception("failed", route=call.path)
            return await send_problem(send, call.whole, Problem(problems.BROKEN))

    async def _perform(self, endpoint: Endpoint, call: Call[Any, Any]) -> object:
        route, service = endpoint.route, self.service
        if route.grants and service.stopping.is_set():
            raise Problem(problems.STOPPING)
        if endpoint.query is not None:
            call.query = endpoint.query(call.scope["query_string"])
        if endpoint.body is not None or endpoint.webhook is not None:
            call.raw = await read_body(call, min(route.cap, service.settings.max_body))
        if endpoint.webhook is not None:
            await verify(endpoint.webhook, call)
        if endpoint.body is not None:
            call.body = endpoint.body(call)
        if endpoint.audited:
            key = str(getattr(call.body, "key", ""))
            await service.audit.record(call.principal.name, route.name, key, call.body.reason)
        if not endpoint.looks:
            return await route.handler(call)
        async with service.slots.take():
            return await route.handler(call)
