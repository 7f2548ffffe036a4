"""Asyncio: each batch is a request of its own task, which goes on whoever still awaits it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

import httpx2

from ...errors import StoreError, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op, Reply
from .. import OnHint
from ..batches import waits
from . import codec
from .settings import PAGE, SILENCE, TRY_AGAIN, ServiceAddress, body_of, findings, headers, portions, unanswered

T = TypeVar("T")
_parents: list[object] = []  # what a forked child must not touch, not even by collecting it


class AsyncHttpStore:
    """A store for one event loop, on a service."""

    polls = False  # where hints are cut off, waiters look again every second: gentle with a service far away
    max_limit = MAX_LIMIT
    portion = MAX_BATCH
    perform_within = None

    def __init__(self, address: ServiceAddress, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._closed = False
        self._on_hint: OnHint | None = None
        self._reset()

    def _reset(self) -> None:
        self.client = os.urandom(16).hex()
        self._opened: httpx2.AsyncClient | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._name = ""  # what the service calls this client while it listens
        self._hearing: asyncio.Task[None] | None = None
        self._preparing: asyncio.Future[None] | None = None
        self._again = 0.0

    def __repr__(self) -> str:
        return f"<AsyncHttpStore {self._address}>"

    def listen(self, on_hint: OnHint) -> None:
        self._on_hint = on_hint

    def perform(self, ops: Sequence[Op]) -> Awaitable[list[Reply | StoreError]]:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        return self._kept(self._perform(ops))

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        found: list[Entry] = []
        going: str | None = after
        while going is not None and len(found) < limit:
            params = {"prefix": prefix, "after": going, "limit": min(PAGE, limit - len(found)), "values": "true"}
            page, going = codec.decode_page(await self._request("GET", "/v1/entries", params=params))
            found += page
        return found

    async def check(self) -> list[Finding]:
        """Reachable, permitted, and is the service's own store healthy? Raises only StoreError."""
        started = time.perf_counter()
        version = await self._request("GET", "/version")
        took = time.perf_counter() - started
        return findings(self._address, version, (await self._send("GET", "/readyz")).content, took)

    async def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._closed = True
        tasks = [*self._tasks, *([self._hearing] if self._hearing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._opened is not None:
            await self._opened.aclose()

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's, and its loop's tasks, are left as they are."""
        _parents.append((self._opened, self._tasks, self._hearing, self._preparing))
        self._reset()

    # -- requests

    def _kept(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """The result of a task that is kept until it ends; who cancels this stops only its own waiting."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asyncio.shield(task)

    async def _perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        check_ops(ops)
        if not self._name and waits(ops):
            await self._prepare()
        replies: list[Reply | StoreError] = []
        for encoded in portions(ops, self.client, self._name):
            try:
                replies += codec.decode(await self._request("POST", "/v1/ops", content=encoded.body), encoded)
            except StoreUnavailable as error:
                raise Unanswered(str(error)) if replies else error from None
        return replies

    async def _request(self, method: str, path: str, **what: Any) -> bytes:
        return body_of(await self._send(method, path, **what), self._address)

    async def _send(self, method: str, path: str, **what: Any) -> httpx2.Response:
        try:
            return await self._http().request(method, path, headers=headers(self._address, what), **what)
        except httpx2.HTTPError as error:
            raise unanswered(error, self._address) from error

    def _http(self) -> httpx2.AsyncClient:
        if self._closed:
            raise StoreUnavailable(f"the store {self._address} was closed")
        if self._opened is None:
            self._opened = httpx2.AsyncClient(**self._address.options(self._timeout))
        return self._opened

    # -- hints

    async def _prepare(self) -> None:
        """Returns when hints come, or are unavailable: then they are not tried for a while, and waiters poll."""
        loop = asyncio.get_running_loop()
        if self._preparing is None and loop.time() >= self._again:
            self._again = loop.time() + TRY_AGAIN
            self._preparing = loop.create_future()
            self._hearing = loop.create_task(self._hear())
        if self._preparing is not None:
            await asyncio.wait({self._preparing}, timeout=self._timeout)

    async def _hear(self) -> None:
        patience = httpx2.Timeout(self._timeout, read=SILENCE)
        try:
            async with self._http().stream("GET", "/v1/ops/hints", timeout=patience) as response:
                if response.status_code == 200:
                    async for event in httpx2.EventSource(response):
                        self._heard(event)
        except (httpx2.HTTPError, httpx2.SSEError, httpx2.StreamError, StoreUnavailable):
            pass  # waiters poll
        finally:
            self._name = ""
            self._prepared()

    def _heard(self, event: httpx2.ServerSentEvent) -> None:
        if event.event == "hint" and self._on_hint is not None:
            self._on_hint(str(event.json()))
        elif event.event == "client":
            self._name, self._again = str(event.json()), 0.0
            self._prepared()

    def _prepared(self) -> None:
        preparing, self._preparing = self._preparing, None
        if preparing is not None and not preparing.done():
            preparing.set_result(None)
