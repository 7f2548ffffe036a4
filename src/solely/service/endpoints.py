"""Endpoints: routes as they are mounted, and how a path finds its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import InvalidInput
from . import problems
from .problems import Problem
from .receiving import decoders
from .routes import SAFE, Bearer, Call, Route, Webhook


class Endpoint:
    """A route, with what can be prepared before the first request."""

    __slots__ = ("audited", "body", "looks", "parts", "query", "route", "scope", "webhook")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.parts = route.path.split("/")
        self.scope = route.auth.scope if isinstance(route.auth, Bearer) else None
        self.webhook = route.auth if isinstance(route.auth, Webhook) else None
        self.audited = route.is_admin_action
        self.looks = _only_looks(route)
        self.body, self.query = decoders(route)


def _only_looks(route: Route) -> bool:
    """True for pages and lists; not for what machines watch the service by, nor for what is followed."""
    followed = route.media == "text/event-stream"
    return route.method in SAFE and isinstance(route.auth, Bearer) and route.tag != "service" and not followed


class Table:
    """All endpoints. A path without a {part} is found by one look."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[str, dict[str, Endpoint]] = {}
        self._open: list[Endpoint] = []
        for route in routes:
            endpoint = Endpoint(route)
            if "{" in route.path:
                self._open.append(endpoint)
            elif self._fixed.setdefault(route.path, {}).setdefault(route.method, endpoint) is not endpoint:
                raise InvalidInput(f"route {route.method} {route.path} is declared twice")

    def find(self, method: str, path: str, call: Call[Any, Any]) -> Endpoint:
        """The endpoint, whose {parts} are put into the call; a Problem if there is none."""
        wanted = "GET" if method == "HEAD" else method
        fixed = self._fixed.get(path)
        if fixed is not None and wanted in fixed:
            return fixed[wanted]
        parts = path.split("/")
        methods = set(fixed or ())
        for endpoint in self._open:
            params = _match(endpoint.parts, parts)
            if params is None:
                continue
            if endpoint.route.method == wanted:
                call.params = params
                return endpoint
            methods.add(endpoint.route.method)
        if not methods:
            raise Problem(problems.NOT_FOUND)
        raise Problem(problems.METHOD, headers=((b"allow", ", ".join(sorted(methods)).encode()),))


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
