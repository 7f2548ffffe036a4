"""Text on its way out, whatever others left in it: half a character (a lone surrogate) breaks no answer and no page."""

from __future__ import annotations

import json

import msgspec

_encode = msgspec.json.Encoder().encode


def json_of(answer: object) -> bytes:
    """The answer as JSON. Half a character stays one, as the escape \\\\udXXX that it was written as."""
    try:
        return _encode(answer)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(answer, str_keys=True), separators=(",", ":")).encode()


def sendable(text: str) -> str:
    """The text, with a question mark in place of half a character."""
    return text.encode(errors="replace").decode()
