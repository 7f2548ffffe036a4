"""Records: rows of a database as structs, and texts as columns of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import msgspec

from ..data import Row, without_nul

S = TypeVar("S", bound=msgspec.Struct)

_PLAIN = (
    msgspec.inspect.StrType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.BoolType,
    msgspec.inspect.NoneType,
    msgspec.inspect.LiteralType,
    msgspec.inspect.EnumType,
)


def from_row(form: type[S], row: Row) -> S:
    """The row as a struct of this type: a column of JSON becomes the dict, list or struct that its field is.

    Columns that are no fields are ignored; msgspec.ValidationError if one has another type than its field.
    """
    nested = {name: msgspec.json.decode(row[name]) for name in _json_fields(form) if row.get(name) is not None}
    return msgspec.convert(row | nested, form, strict=False)


def json_texts(texts: Mapping[str, str]) -> str:
    """The texts as a column of JSON that every database can store and search."""
    return msgspec.json.encode({without_nul(name): without_nul(text) for name, text in texts.items()}).decode()


@cache
def _json_fields(form: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that are neither a text nor a number."""
    return tuple(each.name for each in msgspec.structs.fields(form) if not _is_plain(each.type))


def _is_plain(kind: object) -> bool:
    known = msgspec.inspect.type_info(kind)
    parts = known.types if isinstance(known, msgspec.inspect.UnionType) else (known,)
    return all(isinstance(each, _PLAIN) for each in parts)
