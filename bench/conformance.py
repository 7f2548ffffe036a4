"""python -m bench.conformance: runs the HTTP idempotency conformance suite on our middleware and on public peers.

One service (tests/http/service.py) runs behind uvicorn with each middleware in turn. Every peer is configured to come
as close to the checks as its options allow: key required, scope by Authorization, the replay header's name, sizes; and
on Valkey if it supports Redis.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import fastapi_idempotency
import fastapi_idempotency_key
import idemkit
from fastapi_idempotency_key.backends.redis import RedisBackend as KeyBackend
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend as HeaderBackend
from redis.asyncio import Redis

import solely
from solely.integrations.asgi import IdempotencyMiddleware, Rules
from solely.testing.http_idempotency import CheckOutcome, run, table
from tests.http.service import MAX_REQUEST, Service, principal, target
from tests.http.serving import uvicorn_server
from tests.servers import Valkey

MARK = "Idempotent-Replayed"
App = Any


@asynccontextmanager
async def ours(app: App, url: str) -> AsyncIterator[App]:
    async with solely.AsyncClient(url) as once:
        yield IdempotencyMiddleware(app, once=once, rules=Rules(scope=principal, max_request=MAX_REQUEST))


@asynccontextmanager
async def asgi_idempotency_header(app: App, url: str) -> AsyncIterator[App]:
    async with Redis.from_url(url) as redis:
        yield IdempotencyHeaderMiddleware(app, backend=HeaderBackend(redis), replay_header_key=MARK)


@asynccontextmanager
async def fastapi_idempotency_key_(app: App, url: str) -> AsyncIterator[App]:
    async with Redis.from_url(url) as redis:
        backend = KeyBackend(redis=redis)
        yield fastapi_idempotency_key.IdempotencyMiddleware(
            app, backend=backend, replay_header_name=MARK, required=True, timeout=5.0
        )


@asynccontextmanager
async def fastapi_idempotency_(app: App, url: str) -> AsyncIterator[App]:
    yield fastapi_idempotency.IdempotencyMiddleware(  # in memory: its only other store is Tortoise ORM
        app,
        max_request_body_bytes=MAX_REQUEST,
        max_response_body_bytes=256 * 1024,
        scope=lambda request: request.headers.get("authorization", ""),
    )


@asynccontextmanager
async def idemkit_(app: App, url: str) -> AsyncIterator[App]:
    async with Redis.from_url(url) as redis:
        backend = idemkit.RedisBackend(redis)
        config = idemkit.HttpConfig(
            scope=lambda request: request.headers.get("authorization", ""),
            scope_mode="strict",
            require_key_for_mutations=True,
            max_request_body_bytes=MAX_REQUEST,
            max_body_bytes=256 * 1024,
            wait_timeout_seconds=5.0,
        )
        try:
            yield idemkit.IdempotencyMiddleware(app, backend=backend, config=config)
        finally:
            await backend.aclose()


PEERS: dict[str, Callable[[App, str], AbstractAsyncContextManager[App]]] = {
    "solely": ours,
    "asgi-idempotency-header": asgi_idempotency_header,
    "fastapi-idempotency-key": fastapi_idempotency_key_,
    "fastapi-idempotency": fastapi_idempotency_,
    "idemkit": idemkit_,
}


def main() -> int:
    """Prints the table; returns 0 if our middleware passed every check."""
    logging.disable(logging.CRITICAL)  # handlers fail on purpose
    warnings.simplefilter("ignore")  # of the peers
    results = {}
    for name, opened in PEERS.items():
        print(name, file=sys.stderr, flush=True)
        with Valkey() as server, uvicorn_server(partial(opened, Service().asgi, server.url)) as address:
            results[f"{name} {_version(name)}"] = run(target(address))
    print(table(results))
    return int(any(result.outcome != CheckOutcome.PASSED for result in results[f"solely {solely.__version__}"]))


def _version(name: str) -> str:
    return solely.__version__ if name == "solely" else version(name)


if __name__ == "__main__":
    sys.exit(main())
