"""Endpoints: mounted routes. Finds the one of a request, reads its body, and decodes body and query."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, get_args
from urllib.parse import parse_qsl

import msgspec

from ..errors import InvalidInput
from .disconnects import ClientGone
from .problems import CSRF, INVALID, METHOD, NOT_FOUND, NOT_JSON, TOO_LARGE, Problem
from .routes import SAFE, Bearer, Call, Route, Webhook
from .security import same

GENERAL_API = "/v1/"  # what is acquired there belongs to the caller; applications acquire for themselves
LARGE_BODY = 256 * 1024  # bytes: decoding more may take milliseconds, in which no lease could be renewed
MAX_DEPTH = 32  # of JSON: a value that people can still read; far from what a decoder's recursion can bear
_JSON, _FORM, _NDJSON = b"application/json", b"application/x-www-form-urlencoded", b"application/x-ndjson"
# One that does not end goes on to the end of the text: else each quote in it would be tried as a beginning.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")


class Endpoint:
    """A route, with what can be prepared before the first request."""

    __slots__ = ("audited", "body", "cap", "holds", "parts", "query", "route", "scope", "takes_slot", "webhook")

    def __init__(self, route: Route, max_body: int) -> None:
        self.route = route
        self.cap = route.cap_within(max_body)
        self.holds = route.path.startswith(GENERAL_API)
        self.parts = route.path.split("/")
        self.scope = route.auth.scope if isinstance(route.auth, Bearer) else None
        self.webhook = route.auth if isinstance(route.auth, Webhook) else None
        self.audited = route.is_admin_action and not route.audits
        self.takes_slot = _takes_slot(route)
        self.body = None if route.body is None else _form(route.body) if route.form else _json(route.body, route.lines)
        self.query = None if route.query is None else _query(route.query)


def _takes_slot(route: Route) -> bool:
    """True for pages and lists; not for health and metrics, nor for what waits for others, nor for streams, which take
    one for each update."""
    waits = route.waits or route.media == "text/event-stream"
    return route.method in SAFE and isinstance(route.auth, Bearer) and route.tag != "service" and not waits


class RouteTable:
    """All endpoints. A path without {parameters} is found by one lookup."""

    def __init__(self, routes: Iterable[Route], max_body: int) -> None:
        self._fixed: dict[str, dict[str, Endpoint]] = {}
        self._with_parameters: list[Endpoint] = []
        for route in routes:
            endpoint = Endpoint(route, max_body)
            if "{" in route.path:
                self._with_parameters.append(endpoint)
            elif self._fixed.setdefault(route.path, {}).setdefault(route.method, endpoint) is not endpoint:
                raise InvalidInput(f"route {route.method} {route.path} is declared twice")

    def find(self, method: str, path: str, call: Call[Any, Any]) -> Endpoint:
        """The endpoint, whose {parameters} are set in the call; raises Problem if there is none."""
        wanted = "GET" if method == "HEAD" else method
        fixed = self._fixed.get(path)
        if fixed is not None and wanted in fixed:
            return fixed[wanted]
        parts = path.split("/")
        methods = set(fixed or ())
        for endpoint in self._with_parameters:
            params = _match(endpoint.parts, parts)
            if params is None:
                continue
            if endpoint.route.method == wanted:
                call.params = params
                return endpoint
            methods.add(endpoint.route.method)
        if not methods:
            raise Problem(NOT_FOUND)
        raise Problem(METHOD, headers=((b"allow", ", ".join(sorted(methods)).encode()),))


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    """The {parameters} of the path; None if it does not match the pattern. A last one that is written {name...} is the
    whole rest of the path, slashes included."""
    last = len(pattern) - 1
    if pattern[last].endswith("...}") and len(parts) > last:
        rest = "/".join(parts[last:])
        before = _match(pattern[:last], parts[:last]) if rest else None
        return None if before is None else {**before, pattern[last][1:-4]: rest}
    if len(pattern) != len(parts):
        return None
    params = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted[:1] == "{" and part:
            params[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return params


# -- bodies and queries


async def read_body(call: Call[Any, Any], cap: int, count: Callable[[int], None] = lambda size: None) -> bytes:
    """The whole body, counted as it streams in; raises Problem if it is too large, or `count` refuses a piece.
    `protocol` bounds the time."""
    length = call.headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length[:20]) > cap:
        raise Problem(TOO_LARGE, f"the body has {int(length[:20])} bytes; the most is {cap}")
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await call.receive()
        if message["type"] != "http.request":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > cap:
            raise Problem(TOO_LARGE, f"the body has more than {cap} bytes")
        count(len(piece))
        if not message.get("more_body", False):
            return b"".join((*pieces, piece)) if pieces else piece
        pieces.append(piece)


def _json(wanted: Any, lines: bool = False) -> Callable[[Call[Any, Any]], Any]:
    """Decodes JSON; with `lines`, NDJSON: `wanted` is a list, and each line is one item."""
    media, decode = _JSON, msgspec.json.Decoder(wanted).decode
    if lines:
        media, decode = _NDJSON, msgspec.json.Decoder(get_args(wanted)[0]).decode_lines

    def read(call: Call[Any, Any]) -> Any:
        if not _has_type(media, call):
            raise Problem(NOT_JSON, f"send JSON, with Content-Type: {media.decode()}")
        raw = call.raw
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _too_deep(raw):
            raise Problem(INVALID, f"the JSON is nested deeper than {MAX_DEPTH}, or its brackets do not match")
        try:
            return decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(INVALID, str(error)) from None

    return read


def _has_type(wanted: bytes, call: Call[Any, Any]) -> bool:
    """True if the Content-Type is this media type, with or without parameters."""
    given = call.headers.get(b"content-type", b"")
    return given == wanted or given.partition(b";")[0].strip().lower() == wanted


def _too_deep(raw: bytes) -> bool:
    brackets = _STRINGS.sub(b"", raw).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        before, brackets = len(brackets), brackets.replace(b"[]", b"")  # each round removes the innermost level
        if not brackets:
            return False
        if len(brackets) == before:  # they do not match: megabytes of them cost one round
            return True
    return True


def _form(wanted: Any) -> Callable[[Call[Any, Any]], Any]:
    def read(call: Call[Any, Any]) -> Any:
        if not _has_type(_FORM, call):
            raise Problem(NOT_JSON, "send a form, with Content-Type: application/x-www-form-urlencoded")
        fields = _pairs(call.raw)
        if not same(fields.pop("csrf", ""), call.csrf):
            raise Problem(CSRF)
        return _converted(fields, wanted)

    return read


def _query(wanted: Any) -> Callable[[bytes], Any]:
    described = msgspec.inspect.type_info(wanted)
    fields = described.fields if isinstance(described, msgspec.inspect.StructType) else ()
    lists = frozenset(each.encode_name for each in fields if isinstance(each.type, msgspec.inspect.ListType))
    return lambda raw: _converted(_pairs(raw, lists), wanted)


def _pairs(raw: bytes, lists: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields by name. Each is given once, and is a text; those of `lists` may be repeated, and are lists."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise Problem(INVALID, "the query or form is not well encoded, or has more than 100 fields") from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise Problem(INVALID, "a field was given twice")
        else:
            fields[name] = value
    return fields


def _converted(fields: dict[str, Any], wanted: Any) -> Any:
    try:
        return msgspec.convert(fields, wanted, strict=False)
    except ValueError as error:  # of msgspec: a bare one for a moment after the year 9999
        raise Problem(INVALID, str(error)) from None
