"""Signatures of Standard Webhooks: over the id, the time and the body, by each of several secrets."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

from ..errors import InvalidInput

SECRET_PREFIX = "whsec_"
SECRET_BYTES = (24, 64)  # the shortest and the longest that the specification allows


def sign(identity: str, moment: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """The headers of the specification; without keys there is no signature."""
    content = f"{identity}.{moment}.".encode() + body
    signatures = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in keys]
    headers = {"webhook-id": identity, "webhook-timestamp": str(moment)}
    if signatures:
        headers["webhook-signature"] = " ".join(f"v1,{signature}" for signature in signatures)
    return headers


def signing_key(what: str, secret: str) -> bytes:
    """The bytes of a signing secret; InvalidInput, which does not show it, if it is invalid."""
    how = f"write {SECRET_PREFIX} and the base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[1]} random bytes"
    if not secret.startswith(SECRET_PREFIX):
        raise InvalidInput(f"{what} a secret does not begin with {SECRET_PREFIX}; {how}")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{what} what follows {SECRET_PREFIX} is not base64; {how}") from None
    if not SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]:
        raise InvalidInput(f"{what} a secret has {len(key)} bytes; {how}")
    return key
