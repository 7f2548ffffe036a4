"""A store as the contract sees it: blocking, and one op or many in one call, whatever it is underneath."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, overload

from ..errors import StoreError
from ..model import Allowance, Entry, Finding, Item, Released
from ..ops import (
    Ack,
    Acquire,
    Advance,
    Clear,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Reply,
    Return,
    Take,
    Unhit,
)
from ..stores import AsyncStore, OnHint, Store

_PATIENCE = 20.0  # seconds for one answer of an asyncio store: a store that needs more has hung
_DELIVERY = 5.0  # seconds for a hint: it takes under a millisecond, but a test machine can be very busy
_T = TypeVar("_T")


def fresh(name: str) -> str:
    """A name that nobody used before, so that tests can share a server."""
    return f"{name}-{secrets.token_hex(6)}"


class Face:
    """What a test asks a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.client = store.client
        self.polls = store.polls

    def perform(self, *ops: Op) -> list[Reply | StoreError]:
        """All ops in one batch."""
        return self._store.perform(ops)

    @overload
    def one(self, op: Acquire | Renew | Finish | Read | Advance) -> Entry: ...
    @overload
    def one(self, op: Release) -> Released: ...
    @overload
    def one(self, op: Mark | Clear | Unhit | Push | Ack | Return) -> bool: ...
    @overload
    def one(self, op: Hit) -> Allowance: ...
    @overload
    def one(self, op: Take) -> Item | None: ...
    def one(self, op: Op) -> Reply:
        """The reply to one op that stands alone; raises the error that it was answered with."""
        (reply,) = self._store.perform([op])
        if isinstance(reply, StoreError):
            raise reply
        return reply

    def scan(self, prefix: str, after: str = "", limit: int = 1_000) -> list[Entry]:
        """A page of entries."""
        return self._store.scan(prefix, after, limit)

    def check(self) -> list[Finding]:
        """The store's own findings."""
        return self._store.check()

    def listen(self) -> Ear:
        """An ear that has heard a first hint, so that it hears the next, however long the store took to set that up."""
        ear = Ear()
        self._store.listen(ear)
        for _ in range(100):
            key = fresh("lock/warm-up")
            holder, waiter = fresh("holder"), fresh("waiter")
            self.perform(Acquire(key, holder, 10), Acquire(key, waiter, 10, client=self.client), Release(key, holder))
            if ear.heard(key, within=_DELIVERY / 100):
                return ear
        raise AssertionError("the store hinted nothing to a client that listens")

    def close(self) -> None:
        """Closes the store."""
        self._store.close()


class Ear:
    """Remembers the hints it is told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._news = threading.Condition()

    def __call__(self, key: str) -> None:
        with self._news:
            self.told.append(key)
            self._news.notify_all()

    def heard(self, key: str, within: float = _DELIVERY) -> bool:
        """True as soon as this key was hinted, False after `within` seconds without it."""
        with self._news:
            return self._news.wait_for(lambda: key in self.told, within)


class Looped:
    """An AsyncStore as a Store: each call runs on an event loop of its own, in a thread of its own."""

    perform_within = None

    def __init__(self, open: Callable[[], AsyncStore]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._store = self._run(lambda: _call(open))
        self.client = self._store.client
        self.polls = self._store.polls
        self.max_limit = self._store.max_limit

    def _run(self, call: Callable[[], Awaitable[_T]]) -> _T:
        async def awaited() -> _T:
            return await call()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(_PATIENCE)

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        return self._run(lambda: self._store.perform(ops))

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        return self._run(lambda: self._store.scan(prefix, after, limit))

    def check(self) -> list[Finding]:
        return self._run(self._store.check)

    def listen(self, on_hint: OnHint) -> None:
        self._run(lambda: _call(lambda: self._store.listen(on_hint)))

    def forked(self) -> None:
        self._store.forked()

    def close(self) -> None:
        self._run(self._store.close)

    def stop(self) -> None:
        """Ends the loop and its thread, after the last close."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()


async def _call(function: Callable[[], _T]) -> _T:
    return function()
