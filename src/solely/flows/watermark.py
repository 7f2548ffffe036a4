"""Watermark: how far the work has come. It goes forward by itself and back only when somebody says so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from ..errors import Busy, Interrupted, InvalidInput, Unreadable, not_ours
from ..model import Entry
from ..ops import Advance, Clear, Read
from .lock import whole
from .requests import Flow

Value = int | datetime

_LEAST, _MOST = -(2**63), 2**63 - 1  # what every store's neighbours (SQL, JSON, APIs) can hold as a number
_NUMBER, _TIME = b"i", b"t"  # what the stored value begins with
_TRIES = 10  # rounds in which others advance between our look and our step: two in a row are rare


class Rewinding(NamedTuple):
    """What a rewind found, and the value that stands after it."""

    before: Value | None
    now: Value


def encode(value: Value) -> bytes:
    """The value as bytes that sort as the values do; InvalidInput if it is neither a whole number nor an aware time."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise InvalidInput(f"a watermark's time must be aware: {value!r} has no time zone; use datetime.now(UTC)")
        try:
            utc = value.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(f"{value!r} is before year 1 or after year 9999 in UTC") from None
        return _TIME + utc.replace(tzinfo=None).isoformat(timespec="microseconds").encode()
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"a watermark is an int or an aware datetime, not {type(value).__name__}: {value!r:.80}")
    if not _LEAST <= value <= _MOST:
        raise InvalidInput(f"a watermark's number must fit into 64 bits; {value} does not")
    return _NUMBER + f"{value - _LEAST:020}".encode()


def decode(text: bytes) -> Value:
    """The value that was encoded; Unreadable if it is none that we encode so."""
    try:
        if text[:1] == _TIME:
            value: Value = datetime.fromisoformat(text[1:].decode()).replace(tzinfo=UTC)
        else:
            value = int(text[1:]) + _LEAST
        if encode(value) == text:
            return value
        raise ValueError(f"{value} is written in another way")
    except ValueError as error:  # also InvalidInput, of a number that is too large
        raise Unreadable(f"a watermark's value cannot be read: {not_ours(error)}") from None


def read(key: str) -> Flow[Value | None]:
    """The value that stands; None if there is none yet."""
    entry: Entry = yield Read(key)
    return _value(entry)


def advance(key: str, value: Value) -> Flow[Value]:
    """The value that now stands: the given one, or the one that was further; InvalidInput if that is of another type.

    The look comes first since a time, compared as bytes, would pass by any number. Should the very first values of
    two types meet, one of the two callers is told so now and the other at its next call.
    """
    text = encode(value)
    _same_type((yield Read(key)), text)
    entry: Entry = yield Advance(key, text)
    _same_type(entry, text)
    return decode(entry.value or text)


def rewind(key: str, to: Value, reason: str) -> Flow[Rewinding]:
    """Takes the watermark back to `to`, whoever advances it meanwhile; changes nothing if it is not further than that.

    Raises Busy, with the value of somebody else standing, if it is advanced again and again.
    """
    text = encode(to)
    entry: Entry = yield Read(key)
    before = _value(entry)
    for _ in range(_TRIES):
        _same_type(entry, text)
        if entry.value is not None and entry.value <= text:
            return Rewinding(before, decode(entry.value))
        yield from _replace(key, entry, text, reason)
        entry = yield Read(key)
    name = key.partition("/")[2]
    raise Busy(f"watermark {name!r} is advanced by others faster than it can be taken back; stop them first", key=name)


def _replace(key: str, entry: Entry, text: bytes, reason: str) -> Flow[None]:
    """Clear and Advance go out together, so that nobody finds the key empty for longer than a store needs for both."""
    step = Advance(key, text)
    try:
        whole((yield [step] if entry.value is None else [Clear(key, entry.fence, reason), step]))
    except Interrupted:
        yield step  # never left without a value
        raise


def _value(entry: Entry) -> Value | None:
    return None if entry.value is None else decode(entry.value)


def _same_type(entry: Entry, text: bytes) -> None:
    if entry.value is not None and entry.value[:1] != text[:1]:
        stands, given = decode(entry.value), decode(text)
        raise InvalidInput(
            f"watermark {entry.name!r} holds a {_noun(stands)} ({stands}) and was given a {_noun(given)} ({given}); "
            "use one type under one name",
            key=entry.name,
        )


def _noun(value: Value) -> str:
    return "time" if isinstance(value, datetime) else "number"
