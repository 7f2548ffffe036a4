"""The one loop with which stores listen for hints: it connects, subscribes, delivers, and connects again as needed.

A hint names a key that may be free, or finished, now. Hints may be lost, never invented: a waiter also looks again by
itself. A store adds only a `Subscription`, or an `AsyncSubscription`: how to subscribe, read, probe and end. The loop's
decisions are written once, as a generator of calls; a thread or a task performs them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ..errors import ClientClosed, StoreError
from ..rules import backoff
from . import OnHint

# Seconds of silence after which the server is probed: bounds, together with the store's timeout for the answer, how
# long a dead connection goes unnoticed. Meanwhile a waiter looks only every second; a probe costs the server
# microseconds.
SILENCE = 2.0
# Seconds between tries to subscribe, at first and at most: a restart or an election takes about the sum of the first
# few, and nobody hangs meanwhile, because a waiter also looks again by itself.
FIRST_RETRY, LONGEST_RETRY = 0.05, 2.0


class NoHints(Exception):
    """This server never gives hints: the loop ends, and the store polls."""


class Subscription(Protocol):
    """A connection of its own, on which a thread listens. Its methods raise when the connection has ended."""

    server: Any  # where it leads; compared with what `Listener.follow` was given

    def subscribe(self, on_hint: OnHint) -> None:
        """Returns when no hint is missed any more."""

    def deliver(self, silence: float) -> None:
        """Waits for hints and delivers them; after so many seconds of silence, it probes the server and returns."""

    def interrupt(self) -> None:
        """Called by another thread: makes `deliver` raise soon, if that is possible."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In the child after a fork: closes the socket and sends nothing, since the connection is the parent's."""


class AsyncSubscription(Protocol):
    """The same on an event loop; a task that is cancelled needs no interruption."""

    server: Any

    async def subscribe(self, on_hint: OnHint) -> None: ...

    async def deliver(self, silence: float) -> None: ...

    def interrupt(self) -> None: ...

    async def close(self) -> None: ...


S = TypeVar("S", bound=Subscription | AsyncSubscription)
Calls = Generator[Callable[[], Any], Any, None]  # what is to be called, or called and awaited, one after the other


class _Loop(Generic[S]):
    """What the loop decides, whoever performs it."""

    _settled: threading.Event | asyncio.Event  # the current try to subscribe has succeeded or failed
    _hurry: threading.Event | asyncio.Event  # ends the pause between two tries

    def __init__(self, failures: tuple[type[Exception], ...], patience: float) -> None:
        self.on_hint: OnHint | None = None
        self.ready = False  # subscribed: no hint is missed from now on
        self.unavailable = False  # this server never gives hints
        self._failures: tuple[type[Exception], ...] = (StoreError, ClientClosed, *failures)
        self._patience = patience
        self._server: Any = None  # where requests go, if there are several servers
        self._failed = 0  # tries to subscribe since the last that succeeded
        self._closed = False
        self._subscription: S | None = None

    @property
    def _over(self) -> bool:
        return self._closed or self.unavailable

    def follow(self, server: Any) -> None:
        """Requests go to this server from now on: subscribes there, too, if it listens to another or to none."""
        if server != self._server:
            self._server = server
            self._hurry.set()
            subscription = self._subscription
            if subscription is not None and subscription.server != server:
                subscription.interrupt()

    def reconnect(self) -> None:
        """The connection leads to the wrong server, or is not wanted any more."""
        subscription = self._subscription
        if subscription is not None:
            subscription.interrupt()

    def _calls(self, connect: Callable[[], Any], pause: Callable[[float], Any]) -> Calls:
        while not self._over:
            self._settled.clear()
            self._hurry.clear()
            try:
                subscription = self._subscription = yield connect
                yield partial(subscription.subscribe, self._deliver)
                if self._server in (None, subscription.server):  # else requests went elsewhere while it connected
                    self.ready, self._failed = True, 0
                    self._settled.set()
                    while not self._closed:
                        yield partial(subscription.deliver, SILENCE)
            except NoHints:
                self.unavailable = True
            except self._failures:
                pass  # those who send ops get the reason; here only the hints are late
            except GeneratorExit:  # nobody performs calls any more: the loop was closed with this task pending
                self._subscription = None
                raise
            finally:  # also if the thread or task ends: the next waiter starts another
                self.ready = False
                self._settled.set()
                ended, self._subscription = self._subscription, None
                if ended is not None:
                    yield ended.close
            if not self._over:
                rest = backoff(self._failed, first=FIRST_RETRY, longest=LONGEST_RETRY, spread=0.0, chance=0.5)
                yield partial(pause, rest)
                self._failed += 1

    def _deliver(self, key: str) -> None:
        if self.on_hint is not None:
            self.on_hint(key)


class Listener(_Loop[Subscription]):
    """Listens in a thread, from the first `prepare` until `close`. A thread that died is started anew by `prepare`."""

    def __init__(
        self, connect: Callable[[], Subscription], failures: tuple[type[Exception], ...], patience: float
    ) -> None:
        super().__init__(failures, patience)
        self._connect = connect
        self._settled: threading.Event = threading.Event()
        self._hurry: threading.Event = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def prepare(self) -> None:
        """Returns when it listens, or when a try to do so has failed: then a waiter must look by itself."""
        if self._over:
            return
        with self._starting:
            if not self.running:
                self._settled.clear()
                self._thread = threading.Thread(target=self._run, name="solely-listener", daemon=True)
                self._thread.start()
        self._settled.wait(self._patience)

    def close(self, *, wait: bool = True) -> None:
        """Ends the thread; without `wait` it may still run for the time that one `deliver` takes."""
        self._closed = True
        self._hurry.set()
        self.reconnect()
        thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join(self._patience)

    def abandon(self) -> None:
        """In the child after a fork: the thread is not here, and the connection is the parent's."""
        if self._subscription is not None:
            self._subscription.abandon()

    def _run(self) -> None:
        calls = self._calls(self._connect, self._hurry.wait)
        with suppress(StopIteration):
            call = next(calls)
            while True:
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001 - the loop decides what it means, and may raise it
                    call = calls.throw(error)
                else:
                    call = calls.send(result)


class AsyncListener(_Loop[AsyncSubscription]):
    """Listens in a task, from the first `prepare` until `close`. A task that died is started anew by `prepare`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AsyncSubscription]],
        failures: tuple[type[Exception], ...],
        patience: float,
    ) -> None:
        super().__init__(failures, patience)
        self._connect = connect
        self._settled: asyncio.Event = asyncio.Event()
        self._hurry: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def prepare(self) -> None:
        """Returns when it listens, or when a try to do so has failed: then a waiter must look by itself."""
        if self._over:
            return
        if not self.running:
            self._settled.clear()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="solely-listener")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), self._patience)

    async def close(self) -> None:
        """Ends the task."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        calls = self._calls(self._connect, self._pause)
        with suppress(StopIteration):
            call = next(calls)
            while True:
                try:
                    result = await call()
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - as above; a cancellation closes the connection first
                    call = calls.throw(error)
                else:
                    call = calls.send(result)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)
