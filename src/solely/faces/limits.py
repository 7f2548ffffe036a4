"""Limits: so many in any window of time, and not one more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from .. import events
from ..core import Core
from ..errors import Limited
from ..flows import limit as flows
from ..flows.requests import Flow
from ..model import Allowance
from ..policies import checked_limit
from ..rules import Seconds, stored_key, ttl_seconds
from . import AsyncFace, Face

UNGUARDED = "", Allowance(True, 0)  # the answer of a client that goes on without its store


def hitting(core: Core, key: str, limit: int, per: float) -> Flow[tuple[str, Allowance]]:
    """The owner of the hit and the answer, told."""
    flow = flows.hit(key, limit, per)
    owner, allowance = yield from core.or_proceed(key, "limit", flow, lambda: UNGUARDED)
    if core.hook is not None:
        core.hook(events.Limited(key, allowance.allowed))
    return owner, allowance


class AdmissionFace:
    """Truthy if allowed; `hits` are in the window now, and `retry_after` says in how many seconds one more may be."""

    def __init__(self, key: str, owner: str, allowance: Allowance) -> None:
        self.key = key
        self.allowed = allowance.allowed
        self.hits = allowance.hits
        self.retry_after = allowance.retry_after
        self._owner = owner

    def __bool__(self) -> bool:
        return self.allowed

    def or_raise(self) -> Self:
        """Itself if allowed; else raises Limited, which says when the next is."""
        if not self.allowed:
            text = f"limit {self.key!r} is reached ({self.hits}); the next is allowed in {self.retry_after:.3f} s"
            raise Limited(text, key=self.key, left=self.retry_after)
        return self

    def _undoing(self) -> Flow[bool]:
        if not self.allowed or not self._owner:
            return False
        return (yield from flows.undo(stored_key("limit", self.key), self._owner))

    def __repr__(self) -> str:
        answer = "allowed" if self.allowed else f"limited for {self.retry_after:.3f} s"
        return f"<{type(self).__name__} {self.key!r} {answer}, {self.hits} hits>"


class Admission(AdmissionFace):
    """The answer to a limit, for threads."""

    def __init__(self, key: str, answer: tuple[str, Allowance], run: Callable[[Flow[bool]], bool]) -> None:
        super().__init__(key, *answer)
        self._run = run

    def undo(self) -> bool:
        """Gives the hit back, since what it allowed was not done; False if there is none to give back."""
        return self._run(self._undoing())


class AsyncAdmission(AdmissionFace):
    """The answer to a limit, for asyncio."""

    def __init__(self, key: str, answer: tuple[str, Allowance], run: Callable[[Flow[Any]], Awaitable[Any]]) -> None:
        super().__init__(key, *answer)
        self._run = run

    async def undo(self) -> bool:
        """Gives the hit back, since what it allowed was not done; False if there is none to give back."""
        given_back: bool = await self._run(self._undoing())
        return given_back


class Limits(Face):
    """Limits, for threads."""

    def limit(self, key: str, *, limit: int, per: Seconds) -> Admission:
        """Truthy for at most `limit` callers in any window of `per` seconds, across all processes; else says when."""
        stored = stored_key("limit", key)
        most, window = checked_limit(limit, self._store.max_limit), ttl_seconds(per, "per")
        return Admission(key, self._run(hitting(self._core, stored, most, window)), self._run)


class AsyncLimits(AsyncFace):
    """Limits, awaited."""

    async def limit(self, key: str, *, limit: int, per: Seconds) -> AsyncAdmission:
        """Truthy for at most `limit` callers in any window of `per` seconds, across all processes; else says when."""
        stored = stored_key("limit", key)
        most, window = checked_limit(limit, self._store.max_limit), ttl_seconds(per, "per")
        return AsyncAdmission(key, await self._run(hitting(self._core, stored, most, window)), self._run)
