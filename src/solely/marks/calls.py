"""Calls of marks, the same for threads and asyncio: flows with the cache, the outage rule and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import events
from ..flow import RUN, Flow, Run
from ..leases.context import Context
from ..leases.listing import listing
from ..model import Entry, State
from ..resilience.guard import guarded
from . import flow as dedup


def first(context: Context, key: str, ttl: float) -> Flow[bool]:
    """True for exactly one caller per ttl; True also if the client proceeds without the store."""
    return context.or_proceed(key, "first", _first(context, key, ttl), lambda: True)


def _first(context: Context, key: str, ttl: float) -> Flow[bool]:
    fresh = yield from dedup.first(key, ttl)
    if context.cache is not None:
        yield from _remember(context, [(key, ttl)] if fresh else [(key, (yield from dedup.seen(key)).left)])
    _marked(context, key, fresh)
    return fresh


def mark(context: Context, key: str, ttl: float) -> Flow[bool]:
    """Marks the key for at least ttl from now; True if it was not marked before."""
    return context.or_proceed(key, "mark", _mark(context, key, ttl), lambda: True)


def _mark(context: Context, key: str, ttl: float) -> Flow[bool]:
    fresh = yield from dedup.first(key, ttl, extend=True)
    yield from _remember(context, [(key, ttl)])
    _marked(context, key, fresh)
    return fresh


def first_many(context: Context, keys: Sequence[str], ttl: float) -> Flow[list[bool]]:
    """`first` for each key, in order; keys in the cache need no request."""

    def without_store() -> list[bool]:
        fresh = {key: context.cache is None or not context.cache.has(key) for key in keys}
        return [fresh.pop(key, False) for key in keys]

    return context.or_proceed(keys[0], "first_many", _first_many(context, keys, ttl), without_store)


def _first_many(context: Context, keys: Sequence[str], ttl: float) -> Flow[list[bool]]:
    if context.cache is None:
        answers, _ = yield from dedup.first_many(keys, ttl)
    else:
        known = [context.cache.has(key) for key in keys]
        unknown = [key for key, hit in zip(keys, known, strict=True) if not hit]
        replies, entries = (yield from dedup.first_many(unknown, ttl, learn=True)) if unknown else ([], [])
        yield from _remember(context, [(entry.key, entry.left) for entry in entries])
        fresh_ones = iter(replies)
        answers = [not hit and next(fresh_ones) for hit in known]
    if context.hook is not None:
        for key, fresh in zip(keys, answers, strict=True):
            _marked(context, key, fresh)
    return answers


def seen(context: Context, key: str) -> Flow[bool]:
    """True if the key is marked."""
    return context.or_proceed(key, "seen", _seen(context, key), lambda: False)


def _seen(context: Context, key: str) -> Flow[bool]:
    entry = yield from dedup.seen(key)
    if entry.state is not State.DONE:
        return False
    yield from _remember(context, [(key, entry.left)])
    return True


def ensure_many(context: Context, keys: Sequence[str], ttl: float) -> Flow[list[MarkInfo]]:
    """The mark of each key, made where there was none. Never proceeds without the store: a fence cannot be invented."""
    flow = dedup.ensure_many(keys, ttl)
    entries = yield from flow if context.breaker is None else guarded(flow, context.breaker, keys[0])
    return [MarkInfo(entry.name, entry.left, entry.fence) for entry in entries]


def read_many(context: Context, keys: Sequence[str]) -> Flow[list[MarkInfo | None]]:
    """The mark of each key, in order; None where there is none."""
    return context.or_proceed(keys[0], "read_marks", _read_many(keys), lambda: [None] * len(keys))


def _read_many(keys: Sequence[str]) -> Flow[list[MarkInfo | None]]:
    entries = yield from dedup.read_many(keys)
    return [MarkInfo(each.name, each.left, each.fence) if each.state is State.DONE else None for each in entries]


def _remember(context: Context, marks: list[tuple[str, float]]) -> Flow[None]:
    """Adds keys to the cache, if there is one, with the time they had left at the last request to the store."""
    if context.cache is not None and marks:
        run: Run = yield RUN
        for key, left in marks:
            context.cache.add(key, left - (run.now() - run.sent))


def forget(context: Context, key: str) -> Flow[bool]:
    """Removes the mark; False if there was none."""
    if context.cache is not None:
        context.cache.drop(key)
    return (yield from dedup.forget(key))


def known(context: Context, key: str) -> bool:
    """True if the key is marked according to the cache."""
    if context.cache is None or not context.cache.has(key):
        return False
    _marked(context, key, False, cached=True)
    return True


def _marked(context: Context, key: str, fresh: bool, cached: bool = False) -> None:
    if context.hook is not None:
        context.hook(events.Marked(key, fresh, cached))


class MarkInfo(NamedTuple):
    """A mark as any caller may see it: the key counts as seen for `left` more seconds."""

    key: str
    left: float
    fence: int


def marks(prefix: str, after: str, limit: int) -> Flow[list[MarkInfo]]:
    """A page of the marks."""
    return (yield from listing("mark", prefix, after, limit, _info))


def _info(entry: Entry) -> MarkInfo:
    return MarkInfo(entry.name, entry.left, entry.fence)
