"""Dedup: the first one wins, everyone else has seen it."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Interrupted
from ..model import Entry, State
from ..ops import Clear, Mark, Read, Release
from .lock import whole
from .requests import Ask, Flow


def first(key: str, ttl: float) -> Flow[bool]:
    """True for exactly one caller per `ttl`; an interrupted caller takes its mark back, so that the next is first."""
    owner: str = yield Ask.OWNER
    try:
        fresh: bool = yield Mark(key, owner, ttl)
    except Interrupted:
        yield Release(key, owner, True)
        raise
    return fresh


def first_many(keys: Sequence[str], ttl: float) -> Flow[list[bool]]:
    """As `first`, for many keys in few round trips; of a key that occurs twice, the first occurrence is first."""
    owner: str = yield Ask.OWNER
    distinct = dict.fromkeys(keys)
    try:
        replies: list[bool] = whole((yield [Mark(key, owner, ttl) for key in distinct]))  # type: ignore[assignment]
    except Interrupted:
        yield [Release(key, owner, True) for key in distinct]
        raise
    if len(distinct) == len(keys):
        return replies
    fresh = dict(zip(distinct, replies, strict=True))
    return [fresh.pop(key, False) for key in keys]


def seen(key: str) -> Flow[Entry]:
    """The mark's entry: DONE, with the time left, if it was seen."""
    entry: Entry = yield Read(key)
    return entry


def seen_many(keys: Sequence[str]) -> Flow[list[Entry]]:
    """The entries of many marks."""
    return whole((yield [Read(key) for key in keys]))  # type: ignore[return-value]


def forget(key: str) -> Flow[bool]:
    """Removes the mark that is there now, and none that comes after it; False if there was none."""
    entry: Entry = yield Read(key)
    if entry.state is not State.DONE:
        return False
    cleared: bool = yield Clear(key, entry.fence, "forget")
    return cleared
