"""Tokens: a lease in a text, with which another process can go on with it. A secret: who has it can let go."""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from ..errors import InvalidInput
from ..rules import MAX_TTL, MIN_TTL, stored_key

_OWNER = re.compile(r"[!-9;-~]{1,64}")
_KIND = re.compile(r"[a-z]{1,16}")


class Token(NamedTuple):
    """What a token says: the stored key, who has it, for how long at a time, and since when on the wall clock; and of a
    claim what payload it was won for."""

    key: str
    owner: str
    ttl: float
    fence: int
    since: float
    fingerprint: str = ""


def write_token(token: Token) -> str:
    """The token as text for URLs, headers and JSON."""
    key, owner, ttl, fence, since, print = token
    return urlsafe_b64encode(f"{owner}:{fence}:{ttl!r}:{since:.3f}:{print}:{key}".encode()).decode()


def read_token(text: str) -> Token:
    """What the text says; InvalidInput if it is no token."""
    try:
        owner, fence, ttl, since, print, key = urlsafe_b64decode(text).decode().split(":", 5)
        token = Token(key, owner, float(ttl), int(fence), float(since), print)
        kind, _, name = key.partition("/")
        known = _KIND.fullmatch(kind) and _OWNER.fullmatch(owner)
        if known and MIN_TTL <= token.ttl <= MAX_TTL and math.isfinite(token.since) and stored_key(kind, name):
            return token
    except (ValueError, TypeError):
        pass
    raise InvalidInput("this is not a lease token; give what lease.token returned")
