"""Decisions of watermarks: the progress of some work. A watermark only advances, unless it is rewound explicitly."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ..errors import Busy, Interrupted, InvalidInput, Unreadable, not_ours
from ..flow import Flow, replies_or_raise
from ..formats import WatermarkValue, read_watermark, write_watermark
from ..leases.listing import listing
from ..model import Entry
from ..ops import Advance, Clear, Read

_TRIES = 10  # rounds in which others advance between our read and our write: two in a row are rare


class Rewinding(NamedTuple):
    """The value before a rewind, and the value after it."""

    before: WatermarkValue | None
    now: WatermarkValue


class WatermarkInfo(NamedTuple):
    """A watermark as any caller may see it. `unreadable` is why its value is unknown, and then None."""

    key: str
    value: WatermarkValue | None
    fence: int
    unreadable: str = ""


def watermarks(prefix: str, after: str, limit: int) -> Flow[list[WatermarkInfo]]:
    """A page of the watermarks."""
    return (yield from listing("watermark", prefix, after, limit, _info))


def _info(entry: Entry) -> WatermarkInfo:
    try:
        return WatermarkInfo(entry.name, _value(entry), entry.fence)
    except Unreadable as why:
        return WatermarkInfo(entry.name, None, entry.fence, str(why))


def decode(text: bytes) -> WatermarkValue:
    """The stored value; raises Unreadable if Solely did not write it."""
    try:
        return read_watermark(text)
    except ValueError as error:
        raise Unreadable(f"the value of a watermark is unreadable: {not_ours(error)}") from None


def read(key: str) -> Flow[WatermarkValue | None]:
    """The current value; None if there is none yet."""
    entry: Entry = yield Read(key)
    return _value(entry)


def advance(key: str, value: WatermarkValue) -> Flow[WatermarkValue]:
    """The new value: the greater of the given and the stored one; raises InvalidInput if they have different types.

    The read comes first because a time, compared as bytes, is greater than any number. If two callers write the very
    first values with different types, one of them gets the error now and the other at its next call.
    """
    text = write_watermark(value)
    _same_type((yield Read(key)), text)
    entry: Entry = yield Advance(key, text)
    _same_type(entry, text)
    return decode(entry.value or text)


def rewind(key: str, to: WatermarkValue, reason: str) -> Flow[Rewinding]:
    """Sets the watermark back to `to`, even if others advance it meanwhile; does nothing if it is not beyond `to`.

    Raises Busy, and leaves the value of another caller, if others advance it again and again.
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
    raise Busy(f"others advance watermark {name!r} faster than it can be rewound; stop them first", key=name)


def _replace(key: str, entry: Entry, text: bytes, reason: str) -> Flow[None]:
    """Sends Clear and Advance in one batch, so that the key is empty only while the store performs both."""
    step = Advance(key, text)
    try:
        replies_or_raise((yield [step] if entry.value is None else [Clear(key, entry.fence, reason), step]))
    except Interrupted:
        yield step  # the key must not stay empty
        raise


def _value(entry: Entry) -> WatermarkValue | None:
    return None if entry.value is None else decode(entry.value)


def _same_type(entry: Entry, text: bytes) -> None:
    if entry.value is not None and entry.value[:1] != text[:1]:
        stored, given = decode(entry.value), decode(text)
        raise InvalidInput(
            f"watermark {entry.name!r} holds a {_noun(stored)} ({stored}) and was given a {_noun(given)} ({given}); "
            "use one type under one name",
            key=entry.name,
        )


def _noun(value: WatermarkValue) -> str:
    return "time" if isinstance(value, datetime) else "number"
