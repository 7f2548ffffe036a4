"""Receiving: what may be sent, and whether it is well formed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from .problems import CSRF, INVALID, NOT_JSON, TOO_LARGE, Problem
from .routes import Call, Route
from .security import same
from .watching import ClientGone

MAX_DEPTH = 32  # of JSON: a value that people can still read; far from what a decoder's recursion can bear
_JSON, _FORM = b"application/json", b"application/x-www-form-urlencoded"
_TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")


async def read_body(call: Call[Any, Any], cap: int) -> bytes:
    """The whole body, counted as it streams in; a Problem if it is too large. How long it takes, `protocol` bounds."""
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
        if not message.get("more_body", False):
            return b"".join((*pieces, piece)) if pieces else piece
        pieces.append(piece)


def decoders(route: Route) -> tuple[Callable[[Call[Any, Any]], Any] | None, Callable[[bytes], Any] | None]:
    """What turns a call's raw body, and a query string, into what the route declares; None where it takes none."""
    body = None if route.body is None else _form(route.body) if route.form else _json(route.body)
    return body, None if route.query is None else _query(route.query)


def _json(wanted: Any) -> Callable[[Call[Any, Any]], Any]:
    decode = msgspec.json.Decoder(wanted).decode

    def read(call: Call[Any, Any]) -> Any:
        if not _is_of(_JSON, call):
            raise Problem(NOT_JSON, "send JSON, with Content-Type: application/json")
        raw = call.raw
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _too_deep(raw):
            raise Problem(INVALID, f"the JSON is nested deeper than {MAX_DEPTH}, or its brackets do not match")
        try:
            return decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(INVALID, str(error)) from None

    return read


def _is_of(wanted: bytes, call: Call[Any, Any]) -> bool:
    """True if the body says that it is of this media type, with whatever parameters."""
    given = call.headers.get(b"content-type", b"")
    return given == wanted or given.partition(b";")[0].strip().lower() == wanted


def _too_deep(raw: bytes) -> bool:
    brackets = _TEXTS.sub(b"", raw).translate(_ALIKE, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # each round takes the innermost level away
        if not brackets:
            return False
    return True


def _form(wanted: Any) -> Callable[[Call[Any, Any]], Any]:
    def read(call: Call[Any, Any]) -> Any:
        if not _is_of(_FORM, call):
            raise Problem(NOT_JSON, "send a form, with Content-Type: application/x-www-form-urlencoded")
        fields = _pairs(call.raw)
        if not same(fields.pop("csrf", ""), call.csrf):
            raise Problem(CSRF)
        return _converted(fields, wanted)

    return read


def _query(wanted: Any) -> Callable[[bytes], Any]:
    return lambda raw: _converted(_pairs(raw), wanted)


def _pairs(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise Problem(INVALID, "the query or form is not well encoded, or has more than 100 fields") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Problem(INVALID, "a field was given twice")
    return fields


def _converted(fields: dict[str, str], wanted: Any) -> Any:
    try:
        return msgspec.convert(fields, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(INVALID, str(error)) from None
