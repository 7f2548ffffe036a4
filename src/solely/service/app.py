"""The app: routes as ASGI, in one pass per request and in this order: host and origin, who asks, what may be sent and
how long that may take, is it well formed, the handler, the answer, what is counted and logged."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote

import msgspec
import structlog
from starlette.responses import RedirectResponse, Response

from ..errors import InvalidInput, SolelyError
from . import problems
from .problems import Problem, problem_of
from .receiving import decoders, read_body
from .routes import Bearer, Call, ClientGone, Public, Reply, Route, Webhook
from .security import LOCAL, NOBODY, WEBHOOK, Principal, Scope, same
from .service import Service

log = structlog.get_logger("solely.http")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Header = tuple[bytes, bytes]

SLOW = 1.0  # seconds of work beyond its wait: whoever looks for the reason of a delay wants these
LOGIN_PATH = "/login"
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_ONCE = frozenset(  # headers that say something about the request: two of one would say two things
    (b"host", b"origin", b"authorization", b"content-type", b"content-length", b"cookie", b"x-csrf-token")
)
# A JSON answer is for programs: nothing in it is to be shown, run, framed or kept by a browser.
GUARDS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Endpoint:
    """A route, with what can be prepared before the first request."""

    __slots__ = ("body", "counted", "name", "parts", "query", "route", "scope")

    def __init__(self, route: Route) -> None:
        _check(route)
        self.route = route
        self.name = f"{route.method} {route.path}"
        self.parts = route.path.split("/")
        self.scope = route.auth.scope if isinstance(route.auth, Bearer) else None
        self.body, self.query = decoders(route)


def _check(route: Route) -> None:
    """A route that says too little is not mounted."""
    where = f"route {route.method} {route.path}"
    if type(route.auth) not in (Public, Bearer, Webhook):
        raise InvalidInput(f"{where} declares no scheme; give it PUBLIC, READ, WRITE, ADMIN or a Webhook")
    if not inspect.iscoroutinefunction(route.handler):
        raise InvalidInput(f"{where}: its handler must be a coroutine function")
    admin = isinstance(route.auth, Bearer) and route.auth.scope is Scope.ADMIN
    if admin and route.method not in _SAFE and "reason" not in _fields(route.body):
        raise InvalidInput(f"{where} is an admin action: its body needs a `reason`, which the audit log keeps")


def _fields(body: Any) -> list[str]:
    return [field.name for field in msgspec.structs.fields(body)] if body is not None else []


class App:
    """The service as an ASGI application."""

    def __init__(self, service: Service, routes: Iterable[Route]) -> None:
        self.service = service
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Endpoint]] = {}
        self._open: dict[str, list[Endpoint]] = {}  # those with a {part} in the path, by method
        service.routes = self.routes
        for route in self.routes:
            endpoint = Endpoint(route)
            if "{" in route.path:
                self._open.setdefault(route.method, []).append(endpoint)
            elif self._fixed.setdefault(route.path, {}).setdefault(route.method, endpoint) is not endpoint:
                raise InvalidInput(f"{endpoint.name} is declared twice")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.service.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, the server must hear of it
            log.error("not_started", error=str(error))
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.close()
        await send({"type": "lifespan.shutdown.complete"})

    # -- one request

    async def _http(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        call: Call[Any, Any] = Call(self.service, scope, receive)
        method, name = scope["method"], "unmatched"
        try:
            call.headers = headers = _headers(scope["headers"], self.service.settings.max_header)
            self._admit(headers)
            endpoint = self._find(method, scope["path"], call)
            name = endpoint.route.path
            call.route = endpoint.route
            answer = await self._perform(endpoint, call)
            if isinstance(answer, Response):
                status = await _respond(answer, scope, receive, send)
            else:
                status = await _send(send, endpoint.route, answer)
        except ClientGone:
            status = 499  # as nginx counts callers that hung up
        except Problem as refusal:
            status = await _refuse(send, refusal)
        except SolelyError as error:
            status = await _refuse(send, _told(error, name))
        except Exception:
            log.exception("failed", route=name)
            status = await _refuse(send, Problem(problems.BROKEN))
        self._done(method, name, status, time.perf_counter() - started)

    def _done(self, method: str, name: str, status: int, seconds: float) -> None:
        self.service.metrics.answered(method if name != "unmatched" else "any", name, status, seconds)
        if self.service.settings.access_log:
            log.info("request", method=method, route=name, status=status, seconds=round(seconds, 6))

    def _admit(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"")
        if not self.service.hosts.knows(host):
            raise Problem(
                problems.UNKNOWN_HOST if host else problems.INVALID, "" if host else "the Host header is missing"
            )
        origin = headers.get(b"origin")
        if origin is not None and not self.service.hosts.same_site(origin, host):
            raise Problem(problems.OTHER_ORIGIN)

    def _find(self, method: str, path: str, call: Call[Any, Any]) -> Endpoint:
        wanted = "GET" if method == "HEAD" else method
        fixed = self._fixed.get(path)
        if fixed is not None and wanted in fixed:
            return fixed[wanted]
        parts = path.split("/")
        for endpoint in self._open.get(wanted, ()):
            params = _match(endpoint.parts, parts)
            if params is not None:
                call.params = params
                return endpoint
        others = {*(fixed or ()), *(m for m, each in self._open.items() for e in each if _match(e.parts, parts))}
        if not others:
            raise Problem(problems.NOT_FOUND)
        raise Problem(problems.METHOD, headers=((b"allow", ", ".join(sorted(others)).encode()),))

    async def _perform(self, endpoint: Endpoint, call: Call[Any, Any]) -> object:
        route, service = endpoint.route, self.service
        if endpoint.scope is not None:
            principal = self._identify(call)
            if principal is None:
                return _unknown(endpoint.route, call)
            if principal.scope < endpoint.scope:
                raise Problem(problems.SCOPE, f"this needs the scope {endpoint.scope.name.lower()}")
            call.principal = principal
        else:
            call.principal = NOBODY
        if route.grants and service.stopping.is_set():
            raise Problem(problems.STOPPING)
        if endpoint.query is not None:
            call.query = endpoint.query(call.scope["query_string"])
        if endpoint.body is not None or type(route.auth) is Webhook:
            call.raw = await read_body(call, min(route.cap, service.settings.max_body))
        if type(route.auth) is Webhook:
            await _verify(route.auth, call)
        if endpoint.body is not None:
            call.body = endpoint.body(call)
        if endpoint.scope is Scope.ADMIN and route.method not in _SAFE:
            await service.audit.record(
                call.principal.name, route.name, str(getattr(call.body, "key", "")), call.body.reason
            )
        return await route.handler(call)

    def _identify(self, call: Call[Any, Any]) -> Principal | None:
        """Who asks; None if that cannot be told. A session must show with every write that the page was ours."""
        service, headers = self.service, call.headers
        if not service.tokens:
            return LOCAL
        authorization = headers.get(b"authorization")
        if authorization is not None:
            return service.tokens.bearer(authorization)
        call.cookie = _session(headers.get(b"cookie", b""), service.sessions.COOKIE)
        principal = service.sessions.whose(call.cookie) if call.cookie else None
        by_script = principal is not None and call.route.method not in _SAFE and not call.route.form
        if by_script and not same(headers.get(b"x-csrf-token", b""), call.csrf):
            raise Problem(problems.CSRF)
        return principal


def _unknown(route: Route, call: Call[Any, Any]) -> Response:
    if isinstance(route.auth, Bearer) and route.auth.page and route.method in _SAFE:
        query = call.scope["query_string"].decode("latin-1")
        here = quote(call.scope["path"] + (f"?{query}" if query else ""), safe="")
        return RedirectResponse(f"{LOGIN_PATH}?next={here}", 303)
    raise Problem(problems.NO_TOKEN, headers=((b"www-authenticate", b'Bearer realm="solely"'),))


async def _verify(auth: Webhook, call: Call[Any, Any]) -> None:
    verdict = auth.verify(call)
    if not (verdict if isinstance(verdict, bool) else await verdict):
        raise Problem(problems.NO_TOKEN, f"this needs {auth.how}")
    call.principal = WEBHOOK


def _headers(pairs: Iterable[Header], most: int) -> dict[bytes, bytes]:
    """The headers that matter here; a Problem if one of them comes twice, or if all are too large."""
    found: dict[bytes, bytes] = {}
    size = 0
    for name, value in pairs:
        size += len(name) + len(value)
        if name in _ONCE:
            if name in found:
                raise Problem(problems.INVALID, f"the header {name.decode()} was sent twice")
            found[name] = value
    if size > most:
        raise Problem(problems.HEADERS_TOO_LARGE, f"the headers have {size} bytes; the most is {most}")
    return found


def _session(cookies: bytes, name: str) -> str:
    try:
        found = SimpleCookie(cookies.decode("latin-1")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    """The {parts} of the path, if it is of this pattern."""
    if len(pattern) != len(parts):
        return None
    params = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted[:1] == "{" and part:
            params[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return params


# -- answers


async def _send(send: Send, route: Route, answer: object) -> int:
    status, headers = route.status, GUARDS
    if type(answer) is Reply:
        status, headers, answer = answer.status, (*GUARDS, *answer.headers), answer.body
    if answer is None:
        await _write(send, 204 if status == 200 else status, headers, b"", b"")
        return 204 if status == 200 else status
    body = answer if isinstance(answer, bytes) else _encode(answer)
    await _write(send, status, headers, body, route.media.encode())
    return status


def _told(error: SolelyError, route: str) -> Problem:
    """The error as a problem; what the caller is not told is logged."""
    problem = problem_of(error)
    if problem.kind.status >= 500:
        log.warning("refused", route=route, problem=problem.kind.name, error=str(error))
    return problem


async def _refuse(send: Send, problem: Problem) -> int:
    body = _encode(problem.document)
    await _write(send, problem.kind.status, (*GUARDS, *problem.headers), body, b"application/problem+json")
    return problem.kind.status


async def _write(send: Send, status: int, headers: tuple[Header, ...], body: bytes, media: bytes) -> None:
    own = [(b"content-type", media), (b"content-length", b"%d" % len(body))] if media else []
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def _respond(response: Response, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> int:
    """Sends a Starlette response (a page, a stream), with those of our headers that it does not set itself."""
    for name, value in GUARDS:
        response.headers.setdefault(name.decode(), value.decode())
    await response(scope, receive, send)
    return response.status_code
