"""The types of which bodies, queries and answers are made, and their JSON. Bounds are part of the type: they are
checked and documented, and they exclude NaN and infinity.

Nothing here needs the server, so that clients which share these types need not install it.
"""

from __future__ import annotations

import json
from typing import Annotated, ClassVar

import msgspec

Key = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=512, pattern=r"^[^\u0000]*$", description="1 to 512 bytes, without NUL"),
]
Ttl = Annotated[float, msgspec.Meta(ge=0.01, le=366 * 86_400.0, description="seconds")]
Wait = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0, description="seconds")]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=2048, description="a secret: whoever has it can release")]
Purpose = Annotated[str, msgspec.Meta(max_length=200, description="what it is for, shown to people")]
Reason = Annotated[str, msgspec.Meta(min_length=3, max_length=500, description="why; kept in the audit log")]
Prefix = Annotated[str, msgspec.Meta(max_length=512, description="of the names that are listed")]
PageSize = Annotated[int, msgspec.Meta(ge=1, le=1000, description="the most entries of one page")]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body or a query. Unknown fields are refused, since they would be ignored.

    EITHER names fields of which exactly one must be given: they are UNSET by default.
    """

    EITHER: ClassVar[tuple[str, ...]] = ()


class Answer(msgspec.Struct, kw_only=True):
    """A response body."""


_encode = msgspec.json.Encoder().encode


def to_json(value: object) -> bytes:
    """The value as JSON. A lone surrogate is written as its escape sequence, as in the request that stored it."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, str_keys=True), separators=(",", ":")).encode()
