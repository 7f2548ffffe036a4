"""Marking: what blocking and awaited marks do alike: the cache is asked first, and told what the store said."""

from __future__ import annotations

from collections.abc import Sequence

from .. import events
from ..core import Core
from ..flows import dedup
from ..flows.requests import RUN, Flow, Run
from ..model import State


def first(core: Core, key: str, ttl: float) -> Flow[bool]:
    """True for exactly one caller per ttl."""
    return core.or_proceed(key, "first", _first(core, key, ttl), lambda: True)


def _first(core: Core, key: str, ttl: float) -> Flow[bool]:
    fresh = yield from dedup.first(key, ttl)
    if core.cache is not None:
        yield from _remember(core, [(key, ttl)] if fresh else [(key, (yield from dedup.seen(key)).left)])
    _marked(core, key, fresh)
    return fresh


def mark(core: Core, key: str, ttl: float) -> Flow[bool]:
    """The key is marked for at least ttl from now on; True if it was not marked before."""
    return core.or_proceed(key, "mark", _mark(core, key, ttl), lambda: True)


def _mark(core: Core, key: str, ttl: float) -> Flow[bool]:
    fresh = yield from dedup.first(key, ttl, extend=True)
    yield from _remember(core, [(key, ttl)])
    _marked(core, key, fresh)
    return fresh


def first_many(core: Core, keys: Sequence[str], ttl: float) -> Flow[list[bool]]:
    """One answer per key; keys that the cache knows are not asked for."""

    def unasked() -> list[bool]:
        fresh = {key: core.cache is None or not core.cache.has(key) for key in keys}
        return [fresh.pop(key, False) for key in keys]

    return core.or_proceed(keys[0], "first_many", _first_many(core, keys, ttl), unasked)


def _first_many(core: Core, keys: Sequence[str], ttl: float) -> Flow[list[bool]]:
    if core.cache is None:
        answers, _ = yield from dedup.first_many(keys, ttl)
    else:
        known = [core.cache.has(key) for key in keys]
        unknown = [key for key, hit in zip(keys, known, strict=True) if not hit]
        asked, entries = (yield from dedup.first_many(unknown, ttl, learn=True)) if unknown else ([], [])
        yield from _remember(core, [(entry.key, entry.left) for entry in entries])
        told = iter(asked)
        answers = [not hit and next(told) for hit in known]
    if core.hook is not None:
        for key, fresh in zip(keys, answers, strict=True):
            _marked(core, key, fresh)
    return answers


def seen(core: Core, key: str) -> Flow[bool]:
    """True if the key is marked."""
    return core.or_proceed(key, "seen", _seen(core, key), lambda: False)


def _seen(core: Core, key: str) -> Flow[bool]:
    entry = yield from dedup.seen(key)
    if entry.state is not State.DONE:
        return False
    yield from _remember(core, [(key, entry.left)])
    return True


def _remember(core: Core, marks: list[tuple[str, float]]) -> Flow[None]:
    """Keys and the time they had left when the store was last asked go into the cache, if there is one."""
    if core.cache is not None and marks:
        run: Run = yield RUN
        for key, left in marks:
            core.cache.add(key, left - (run.now() - run.sent))


def forget(core: Core, key: str) -> Flow[bool]:
    """True if there was a mark, which is gone now."""
    if core.cache is not None:
        core.cache.drop(key)
    return (yield from dedup.forget(key))


def known(core: Core, key: str) -> bool:
    """True if the cache knows that the key is marked."""
    if core.cache is None or not core.cache.has(key):
        return False
    _marked(core, key, False, cached=True)
    return True


def _marked(core: Core, key: str, fresh: bool, cached: bool = False) -> None:
    if core.hook is not None:
        core.hook(events.Marked(key, fresh, cached))
