"""What this worker knows already: a moment ago the key was refused, or is being asked for. It spares the store the
herd of an alert storm; the store decides, and nothing here outlives a fifth of a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from .... import SolelyError

T = TypeVar("T")

FRESH = 0.2  # seconds: an admin's or another worker's change is seen that soon, and a storm asks five times a second
RESERVED, QUIET, LIMITED = "reserved", "quiet", "limited"  # reasons of the library's reservations
MOST = 10_000  # keys: some megabytes; the oldest are forgotten, and asked for again


class Refusal(NamedTuple):
    """Why an alert is not told, until when on this process's clock, and the trace of the one that is."""

    reason: str
    ends: float
    trace: str = ""

    @property
    def left(self) -> float:
        """Seconds until asking again may help."""
        return max(0.0, self.ends - time.monotonic())


class Recent:
    """Refusals of the last moment, and the questions under way."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Refusal]] = {}  # key → until when it is fresh
        self._asking: dict[str, asyncio.Future[Refusal | None]] = {}

    def known(self, key: str) -> Refusal | None:
        """The refusal of this key, if there was one a moment ago and it still holds."""
        fresh, refusal = self._known.get(key, (0.0, None))
        now = time.monotonic()
        return refusal if refusal is not None and now < fresh and now < refusal.ends else None

    def remember(self, key: str, refusal: Refusal) -> None:
        """Whoever asks for this key within the next moment is answered so."""
        self._known.pop(key, None)
        self._known[key] = time.monotonic() + FRESH, refusal
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def forget(self, key: str) -> None:
        """The store has to be asked for this key."""
        self._known.pop(key, None)

    def forget_all(self, prefix: str) -> None:
        """The store has to be asked for every key that begins so."""
        for key in [key for key in self._known if key.startswith(prefix)]:
            del self._known[key]

    async def ask(self, key: str, decide: Callable[[], Awaitable[tuple[T | None, Refusal]]]) -> T | Refusal:
        """What this one was granted, or why not; all others who come while it asks are told the same as a refusal.

        `decide` answers what was granted, if anything, and what others are told of it. What fails, fails for all of
        them; if the one that asks goes away, the next one asks.
        """
        while (asked := self._asking.get(key)) is not None:
            told = await asyncio.shield(asked)
            if told is not None:
                return told
        asked = self._asking[key] = asyncio.get_running_loop().create_future()
        refusal: Refusal | None = None
        try:
            granted, refusal = await decide()
        except SolelyError as error:
            asked.set_exception(error)
            asked.exception()  # nobody need be waiting for it
            raise
        finally:
            del self._asking[key]
            if not asked.done():
                asked.set_result(refusal)
        self.remember(key, refusal)
        return refusal if granted is None else granted
