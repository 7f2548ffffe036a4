"""Checks where a request comes from, and identifies its caller."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse

from ..holder import OnBehalf
from . import problems
from .problems import Problem
from .responses import Header
from .routes import AUTHENTICATE, SAFE, Bearer, Call, Route, Webhook
from .security import LOCAL, NOBODY, WEBHOOK, Principal, Scope, host_name, same
from .sessions import Sessions
from .visibility import see_as

LOGIN_PATH = "/login"
_HOLDER = b"solely-holder"  # the header in which a caller says who it is: `web-3 pid 4711`, or any name
_DECLARED = re.compile(r"([^\x00-\x1f\x7f-\x9f]{1,64}?)(?: pid ([1-9][0-9]{0,9}))?")
_COOKIE = re.compile(rb"(?:^|;)[ \t]*%b=([^;]*)" % Sessions.COOKIE.encode())
_CALLERS = 1_000  # callers whose declared names are cached
_SINGLE = frozenset(  # headers that must not be repeated: two values would contradict each other
    (b"host", b"origin", b"authorization", b"content-type", b"content-length", b"cookie", b"x-csrf-token")
)


def read_headers(pairs: Collection[Header], most: int) -> dict[bytes, bytes]:
    """The headers; raises Problem if one that must not be repeated comes twice, or if all together are too large."""
    found = dict(pairs)
    size = sum(map(len, found)) + sum(map(len, found.values()))
    if len(found) != len(pairs):
        size = sum(len(name) + len(value) for name, value in pairs)
        _check_repeated(pairs)
    if size > most:
        raise Problem(problems.HEADERS_TOO_LARGE, f"the headers have {size} bytes; the most is {most}")
    return found


def _check_repeated(pairs: Iterable[Header]) -> None:
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in _SINGLE and name in seen:
            raise Problem(problems.INVALID, f"the header {name.decode()} was sent twice")
        seen.add(name)


def check_origin(call: Call[Any, Any]) -> None:
    """Raises Problem if the request was meant for another host, or if a page of another site sent it through a browser.
    On loopback too, since pages of any site can reach that."""
    hosts, host = call.service.hosts, call.headers.get(b"host", b"")
    if not host:
        raise Problem(problems.INVALID, "the Host header is missing")
    if not hosts.knows(host):
        if not host_name(host):
            raise Problem(problems.INVALID, "the Host header must be a name or an address, and may have a port")
        raise Problem(problems.UNKNOWN_HOST)
    origin = call.headers.get(b"origin")
    if origin is not None and not hosts.same_site(origin, host):
        raise Problem(problems.OTHER_ORIGIN)


def authenticate(call: Call[Any, Any], scope: Scope | None) -> RedirectResponse | None:
    """Identifies the caller; raises Problem if unknown or not permitted. A page redirects unknown callers to the login,
    which is then returned."""
    if scope is None:
        call.principal = NOBODY
        see_as(None)
        return None
    principal = _principal(call)
    if principal is None:
        return _unknown(call.route, call)
    _keep_connection(call, principal)
    if principal.scope < scope:
        raise Problem(problems.SCOPE, f"this needs the scope {scope.name.lower()}")
    call.principal = principal
    see_as(call.service.hidden_from(principal))
    return None


def _keep_connection(call: Call[Any, Any], principal: Principal) -> None:
    """Marks the connection as authenticated; raises Problem if there are too many of them."""
    mark_authenticated = call.scope.get(AUTHENTICATE)
    if mark_authenticated is not None:
        mark_authenticated(principal)


async def check_session(call: Call[Any, Any]) -> RedirectResponse | None:
    """Like `authenticate`, for a caller that has a session: it is unknown after a logout. Raises StoreError if the
    store does not answer: no session is trusted without it."""
    return _unknown(call.route, call) if await call.service.logouts.has(call.cookie) else None


def _principal(call: Call[Any, Any]) -> Principal | None:
    """The caller; None if unknown. A session must send the CSRF token with every write."""
    service, headers, route = call.service, call.headers, call.route
    if not service.tokens:
        return LOCAL
    authorization = headers.get(b"authorization")
    if authorization is not None:
        return service.tokens.bearer(authorization)
    call.cookie = _session(headers.get(b"cookie", b""))
    principal = service.sessions.whose(call.cookie) if call.cookie else None
    by_script = principal is not None and route.method not in SAFE and not route.form
    if by_script and not same(headers.get(b"x-csrf-token", b""), call.csrf):
        raise Problem(problems.CSRF)
    return principal


def _session(cookies: bytes) -> str:
    """The value of our cookie, the last one if there are several. Only that is read: `SimpleCookie` takes some 100 ms
    for the thousands of others that a stranger can send."""
    found = _COOKIE.findall(cookies)
    return found[-1].strip().strip(b'"').decode("latin-1") if found else ""


def _unknown(route: Route, call: Call[Any, Any]) -> RedirectResponse:
    if isinstance(route.auth, Bearer) and route.auth.page and route.method in SAFE:
        query = call.scope["query_string"].decode("latin-1")
        here = quote(call.scope["path"] + (f"?{query}" if query else ""), safe="")
        return RedirectResponse(f"{LOGIN_PATH}?next={here}", 303)
    raise Problem(problems.NO_TOKEN, headers=((b"www-authenticate", b'Bearer realm="solely"'),))


def check_plausible(auth: Webhook, call: Call[Any, Any]) -> None:
    """Raises Problem, before the body is read, if the headers alone say that the route's check will fail."""
    if not auth.plausible(call):
        raise Problem(problems.NO_TOKEN, f"this needs {auth.how}")


async def verify(auth: Webhook, call: Call[Any, Any]) -> None:
    """Raises Problem unless the route's own check permits the request."""
    verdict = auth.verify(call)
    if not (verdict if isinstance(verdict, bool) else await verdict):
        raise Problem(problems.NO_TOKEN, f"this needs {auth.how}")
    _keep_connection(call, WEBHOOK)
    call.principal = WEBHOOK


def caller_of(call: Call[Any, Any], holds: bool) -> OnBehalf:
    """The caller, as it is stored with what it acquires (if it `holds` that itself) and in the history; raises Problem
    if the name that it declares is invalid."""
    name = "" if call.principal is LOCAL else call.principal.name
    return _caller(name, call.headers.get(_HOLDER, b""), call.address, holds)


@lru_cache(_CALLERS)
def _caller(name: str, declared: bytes, address: str, holds: bool) -> OnBehalf:
    given = _DECLARED.fullmatch(declared.decode(errors="replace").strip()) if declared else None
    if declared and given is None:
        raise Problem(
            problems.INVALID,
            "Solely-Holder must be a name of 1 to 64 characters, and may end with ` pid ` and a number",
        )
    host, pid = given.groups() if given is not None else ("", None)
    return OnBehalf(name, host, int(pid or 0), address or "an unknown address", holds)
