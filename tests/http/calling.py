"""The middleware called directly, as ASGI or as WSGI, without a server: so that a test can say when what happens."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol
from wsgiref.validate import validator

import solely
from solely.integrations import asgi, wsgi
from solely.integrations.idempotency import Rules
from tests.client.modes import in_thread
from tests.http.service import HEADERS, Service

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'


class Reply(NamedTuple):
    """What was answered; header names in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> str:
        """The name of the problem, if it is one."""
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        assert document["title"]
        assert document["detail"]
        return str(document["type"]).removeprefix("/idempotency-policy#")


class Post(Protocol):
    """Sends a POST, awaited in both kinds."""

    async def __call__(
        self,
        path: str = "/orders",
        body: bytes | None = b"{}",
        *,
        key: str | None = KEY,
        headers: Mapping[str, str] = HEADERS,
        method: str = "POST",
    ) -> Reply: ...


def scope_of(method: str, path: str, headers: Iterable[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """An ASGI scope."""
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers]
    bare, _, query = path.partition("?")
    plain = {"type": "http", "method": method, "path": bare, "query_string": query.encode(), "headers": pairs}
    return {**plain, **more}


def environ_of(method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes, **more: Any) -> dict[str, Any]:
    """A WSGI environ."""
    bare, _, query = path.partition("?")
    plain = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": bare,
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    return {**plain, **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers}, **more}


async def call_asgi(app: asgi.App, scope: dict[str, Any], *messages: dict[str, Any]) -> Reply:
    """The whole answer to a request of those messages; after them the client is gone."""
    said: list[Any] = []
    unread = list(messages)

    async def receive() -> Any:
        await asyncio.sleep(0)
        return unread.pop(0) if unread else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        said.append(message)

    await app(scope, receive, send)
    if not said:
        return Reply(0, {}, b"")
    assert [message["type"] for message in said] == ["http.response.start"] + ["http.response.body"] * (len(said) - 1)
    assert [message.get("more_body", False) for message in said[1:]] == [True] * (len(said) - 2) + [False]
    assert all(name == name.lower() for name, _ in said[0]["headers"])
    headers = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return Reply(said[0]["status"], headers, b"".join(message.get("body", b"") for message in said[1:]))


def call_wsgi(app: wsgi.App, environ: dict[str, Any]) -> Reply:
    """The whole answer, given and taken as the letter of WSGI wants it."""
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started.append((status, headers))
        return lambda text: None

    result: Any = validator(app)(environ, start_response)
    try:
        body = b"".join(result)
    finally:
        result.close()
    [(status, headers)] = started
    return Reply(int(status[:3]), {name.lower(): value for name, value in headers}, body)


class Guarded(NamedTuple):
    """A service behind the middleware, and the client that it stands on."""

    post: Post
    service: Service
    once: Any


@asynccontextmanager
async def guarded(
    kind: str, url: str | None, rules: Rules, service: Service | None = None, **options: Any
) -> AsyncIterator[Guarded]:
    """The service behind the middleware of that kind."""
    service = service or Service()
    opened = solely.AsyncClient(url, **options) if kind == "asgi" else solely.Client(url, **options)
    send = _asgi_sender(opened, service, rules) if kind == "asgi" else _wsgi_sender(opened, service, rules)

    async def post(
        path: str = "/orders",
        body: bytes | None = b"{}",
        *,
        key: str | None = KEY,
        headers: Mapping[str, str] = HEADERS,
        method: str = "POST",
    ) -> Reply:
        pairs = [*headers.items(), *([("Idempotency-Key", key)] if key is not None else [])]
        reply: Reply = await send(method, path, pairs, body or b"")
        return reply

    try:
        yield Guarded(post, service, opened)
    finally:
        closing = opened.close()
        if closing is not None:
            await closing


def _asgi_sender(once: Any, service: Service, rules: Rules) -> Callable[..., Any]:
    app = asgi.IdempotencyMiddleware(service.asgi, once=once, rules=rules)

    async def send(method: str, path: str, pairs: list[tuple[str, str]], body: bytes) -> Reply:
        half = len(body) // 2
        first = {"type": "http.request", "body": body[:half], "more_body": True}
        return await call_asgi(app, scope_of(method, path, pairs), first, {"type": "http.request", "body": body[half:]})

    return send


def _wsgi_sender(once: Any, service: Service, rules: Rules) -> Callable[..., Any]:
    app = wsgi.IdempotencyMiddleware(service.wsgi, once=once, rules=rules)

    async def send(method: str, path: str, pairs: list[tuple[str, str]], body: bytes) -> Reply:
        reply: Reply = await in_thread(call_wsgi, app, environ_of(method, path, pairs, body))
        return reply

    return send
