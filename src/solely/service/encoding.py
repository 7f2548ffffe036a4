"""Encodes responses. Text that callers stored may hold lone surrogates, which UTF-8 cannot encode: no response fails on
them."""

from __future__ import annotations

import json

import msgspec

_encode = msgspec.json.Encoder().encode


def json_of(answer: object) -> bytes:
    """The answer as JSON. A lone surrogate is written as its escape sequence, as in the request that stored it."""
    try:
        return _encode(answer)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(answer, str_keys=True), separators=(",", ":")).encode()


def sendable(text: str) -> str:
    """The text, with a question mark in place of each lone surrogate."""
    return text.encode(errors="replace").decode()
