"""Tokens: a lease as text, with which another process can resume it. A secret: it permits to release the key."""

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
    """The content of a token: stored key, owner, ttl, fence, start on the wall clock, and a claim's fingerprint."""

    key: str
    owner: str
    ttl: float
    fence: int
    since: float
    fingerprint: str = ""


def write_token(token: Token) -> str:
    """The token as text that is safe in URLs, headers and JSON."""
    key, owner, ttl, fence, since, fingerprint = token
    return urlsafe_b64encode(f"{owner}:{fence}:{ttl!r}:{since:.3f}:{fingerprint}:{key}".encode()).decode()


def read_token(text: str) -> Token:
    """Parses a token; raises InvalidInput if the text is not one."""
    try:
        owner, fence, ttl, since, fingerprint, key = urlsafe_b64decode(text).decode().split(":", 5)
        token = Token(key, owner, float(ttl), int(fence), float(since), fingerprint)
        kind, _, name = key.partition("/")
        known = _KIND.fullmatch(kind) and _OWNER.fullmatch(owner)
        if known and MIN_TTL <= token.ttl <= MAX_TTL and math.isfinite(token.since) and stored_key(kind, name):
            return token
    except (ValueError, TypeError):
        pass
    raise InvalidInput(
        "this is not a lease token; give one as lease.token returned it, or as `solely queues take` printed it"
    )
