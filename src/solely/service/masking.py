"""Masking: what is said of a secret without repeating it, nor a telling part of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

MASK = "…"
WHOLE = 4  # characters: a secret that is shorter is masked only in quotes, since it may be a word of any sentence
PART = 8  # characters in a row that a sentence has in common with a secret: by chance it has fewer
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def masked(said: str, secret: Any) -> str:
    """What was said, with a mask in place of every text of the secret, of its parts, and of quotes from it."""
    bare = set(texts_of(secret))
    texts = sorted(bare | {repr(text)[1:-1] for text in bare}, key=len, reverse=True)
    for text in texts:
        if len(text) >= WHOLE:
            said = said.replace(text, MASK)
    said = _QUOTED.sub(lambda quote: _unquoted(quote, texts), said)
    return "".join(_without_parts(said, "\0".join(texts)))


def texts_of(secret: Any) -> Iterator[str]:
    """Every text in the value, however deep; also in JSON, in which environments hold lists and tables."""
    plain = msgspec.to_builtins(secret)
    if isinstance(plain, Mapping):
        plain = list(plain.values())
    if isinstance(plain, list | tuple):
        for each in plain:
            yield from texts_of(each)
    elif isinstance(plain, str) and plain:
        yield plain
        with suppress(msgspec.DecodeError):
            if not isinstance(inner := msgspec.json.decode(plain), str):
                yield from texts_of(inner)


def _unquoted(quote: re.Match[str], texts: list[str]) -> str:
    inside = quote[1] or quote[2] or ""
    return f"'{MASK}'" if inside and any(inside in text for text in texts) else quote[0]


def _without_parts(said: str, texts: str) -> Iterator[str]:
    at = 0
    while at < len(said):
        end = at + PART
        if end > len(said) or said[at:end] not in texts:
            yield said[at]
            at += 1
            continue
        while end < len(said) and said[at : end + 1] in texts:
            end += 1
        yield MASK
        at = end
