"""The test harness of a store: sends one op or a batch, records hints, and makes an asyncio store blocking."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, overload

from ..errors import StoreError
from ..model import Allowance, Entry, Finding, LeasedItem, Released
from ..ops import (
    Ack,
    Acquire,
    Advance,
    Amend,
    Clear,
    Count,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Reply,
    Resume,
    Return,
    Take,
    Unhit,
)
from ..stores import AsyncStore, OnHint, Store

TICK = 0.001  # seconds: the resolution of a store's clock
_REPLY_TIMEOUT = 120.0  # seconds for one reply of an asyncio store, on a machine that may be busy: then it has hung
_HINT_TIMEOUT = 5.0  # seconds for a hint: it takes under a millisecond, but a test machine can be very busy
_T = TypeVar("_T")


def fresh(name: str) -> str:
    """Returns a unique name, so that tests can share a server."""
    return f"{name}-{secrets.token_hex(6)}"


class Harness:
    """Runs ops on the store under test."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.client = store.client
        self.polls = store.polls

    def perform(self, *ops: Op) -> list[Reply | StoreError]:
        """Sends all ops as one batch."""
        return self._store.perform(ops)

    @overload
    def one(self, op: Acquire | Renew | Resume | Finish | Read | Advance) -> Entry: ...
    @overload
    def one(self, op: Release) -> Released: ...
    @overload
    def one(self, op: Mark | Clear | Unhit | Push | Ack | Return | Amend) -> bool: ...
    @overload
    def one(self, op: Count) -> int: ...
    @overload
    def one(self, op: Hit) -> Allowance: ...
    @overload
    def one(self, op: Take) -> LeasedItem | None: ...
    def one(self, op: Op) -> Reply:
        """Sends one op alone and returns its reply; raises the error if the reply is one."""
        (reply,) = self._store.perform([op])
        if isinstance(reply, StoreError):
            raise reply
        return reply

    def scan(self, prefix: str, after: str = "", limit: int = 1_000) -> list[Entry]:
        """Returns a page of entries."""
        return self._store.scan(prefix, after, limit)

    def check(self) -> list[Finding]:
        """Returns the findings of the store's own check."""
        return self._store.check()

    def listen(self) -> HintRecorder:
        """Returns a recorder that has received a first hint: the store's listener is set up, however long that took."""
        recorder = HintRecorder()
        self._store.listen(recorder)
        for _ in range(100):
            key = fresh("lock/warm-up")
            holder, waiter = fresh("holder"), fresh("waiter")
            self.perform(Acquire(key, holder, 10), Acquire(key, waiter, 10, client=self.client), Release(key, holder))
            if recorder.received(key, within=_HINT_TIMEOUT / 100):
                return recorder
        raise AssertionError("the store sent no hint to a client that listens")

    def close(self) -> None:
        """Closes the store."""
        self._store.close()


class HintRecorder:
    """Records the hints that the store sends, in order."""

    def __init__(self) -> None:
        self.hints: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, key: str) -> None:
        with self._changed:
            self.hints.append(key)
            self._changed.notify_all()

    def received(self, key: str, within: float = _HINT_TIMEOUT) -> bool:
        """Returns True as soon as a hint for this key has arrived, False after `within` seconds without one."""
        with self._changed:
            return self._changed.wait_for(lambda: key in self.hints, within)


class BlockingAdapter:
    """Makes an AsyncStore a Store: each call runs on an event loop in a thread that belong to this adapter."""

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

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(_REPLY_TIMEOUT)

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
        """Stops the loop and its thread; call it after `close`."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_REPLY_TIMEOUT)
        self._loop.close()


async def _call(function: Callable[[], _T]) -> _T:
    return function()
