"""What only ASGI has: cancellation, a client that leaves, messages of other kinds, extensions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import solely
from solely.integrations.asgi import IdempotencyMiddleware
from solely.integrations.idempotency import Rules
from solely.testing import FaultProxy
from tests.client.refusing import AsyncRefusingStore
from tests.http.calling import KEY, call_asgi, guarded, scope_of
from tests.http.service import HEADERS, Service, principal
from tests.servers import Valkey

RULES = Rules(scope=principal)
PAIRS = [*HEADERS.items(), ("Idempotency-Key", KEY)]
BODY = {"type": "http.request", "body": b"{}"}


def middleware(app: Any, once: solely.AsyncClient, **options: Any) -> IdempotencyMiddleware:
    return IdempotencyMiddleware(app, once=once, rules=Rules(scope=principal, **options))


async def test_a_handler_that_is_cancelled_lets_go_and_a_retry_runs(store_url: str) -> None:
    entered = asyncio.Event()

    async def hangs(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await asyncio.sleep(60)

    async with solely.AsyncClient(store_url) as once:
        task = asyncio.ensure_future(call_asgi(middleware(hangs, once), scope_of("POST", "/orders", PAIRS), BODY))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        service = Service()
        again = await call_asgi(middleware(service.asgi, once), scope_of("POST", "/orders", PAIRS), BODY)
    assert again.status == 201
    assert service.runs == ["/orders"]


async def test_a_copy_that_is_cancelled_while_it_waits_harms_nobody() -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    service = Service()

    async def gated(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await gate.wait()
        await service.asgi(scope, receive, send)

    async with solely.AsyncClient("memory://") as once:
        app = middleware(gated, once)
        first, leaving, staying = (
            asyncio.ensure_future(call_asgi(app, scope_of("POST", "/orders", PAIRS), BODY)) for _ in range(3)
        )
        await entered.wait()
        await asyncio.sleep(0.02)
        leaving.cancel()
        gate.set()
        one, two = await asyncio.gather(first, staying)
        with pytest.raises(asyncio.CancelledError):
            await leaving
    assert one.body == two.body
    assert service.runs == ["/orders"]


async def test_a_cancellation_while_the_result_is_published_loses_no_result(valkey: Valkey) -> None:
    """The work is done by then: a retry must not do it again."""
    service = Service()
    with FaultProxy(valkey.host, valkey.port) as proxy:
        async with solely.AsyncClient(proxy.url(valkey.url)) as once:
            pairs = [*HEADERS.items(), ("Idempotency-Key", '"cancelled-publish"')]
            fault = proxy.drop_replies(answering=lambda request: b"you_sent" in request)
            app = middleware(service.asgi, once)
            task = asyncio.ensure_future(call_asgi(app, scope_of("POST", "/orders", pairs), BODY))
            async with asyncio.timeout(100):
                while not fault.hits:
                    await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            again = await call_asgi(app, scope_of("POST", "/orders", pairs), BODY)
    assert again.headers["idempotent-replayed"] == "true"
    assert service.runs == ["/orders"]


async def test_a_client_that_leaves_before_it_said_everything_is_not_served() -> None:
    service = Service()
    async with solely.AsyncClient(store=AsyncRefusingStore()) as once:
        part = {"type": "http.request", "body": b"{", "more_body": True}
        reply = await call_asgi(middleware(service.asgi, once), scope_of("POST", "/orders", PAIRS), part)
    assert reply.status == 0
    assert service.runs == []


async def test_a_body_that_outgrows_the_bound_is_refused_without_a_store_call() -> None:
    service = Service()
    parts = [{"type": "http.request", "body": b"x" * 60, "more_body": True}] * 5
    async with solely.AsyncClient(store=AsyncRefusingStore()) as once:
        app = middleware(service.asgi, once, max_request=100)
        reply = await call_asgi(app, scope_of("POST", "/orders", PAIRS), *parts)
    assert (reply.status, reply.problem) == (413, "body-too-large")
    assert service.runs == []


async def test_a_send_that_fails_after_publishing_does_not_undo_it() -> None:
    """A server may raise OSError when the client has gone."""
    service = Service()

    async def receive() -> Any:
        return BODY

    async def send(message: Any) -> None:
        raise OSError("gone")

    async with solely.AsyncClient("memory://") as once:
        app = middleware(service.asgi, once)
        with pytest.raises(OSError, match="gone"):
            await app(scope_of("POST", "/orders", PAIRS), receive, send)
        again = await call_asgi(app, scope_of("POST", "/orders", PAIRS), BODY)
    assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
    assert service.runs == ["/orders"]


async def test_a_stream_whose_client_left_leaves_a_tombstone() -> None:
    runs = []

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        runs.append(1)
        await send({"type": "http.response.start", "status": 200})  # headers are optional
        await send({"type": "http.response.body", "body": b"begin", "more_body": True})
        await receive()
        assert (await receive())["type"] == "http.disconnect"  # and so it ends, as Starlette's streams do

    async def receive() -> Any:
        return BODY if not told else {"type": "http.disconnect"}

    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    async with solely.AsyncClient("memory://") as once:
        app = middleware(stream, once)
        await app(scope_of("POST", "/orders", PAIRS), receive, send)
        again = await call_asgi(app, scope_of("POST", "/orders", PAIRS), BODY)
    assert (again.status, again.problem) == (410, "not-kept")
    assert runs == [1]


async def test_a_handler_that_says_nothing_lets_go() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        pass

    async with solely.AsyncClient("memory://") as once:
        assert (await call_asgi(middleware(silent, once), scope_of("POST", "/orders", PAIRS), BODY)).status == 0
        again = await call_asgi(middleware(Service().asgi, once), scope_of("POST", "/orders", PAIRS), BODY)
    assert again.status == 201


async def test_what_would_pass_by_unrecorded_is_not_offered() -> None:
    offered: dict[str, Any] = {
        "http.response.pathsend": {},
        "http.response.trailers": {},
        "http.response.early_hint": {},
    }
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["extensions"])
        await Service().asgi(scope, receive, send)

    async with solely.AsyncClient("memory://") as once:
        scope = scope_of("POST", "/orders", PAIRS, extensions=offered)
        await call_asgi(middleware(app, once), scope, BODY)
        await call_asgi(middleware(app, once), scope_of("GET", "/orders", [], extensions=offered), BODY)
    assert seen == [{"http.response.early_hint": {}}, offered]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_protocols_pass(kind: str) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async with solely.AsyncClient(store=AsyncRefusingStore()) as once:
        await middleware(app, once)({"type": kind}, None, None)  # type: ignore[arg-type]
    assert seen == [kind]


async def test_the_mount_point_is_part_of_the_uri_and_of_the_policy() -> None:
    async with solely.AsyncClient("memory://") as once:
        app = middleware(Service().asgi, once)
        for path in ("/v1/orders", "/orders"):  # as servers old and new write it
            reply = await call_asgi(app, scope_of("POST", path, [], root_path="/v1"), BODY)
            page = reply.body.partition(b'"type": "')[2].partition(b"#")[0].decode()
            assert page == "/v1/idempotency-policy"
        assert (await call_asgi(app, scope_of("GET", page, [], root_path="/v1"), BODY)).status == 200
        one = await call_asgi(app, scope_of("POST", "/v1/a%2Fb", PAIRS, raw_path=b"/v1/a%2Fb"), BODY)
        other = await call_asgi(app, scope_of("POST", "/v1/a/b", PAIRS, raw_path=b"/v1/a/b"), BODY)
    assert (one.status, other.status) == (201, 422)


async def test_a_burst_costs_one_execution() -> None:
    async with guarded("asgi", "memory://", RULES) as (post, service, _):
        replies = await asyncio.gather(*(post() for _ in range(200)))
    assert len({reply.body for reply in replies}) == 1
    assert sum("idempotent-replayed" in reply.headers for reply in replies) == 199
    assert service.runs == ["/orders"]
