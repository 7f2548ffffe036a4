"""Decisions of marks: the first caller wins, every other one sees the mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import INTERRUPTIONS, SolelyError, is_unanswered
from ..flow import RUN, Ask, Flow, Run, replies_or_raise, undo
from ..model import DONE, Entry
from ..ops import Clear, Mark, Read, Release, make


def first(key: str, ttl: float, extend: bool = False) -> Flow[bool]:
    """True for exactly one caller per `ttl`. An interrupted caller removes its mark, so that the next one is first.

    With `extend`, an existing mark lasts at least `ttl` from now.
    """
    owner: str = yield Ask.OWNER
    try:
        fresh: bool = yield Mark(key, owner, ttl, extend)
    except SolelyError:
        yield from _take_back([key], owner)
        raise
    except INTERRUPTIONS as why:
        if is_unanswered(why):  # else nothing was sent
            yield from undo([Release(key, owner, True)])
        raise
    if not fresh:
        yield from _revoke_if_doubtful([key], owner)
    return fresh


def first_many(keys: Sequence[str], ttl: float, learn: bool = False) -> Flow[tuple[list[bool], list[Entry]]]:
    """`first` for many keys in few round trips; of a repeated key, only the first occurrence can be True.

    With `learn`, also returns the entries, which have the time left. After an error, no mark of this call remains.
    """
    if not keys:
        return [], []
    owner: str = yield Ask.OWNER
    distinct = dict.fromkeys(keys)
    answered = False
    try:
        marks = [make(Mark, (key, owner, ttl, False)) for key in distinct]
        answers = yield [*marks, *map(Read, distinct)] if learn else marks
        answered = True
        replies: list[Any] = replies_or_raise(answers)
        stale = [key for key, fresh in zip(distinct, replies, strict=not learn) if not fresh]
        revoked = yield from _revoke_if_doubtful(stale, owner)
    except SolelyError:
        yield from _take_back(list(distinct), owner)
        raise
    except INTERRUPTIONS as why:
        if answered or is_unanswered(why):
            yield from undo([Release(key, owner, True) for key in distinct])
        raise
    entries = replies[len(distinct) :] if not revoked else []  # entries read before that are too old to cache
    if len(distinct) == len(keys):
        return replies[: len(keys)], entries
    fresh = dict(zip(distinct, replies, strict=not learn))
    return [fresh.pop(key, False) for key in keys], entries


def ensure_many(keys: Sequence[str], ttl: float) -> Flow[list[Entry]]:
    """The mark of each key, made where there was none; it lasts at least `ttl` from now. Its fence is the same for
    every caller until it expires. An interrupted call leaves its marks: they only say which fence belongs to a key."""
    owner: str = yield Ask.OWNER
    distinct = list(dict.fromkeys(keys))
    marks = [make(Mark, (key, owner, ttl, True)) for key in distinct]
    replies: list[Any] = replies_or_raise((yield [*marks, *map(Read, distinct)]))
    found = dict(zip(distinct, replies[len(distinct) :], strict=True))
    return [found[key] for key in keys]


def _take_back(keys: list[str], owner: str) -> Flow[None]:
    """After an answer that is an error. Revokes the owner only if a try was not answered: what a store remembers of it
    takes memory, which a full one has not."""
    run: Run = yield RUN
    yield from undo([Release(key, owner, run.doubtful) for key in keys])


def _revoke_if_doubtful(stale: list[str], owner: str) -> Flow[bool]:
    """After an unanswered try, revokes the owner: a late copy must not mark a key that was returned as seen.

    True if it did.
    """
    run: Run = yield RUN
    if not run.doubtful or not stale:
        return False
    yield from undo([Release(key, owner, True) for key in stale])
    return True


def seen(key: str) -> Flow[Entry]:
    """The entry of the mark: DONE, with the time left, if the key is marked."""
    entry: Entry = yield Read(key)
    return entry


def read_many(keys: Sequence[str]) -> Flow[list[Entry]]:
    """The entry of each key: DONE, with the time left, if it is marked."""
    return replies_or_raise((yield list(map(Read, keys))))


def forget(key: str) -> Flow[bool]:
    """Removes the current mark, and no later one; False if there was none."""
    entry: Entry = yield Read(key)
    if entry.state is not DONE:
        return False
    cleared: bool = yield Clear(key, entry.fence, "forget")
    return cleared
