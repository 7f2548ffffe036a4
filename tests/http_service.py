"""Real services on loopback, for the http:// store: each under a path of its own, on one server in a thread.

They heed what an injected clock says (`Solely-Now`), which a service outside of tests never does.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from contextvars import ContextVar
from typing import Any, Self

import uvicorn

from solely.service.app import AsgiApp
from solely.service.mount import all_routes
from solely.service.serve import config
from solely.service.service import Service
from solely.service.settings import Settings
from solely.stores import open_async_store
from tests.servers import listener

END = 10.0  # seconds for a server to begin or end: it takes some tenths
_told: ContextVar[float | None] = ContextVar("told", default=None)


def _now() -> float:
    told = _told.get()
    return time.time() if told is None else told


class HttpServices:
    """An ASGI application: the first part of the path names a service, which is opened when first called."""

    def __init__(self) -> None:
        self.service = Service(Settings(url="memory://", max_ttl=366 * 86_400.0))  # whose settings the connections have
        self._apps: dict[str, AsgiApp] = {}
        self._opening: dict[str, asyncio.Task[AsgiApp]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening = listener(backlog=1024)
        # asyncio does so itself only where it is told the protocol; and without it every answer takes 40 ms.
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = uvicorn.Server(config(self.service.settings, self))
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)

    def url(self) -> str:
        """The URL of a service on an empty store."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/{secrets.token_hex(8)}"

    def close(self, url: str) -> None:
        """Ends the service of a URL, which nobody needs any more: hundreds that go on would slow down each other."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._close(url.rpartition("/")[2]), self._loop).result(END)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._listening])

    def __enter__(self) -> Self:
        self._thread.start()
        ends = time.monotonic() + END
        while not self._server.started:
            assert self._thread.is_alive()
            assert time.monotonic() < ends
            time.sleep(0.01)
        return self

    def __exit__(self, *how: object) -> None:
        self._server.should_exit = True
        self._thread.join(END)
        self._listening.close()
        assert not self._thread.is_alive()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        _, name, rest = scope["path"].split("/", 2)
        now = dict(scope["headers"]).get(b"solely-now")
        _told.set(None if now is None else float(now))
        app = await self._app(name)
        await app({**scope, "path": f"/{rest}"}, receive, send)

    async def _app(self, name: str) -> AsgiApp:
        if name not in self._opening:
            self._opening[name] = asyncio.create_task(self._open(name))
        return await asyncio.shield(self._opening[name])

    async def _open(self, name: str) -> AsgiApp:
        open_async_store(f"memory://{name}", clock=_now)
        app = AsgiApp(Service(Settings(url=f"memory://{name}", max_ttl=366 * 86_400.0)), all_routes())
        await app.service.open()
        self._apps[name] = app
        return app

    async def _close(self, name: str) -> None:
        if name in self._opening:
            await self._opening.pop(name)
            await self._apps.pop(name).service.close()

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for app in self._apps.values():
            await app.service.close()
        await send({"type": "lifespan.shutdown.complete"})
