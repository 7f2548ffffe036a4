"""Watermark: how far the work has come. It goes forward by itself and back only when somebody says so."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ..errors import Busy, Interrupted, InvalidInput, Unreadable, not_ours
from ..flow import Flow, replies_or_raise
from ..formats import WatermarkValue, read_watermark, write_watermark
from ..model import Entry
from ..ops import Advance, Clear, Read

_TRIES = 10  # rounds in which others advance between our look and our step: two in a row are rare


class Rewinding(NamedTuple):
    """What a rewind found, and the value that stands after it."""

    before: WatermarkValue | None
    now: WatermarkValue


def decode(text: bytes) -> WatermarkValue:
    """The value that was written; Unreadable if it is none that we write so."""
    try:
        return read_watermark(text)
    except ValueError as error:
        raise Unreadable(f"a watermark's value cannot be read: {not_ours(error)}") from None


def read(key: str) -> Flow[WatermarkValue | None]:
    """The value that stands; None if there is none yet."""
    entry: Entry = yield Read(key)
    return _value(entry)


def advance(key: str, value: WatermarkValue) -> Flow[WatermarkValue]:
    """The value that now stands: the given one, or the one that was further; InvalidInput if that is of another type.

    The look comes first since a time, compared as bytes, would pass by any number. Should the very first values of
    two types meet, one of the two callers is told so now and the other at its next call.
    """
    text = write_watermark(value)
    _same_type((yield Read(key)), text)
    entry: Entry = yield Advance(key, text)
    _same_type(entry, text)
    return decode(entry.value or text)


def rewind(key: str, to: WatermarkValue, reason: str) -> Flow[Rewinding]:
    """Takes the watermark back to `to`, whoever advances it meanwhile; changes nothing if it is not further than that.

    Raises Busy, with the value of somebody else standing, if it is advanced again and again.
    """
    text = write_watermark(to)
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
        replies_or_raise((yield [step] if entry.value is None else [Clear(key, entry.fence, reason), step]))
    except Interrupted:
        yield step  # never left without a value
        raise


def _value(entry: Entry) -> WatermarkValue | None:
    return None if entry.value is None else decode(entry.value)


def _same_type(entry: Entry, text: bytes) -> None:
    if entry.value is not None and entry.value[:1] != text[:1]:
        stands, given = decode(entry.value), decode(text)
        raise InvalidInput(
            f"watermark {entry.name!r} holds a {_noun(stands)} ({stands}) and was given a {_noun(given)} ({given}); "
            "use one type under one name",
            key=entry.name,
        )


def _noun(value: WatermarkValue) -> str:
    return "time" if isinstance(value, datetime) else "number"
