"""Dead letters: failed work, parked by group until it is replayed or purged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from ..errors import InvalidInput
from ..functions import finished, plain_function, work_function
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..rules import checked_name
from . import flow as deadletter
from .calls import DeadLettersBase, Handler, LetterReplay, Letters, Progress
from .flow import Letter, Where
from .hand_over import LetterInHand
from .replay import LetterHold, LetterOutcome


class DeadLetters(DeadLettersBase):
    """The dead letters of one group, for threads."""

    def __init__(self, context: Context, run: RunFlow, group: str) -> None:
        super().__init__(context, group)
        self._run = run

    def push(
        self,
        payload: Any,
        *,
        error: BaseException | str,
        key: str = "",
        attempts: int = 1,
        origin: str = "",
        id: str | None = None,
    ) -> Letter:
        """Parks failed work and returns its letter. Work that fails again updates the same letter.

        `key` is the dedup key of the work (of its claim or mark) and, without an `id`, the letter's id; without either,
        the id is a digest of the payload.
        """
        return self._run(self._pushing(payload, error, key, attempts, origin, id))

    def list(self, *, after: str = "", limit: int = 100, where: Where | None = None) -> Letters:
        """The letters with an id greater than `after`, in id order, for which `where` returns True."""
        return self._run(self._listing(after, limit, where))

    def count(self, where: Where | None = None) -> int:
        """The number of letters for which `where` returns True; reads each of them."""
        return self._run(self._counting(where))

    def inspect(self, id: str) -> Letter | None:
        """The letter of this id; None if there is none."""
        return self._run(deadletter.inspect(self.group, checked_name("id", id)))

    def replay(self, id: str, handler: Handler) -> LetterReplay:
        """Runs `handler(payload)`, one caller at a time, unless the work succeeded meanwhile; never raises its error.

        On success the letter is removed and its key is done; on failure it stays with one more attempt. Raises
        InvalidInput for a coroutine function, and for an awaitable that the handler returns: the letter stays.
        """
        return self._replay(id, plain_function("handler", handler), None)

    def replay_all(
        self, handler: Handler, *, where: Where | None = None, progress: Progress | None = None
    ) -> Counter[LetterOutcome]:
        """Replays all current letters, one after the other; returns how many had which outcome.

        If several callers do so at once, each letter is run by one of them.
        """
        plain_function("handler", handler)
        shown = None if progress is None else plain_function("progress", progress)
        letters, outcomes = self._run(self._all(where)), Counter[LetterOutcome]()
        for done, letter in enumerate(letters, 1):
            outcomes[self._replay(letter.id, handler, letter).outcome] += 1
            if shown is not None:
                shown(done, len(letters))
        return outcomes

    def take(self, id: str) -> LetterInHand | LetterOutcome:
        """Takes the letter for another process, which alone may run it for 30 s (longer if it renews the lease); else
        returns why not: skipped, busy, gone or unreadable."""
        return self._run(self._handing_over(id))

    def ack(self, token: str, value: Any = None) -> LetterOutcome:
        """Reports that a taken letter succeeded: removes it and marks its key as done, as `replay`; or returns GONE."""
        return self._run(self._acking_by_token(token, value))

    def fail(self, token: str, error: BaseException | str) -> LetterOutcome:
        """Reports that a taken letter failed: it stays with one more attempt; or returns GONE."""
        return self._run(self._failing_by_token(token, error))

    def purge(
        self, id: str | None = None, *, where: Where | None = None, all: bool = False, reason: str = "purge"
    ) -> int:
        """Removes the letter of this id, those for which `where` returns True, or all; logs and returns how many."""
        return self._run(self._purging(id, where, all, reason))

    def _replay(self, id: str, handler: Handler, listed: Letter | None) -> LetterReplay:
        taken = self._run(self._taking(id, listed))
        if not isinstance(taken, LetterHold):
            return LetterReplay(id, taken)
        try:
            value = handler(taken.letter.payload)
        except Exception as error:  # noqa: BLE001 - any error of the handler is returned and stored
            return self._run(self._failing(taken, error))
        except BaseException:
            self._run(self._giving_back(taken))
            raise
        try:
            value = finished("handler", value)
        except InvalidInput:  # the work was not done: the letter stays as it was
            self._run(self._giving_back(taken))
            raise
        return self._run(self._succeeding(taken, value))


class AsyncDeadLetters(DeadLettersBase):
    """The dead letters of one group, for asyncio."""

    def __init__(self, context: Context, run: AsyncRunFlow, group: str) -> None:
        super().__init__(context, group)
        self._run = run

    async def push(
        self,
        payload: Any,
        *,
        error: BaseException | str,
        key: str = "",
        attempts: int = 1,
        origin: str = "",
        id: str | None = None,
    ) -> Letter:
        """Parks failed work and returns its letter. Work that fails again updates the same letter.

        `key` is the dedup key of the work (of its claim or mark) and, without an `id`, the letter's id; without either,
        the id is a digest of the payload.
        """
        return await self._run(self._pushing(payload, error, key, attempts, origin, id))

    async def list(self, *, after: str = "", limit: int = 100, where: Where | None = None) -> Letters:
        """The letters with an id greater than `after`, in id order, for which `where` returns True."""
        return await self._run(self._listing(after, limit, where))

    async def count(self, where: Where | None = None) -> int:
        """The number of letters for which `where` returns True; reads each of them."""
        return await self._run(self._counting(where))

    async def inspect(self, id: str) -> Letter | None:
        """The letter of this id; None if there is none."""
        return await self._run(deadletter.inspect(self.group, checked_name("id", id)))

    async def replay(self, id: str, handler: Callable[[Any], Awaitable[Any]] | Handler) -> LetterReplay:
        """Runs `handler(payload)`, one caller at a time, unless the work succeeded meanwhile; never raises its error.

        On success the letter is removed and its key is done; on failure it stays with one more attempt. An awaitable
        that the handler returns is awaited.
        """
        return await self._replay(id, work_function("handler", handler), None)

    async def replay_all(
        self,
        handler: Callable[[Any], Awaitable[Any]] | Handler,
        *,
        where: Where | None = None,
        progress: Progress | None = None,
    ) -> Counter[LetterOutcome]:
        """Replays all current letters, one after the other; returns how many had which outcome.

        If several callers do so at once, each letter is run by one of them.
        """
        work_function("handler", handler)
        shown = None if progress is None else plain_function("progress", progress)
        letters, outcomes = await self._run(self._all(where)), Counter[LetterOutcome]()
        for done, letter in enumerate(letters, 1):
            outcomes[(await self._replay(letter.id, handler, letter)).outcome] += 1
            if shown is not None:
                shown(done, len(letters))
        return outcomes

    async def take(self, id: str) -> LetterInHand | LetterOutcome:
        """Takes the letter for another process, which alone may run it for 30 s (longer if it renews the lease); else
        returns why not: skipped, busy, gone or unreadable."""
        return await self._run(self._handing_over(id))

    async def ack(self, token: str, value: Any = None) -> LetterOutcome:
        """Reports that a taken letter succeeded: removes it and marks its key as done, as `replay`; or returns GONE."""
        return await self._run(self._acking_by_token(token, value))

    async def fail(self, token: str, error: BaseException | str) -> LetterOutcome:
        """Reports that a taken letter failed: it stays with one more attempt; or returns GONE."""
        return await self._run(self._failing_by_token(token, error))

    async def purge(
        self, id: str | None = None, *, where: Where | None = None, all: bool = False, reason: str = "purge"
    ) -> int:
        """Removes the letter of this id, those for which `where` returns True, or all; logs and returns how many."""
        return await self._run(self._purging(id, where, all, reason))

    async def _replay(self, id: str, handler: Handler, listed: Letter | None) -> LetterReplay:
        taken = await self._run(self._taking(id, listed))
        if not isinstance(taken, LetterHold):
            return LetterReplay(id, taken)
        try:
            value = handler(taken.letter.payload)
            value = await value if isawaitable(value) else value
        except Exception as error:  # noqa: BLE001 - any error of the handler is returned and stored
            return await self._run(self._failing(taken, error))
        except BaseException:
            await self._run(self._giving_back(taken))
            raise
        try:
            value = finished("handler", value)
        except InvalidInput:  # the work was not done: the letter stays as it was
            await self._run(self._giving_back(taken))
            raise
        return await self._run(self._succeeding(taken, value))
