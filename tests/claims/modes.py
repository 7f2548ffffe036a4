"""Claims of both kinds, spoken to in one way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Self

from solely import AsyncClient, Claim, Client, Entry
from solely.ops import Clear, Op, Read
from solely.stores import Clock, open_store
from tests.client.modes import InThread, in_thread
from tests.conftest import PATIENT

PROMPT = 15.0  # seconds: far above any push, half of the wait that a missed one would cost


def inner(mode: Any) -> Any:
    """The client or claim itself."""
    return getattr(mode, "it", mode)


async def in_line(client: Any, key: str, number: int) -> None:
    """Returns once that many callers of the client stand in its line for the claim."""
    waiters = inner(client)._driver.waiters
    ends = time.monotonic() + PROMPT
    while len(waiters._others.get(f"claim/{key}", ())) + (f"claim/{key}" in waiters._first) < number:
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)


class ClaimsInThread(InThread):
    """A blocking client or claim whose methods are awaited, each on a thread."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.it, name) if name in ("idempotent", "result") else super().__getattr__(name)

    async def _call(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = await in_thread(work, *args, **options)
        if isinstance(result, list):
            return [ClaimsInThread(one) for one in result]
        return ClaimsInThread(result) if isinstance(result, Claim) else result


KINDS: dict[str, Callable[..., Any]] = {
    "blocking": lambda url, **options: ClaimsInThread(Client(url, **options)),
    "asyncio": AsyncClient,
}


def guarded(once: Any, work: Callable[..., Any], **options: Any) -> Callable[..., Awaitable[Any]]:
    """The function under `@once.idempotent`, awaited whatever the client's kind."""
    if isinstance(once, ClaimsInThread):
        blocking = once.idempotent(**options)(work)
        return lambda *args, **kwargs: in_thread(blocking, *args, **kwargs)

    @wraps(work)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    decorated: Callable[..., Awaitable[Any]] = once.idempotent(**options)(awaited)
    return decorated


class Peek:
    """Reads claims directly, as nobody's client."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._store = open_store(url, clock=clock, timeout=PATIENT)

    def __call__(self, key: str) -> Entry:
        """The entry of a claim."""
        entry: Any = self.perform(Read(f"claim/{key}"))
        return entry  # type: ignore[no-any-return]

    def perform(self, op: Op) -> Any:
        """The reply to an op that no client sent."""
        return self._store.perform([op])[0]

    def clear(self, key: str) -> None:
        """Removes the claim, as an admin would."""
        assert self.perform(Clear(f"claim/{key}", self(key).fence, "test"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self._store.close()
