"""The feed: the last events of this worker and a live stream of new ones, for the dashboard and /v1/events."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import fields
from functools import cache
from typing import Any, cast

import msgspec

from .. import events
from .visibility import is_hidden

KEPT = 1000  # events: what a page can show, and enough for a reader that reconnects to catch up
BEHIND = 1000  # events that a slow reader may be behind before it misses some

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class EventRecord(msgspec.Struct, frozen=True):
    """An event as it is sent: `id` grows by one; `at` is the wall clock in seconds; `event` is its name; `facts` are
    its further fields."""

    id: int
    at: float
    event: str
    kind: str
    key: str
    facts: dict[str, Any]


def word(event: type[events.Event]) -> str:
    """The name of the event: `acquired`, `dead_lettered`, `released_lease`."""
    return _snake_case(event.__name__)


@cache
def _snake_case(name: str) -> str:
    return _WORD.sub("_", name).lower()


class Feed:
    """Keeps the last KEPT events and sends new ones to its followers. As a hook it is cheap: events are formatted only
    when they are read."""

    def __init__(self) -> None:
        self._last: deque[tuple[int, float, events.Event]] = deque(maxlen=KEPT)
        self._followers: set[_Follower] = set()
        self._count = 0

    def __call__(self, event: events.Event, /) -> None:
        self._count += 1
        one = (self._count, time.time(), event)
        self._last.append(one)
        for follower in self._followers:
            follower.put(one)

    def last(self, count: int = 50, prefix: str = "") -> list[EventRecord]:
        """The last events whose stored key begins with the prefix, newest first: those that the caller may see."""
        found: list[EventRecord] = []
        for one in reversed(self._last):
            if len(found) == count:
                break
            if one[2].key.startswith(prefix) and not is_hidden(one[2].key):
                found.append(_record(one))
        return found

    def close(self) -> None:
        """Ends all streams: the service stops."""
        for follower in self._followers:
            follower.end()

    async def follow(self, after: int | None = None, prefix: str = "") -> AsyncGenerator[EventRecord, None]:
        """Events as they happen; first those after the id `after`, as far as they are still kept."""
        follower = _Follower(one for one in self._last if after is not None and one[0] > after)
        self._followers.add(follower)
        try:
            while (one := await follower.next()) is not None:
                if one[2].key.startswith(prefix) and not is_hidden(one[2].key):
                    yield _record(one)
        finally:
            self._followers.discard(follower)


class _Follower:
    """The unread events of one reader; the oldest are dropped if it reads too slowly."""

    def __init__(self, known: Iterable[tuple[int, float, events.Event]]) -> None:
        self._unread: deque[tuple[int, float, events.Event]] = deque(known, maxlen=BEHIND)
        self._more = asyncio.Event()
        self._over = False

    def end(self) -> None:
        self._over = True
        self._more.set()

    def put(self, one: tuple[int, float, events.Event]) -> None:
        self._unread.append(one)
        self._more.set()

    async def next(self) -> tuple[int, float, events.Event] | None:
        while not self._unread and not self._over:
            self._more.clear()
            await self._more.wait()
        return self._unread.popleft() if self._unread else None


def _record(one: tuple[int, float, events.Event]) -> EventRecord:
    number, at, event = one
    kind, _, name = event.key.partition("/")
    return EventRecord(number, at, word(type(event)), kind, name, facts_of_event(event))


def facts_of_event(event: events.Event) -> dict[str, Any]:
    """The fields of the event beside its key."""
    return {name: getattr(event, name) for name in _fields(cast(Any, type(event)))}


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "key")
