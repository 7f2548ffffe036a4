"""Real servers on loopback: uvicorn for ASGI, waitress for WSGI, each on a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any

import uvicorn
import waitress

import solely
from solely.integrations import asgi, wsgi
from solely.integrations.idempotency import Rules
from tests.http.service import Service
from tests.servers import listener

_END = 10.0  # seconds for a server to end: it takes some milliseconds
_THREADS = 16  # of waitress: more than the copies that wait at the same time


@contextmanager
def uvicorn_server(open_app: Callable[[], AbstractAsyncContextManager[Any]]) -> Iterator[str]:
    """The address of an ASGI application, which is opened and closed on the server's loop."""
    server: list[uvicorn.Server] = []
    listening = listener()

    async def serve() -> None:
        async with open_app() as app:
            config = uvicorn.Config(app, lifespan="off", log_config=None, loop="asyncio", timeout_graceful_shutdown=2)
            server.append(uvicorn.Server(config))
            await server[0].serve(sockets=[listening])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        while thread.is_alive() and not server:
            thread.join(0.01)
        if server:
            server[0].should_exit = True
        thread.join(_END)
        listening.close()
        assert not thread.is_alive()


@contextmanager
def asgi_server(service: Service, rules: Rules, url: str, **options: Any) -> Iterator[str]:
    """The address of the service behind uvicorn, with a client of its own."""

    @asynccontextmanager
    async def open_app() -> AsyncIterator[Any]:
        async with solely.AsyncClient(url, **options) as once:
            yield asgi.IdempotencyMiddleware(service.asgi, once=once, rules=rules)

    with uvicorn_server(open_app) as address:
        yield address


@contextmanager
def wsgi_server(service: Service, rules: Rules, url: str, **options: Any) -> Iterator[str]:
    """The address of the service behind waitress."""
    with solely.Client(url, **options) as once:
        app = wsgi.IdempotencyMiddleware(service.wsgi, once=once, rules=rules)
        sockets: dict[int, Any] = {}
        server = waitress.create_server(app, map=sockets, listen="127.0.0.1:0", threads=_THREADS, ident="")
        thread = threading.Thread(target=server.run)
        thread.start()

        def end() -> None:
            for channel in list(sockets.values()):
                channel.close()

        try:
            yield f"http://127.0.0.1:{server.effective_port}"
        finally:
            with suppress(OSError):  # the server's own thread, if awake, may run `end` before it is woken for that
                server.trigger.pull_trigger(end)
            thread.join(_END)
            server.task_dispatcher.shutdown()
            assert not thread.is_alive()


SERVERS: dict[str, Callable[..., Any]] = {"asgi": asgi_server, "wsgi": wsgi_server}
