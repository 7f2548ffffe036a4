"""The desk: what the dashboard of one worker keeps between requests, and what applications put there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple, TypeVar, cast

from ..metrics import Metrics
from .history import History

T = TypeVar("T")

SPARING = 10.0  # times as long as a look took it is used again: so all viewers together cost the store a tenth of it
MOST_LOOKS = 200  # looks that are remembered: some viewers on some pages
MOST_HOLDS = 20_000  # holds whose full time is remembered
HALF = 0.5  # seconds: holders tell since when in whole ones, so that an age is too long by half of one, on average
MOMENT = 2.0  # seconds between two looks at a list that is watched live
JITTER = 0.25  # seconds that two looks at one hold may differ by the way: a longer step is a renewal


class AppPage(NamedTuple):
    """A page of an application, as the navigation shows it."""

    title: str
    path: str
    about: str = ""


class Desk:
    """Looks that viewers share, the figures of the last minutes, the pages of applications, and who can replay what."""

    def __init__(self, figures: Metrics) -> None:
        self.history = History(figures)
        self.looks = Looks()
        self.fulls = Fulls()
        self.pages: list[AppPage] = []  # of applications, in the order of the navigation
        self.replays: dict[str, Callable[[Any], Any]] = {}  # group of dead letters → what runs a payload again


class Looks:
    """What was seen a moment ago is shown to the next viewer too, so that many of them cost as much as one."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[asyncio.Task[Any], list[float]]] = {}

    async def share(self, what: Hashable, fresh: float, look: Callable[[], Awaitable[T]]) -> T:
        """The answer of `look`, at most `fresh` seconds old, or SPARING times as old as it takes to look."""
        task, times = self._known.get(what, (None, []))
        if task is None or (task.done() and time.monotonic() > times[1] + max(fresh, SPARING * (times[1] - times[0]))):
            times = [time.monotonic()]
            task = asyncio.ensure_future(self._timed(look, times))
            self._known.pop(what, None)
            self._known[what] = task, times
            if len(self._known) > MOST_LOOKS:
                del self._known[next(iter(self._known))]
        return cast(T, await asyncio.shield(task))

    def forget(self) -> None:
        """Something was changed on purpose: who did it must see that."""
        self._known.clear()

    async def _timed(self, look: Callable[[], Awaitable[T]], times: list[float]) -> T:
        try:
            return await look()
        finally:
            times.append(time.monotonic())


class Seen(NamedTuple):
    """A hold as it was last seen: the most that it had left, when it was to end, and whether it was renewed."""

    most: float
    ends: float
    renewed: bool


class Fulls:
    """How long a hold had at most, as far as was seen: a store tells what is left, not of how much."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], Seen] = {}
        self._looked: dict[Hashable, float] = {}

    def watched(self, what: Hashable) -> bool:
        """True if this was looked at a moment ago too: what is new in it has just begun."""
        now = time.monotonic()
        before = self._looked.pop(what, -MOMENT)
        self._looked[what] = now
        if len(self._looked) > MOST_LOOKS:
            del self._looked[next(iter(self._looked))]
        return now < before + MOMENT

    def full(self, key: str, fence: int, left: float, age: float | None) -> float:
        """At least what is left. One that is seen for the first time, and younger than that, is taken for one that was
        never renewed: its age and what is left are its ttl."""
        ends, known = time.monotonic() + left, self._seen.pop((key, fence), None)
        if known is None:
            young = age is not None and age < left
            known = Seen(left + max(0.0, (age or 0.0) - HALF) if young else left, ends, False)
        elif ends > known.ends + JITTER:
            known = Seen(max(left, known.most if known.renewed else 0.0), ends, True)
        self._seen[key, fence] = known
        if len(self._seen) > MOST_HOLDS:
            del self._seen[next(iter(self._seen))]
        return max(left, known.most)
