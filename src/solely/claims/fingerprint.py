"""Fingerprints: a short digest of the request, so that one key cannot be used for two different requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidInput

_DIGEST_BYTES = 16  # 128 bits: two payloads never have the same digest by chance
_KEY_BYTES = 64  # the longest key of BLAKE2b; a longer secret is hashed first

_to_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


class Fingerprint:
    """Compares the payloads of a claim. `of(key)` is the stored digest, keyed by the secret and by the claim's key, so
    that it does not reveal whether the payloads of two keys are equal."""

    __slots__ = ("_secret", "_source")

    def __init__(self, source: bytes, secret: bytes = b"") -> None:
        from hashlib import blake2b  # here, as it loads OpenSSL, and few programs have fingerprints

        self._source = source
        self._secret = blake2b(secret).digest() if len(secret) > _KEY_BYTES else secret

    def of(self, key: str) -> str:
        """The digest, as 32 hex digits."""
        from hashlib import blake2b

        text = key.encode() + b"\0" + self._source  # keys contain no NUL
        return blake2b(text, digest_size=_DIGEST_BYTES, key=self._secret).hexdigest()


def fingerprint(
    payload: Any, *, include: Iterable[str] = (), exclude: Iterable[str] = (), secret: bytes = b""
) -> Fingerprint:
    """A fingerprint of text, bytes or JSON-serializable data; the order of fields and 1 versus 1.0 make no difference.

    `include` and `exclude` name fields by their path ("customer.id"; in a list, of each element): only the included
    fields count, without the excluded ones; text is then parsed as JSON. Raises InvalidInput if the payload is not.
    """
    if type(payload) is str and not include and not exclude and not secret:  # the usual case
        return Fingerprint(b"=" + payload.encode(errors="surrogatepass"))
    if isinstance(include, str) or isinstance(exclude, str):
        raise InvalidInput("give include and exclude as lists of paths, not as one text")
    wanted, unwanted = [_path(one) for one in include], [_path(one) for one in exclude]
    if not isinstance(secret, bytes):
        raise InvalidInput(f"a secret must be bytes, not {type(secret).__name__}")
    if isinstance(payload, Fingerprint):
        raise InvalidInput("this is a fingerprint already; give the payload")
    if isinstance(payload, str | bytes):
        if not wanted and not unwanted:
            return Fingerprint(
                b"=" + (payload if isinstance(payload, bytes) else payload.encode(errors="surrogatepass")), secret
            )
        payload = _parsed(payload)
    try:
        plain = _canonical(payload)
        for path in unwanted:
            _drop(plain, path)
        kept = [_pick(plain, path) for path in wanted] if wanted else plain
        text = _to_json(kept)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a fingerprint needs text, bytes or JSON-serializable data: {error}") from None
    return Fingerprint(b"j" + text.encode(), secret)


def _path(path: Any) -> list[str]:
    if not isinstance(path, str) or not all(path.split(".")):
        raise InvalidInput(f"the path of a field must be text such as 'customer.id', not {path!r}")
    return path.split(".")


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"include and exclude need a payload that is JSON; this is not: {error}") from None


def _canonical(value: Any) -> Any:
    """A copy in which equal numbers have the same form (RFC 8785)."""
    if isinstance(value, dict):
        return {_name(key): _canonical(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _name(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"names of fields must be text, not {key!r}")
    return key


def _drop(value: Any, path: list[str]) -> None:
    if isinstance(value, list):
        for one in value:
            _drop(one, path)
    elif isinstance(value, dict):
        if len(path) == 1:
            value.pop(path[0], None)
        elif path[0] in value:
            _drop(value[path[0]], path[1:])


def _pick(value: Any, path: list[str]) -> Any:
    """[value] at the path, or [] if there is none, so that null differs from a missing field."""
    if not path:
        return [value]
    if isinstance(value, list):
        return [_pick(one, path) for one in value]
    return _pick(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else []
