"""Dedup: the first one wins, everyone else has seen it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import Interrupted, StoreError
from ..flow import RUN, Ask, Flow, Run, replies_or_raise, undo
from ..model import DONE, Entry
from ..ops import Clear, Mark, Read, Release, make


def first(key: str, ttl: float, extend: bool = False) -> Flow[bool]:
    """True for exactly one caller per `ttl`; an interrupted caller takes its mark back, so that the next is first.

    With `extend`, a mark that is there lasts at least `ttl` from now on.
    """
    owner: str = yield Ask.OWNER
    try:
        fresh: bool = yield Mark(key, owner, ttl, extend)
    except (Interrupted, StoreError) as why:
        if not isinstance(why, Interrupted) or why.unanswered:  # else nothing was sent
            yield from undo([Release(key, owner, True)])
        raise
    if not fresh:
        yield from _revoke_if_doubtful([key], owner)
    return fresh


def first_many(keys: Sequence[str], ttl: float, learn: bool = False) -> Flow[tuple[list[bool], list[Entry]]]:
    """As `first`, for many keys in few round trips; of a key that occurs twice, the first occurrence is first.

    With `learn`, also the entries, which tell the time left. Whatever fails, no mark stays whose caller is not told.
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
    except (Interrupted, StoreError) as why:
        if answered or not isinstance(why, Interrupted) or why.unanswered:
            yield from undo([Release(key, owner, True) for key in distinct])
        raise
    entries = replies[len(distinct) :] if not revoked else []  # what was learned before that is too old to be kept
    if len(distinct) == len(keys):
        return replies[: len(keys)], entries
    fresh = dict(zip(distinct, replies, strict=not learn))
    return [fresh.pop(key, False) for key in keys], entries


def _revoke_if_doubtful(stale: list[str], owner: str) -> Flow[bool]:
    """A late copy of an unanswered try must not mark a key whose caller was told that it is seen."""
    run: Run = yield RUN
    if not run.doubtful or not stale:
        return False
    yield from undo([Release(key, owner, True) for key in stale])
    return True


def seen(key: str) -> Flow[Entry]:
    """The mark's entry: DONE, with the time left, if it was seen."""
    entry: Entry = yield Read(key)
    return entry


def forget(key: str) -> Flow[bool]:
    """Removes the mark that is there now, and none that comes after it; False if there was none."""
    entry: Entry = yield Read(key)
    if entry.state is not DONE:
        return False
    cleared: bool = yield Clear(key, entry.fence, "forget")
    return cleared
