"""Dead letters: what failed, parked by group until it is replayed or purged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..rules import checked_name
from . import flow as deadletter
from .calls import DeadLettersBase, Handler, LetterReplay, Letters, Progress
from .flow import Letter, Where
from .hand_over import LetterInHand
from .replay import LetterOutcome, TakenLetter


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
        """Parks what failed; the letter as it now stands. The same item again is the same letter, failed again.

        `key` is the dedup key of the work (of its claim or mark) and, if no `id` is given, the letter's id; without
        either it is a digest of the payload.
        """
        return self._run(self._pushing(payload, error, key, attempts, origin, id))

    def list(self, *, after: str = "", limit: int = 100, where: Where | None = None) -> Letters:
        """The letters with an id greater than `after`, in the order of ids, as far as `where` says yes to them."""
        return self._run(self._listing(after, limit, where))

    def count(self, where: Where | None = None) -> int:
        """How many letters there are, counted by looking at each."""
        return self._run(self._counting(where))

    def inspect(self, id: str) -> Letter | None:
        """The letter of this id; None if there is none."""
        return self._run(deadletter.inspect(self.group, checked_name("id", id)))

    def replay(self, id: str, handler: Handler) -> LetterReplay:
        """Runs `handler(payload)`, as the only one, if the work has not succeeded meanwhile; never raises its error.

        On success the letter is gone and its key is done, on failure it stays with one more attempt.
        """
        return self._replay(id, handler, None)

    def replay_all(
        self, handler: Handler, *, where: Where | None = None, progress: Progress | None = None
    ) -> Counter[LetterOutcome]:
        """Replays each letter that is there now, one after the other; how many had which outcome.

        Of several that do so at once, each letter is run by one of them.
        """
        letters, told = self._run(self._all(where)), Counter[LetterOutcome]()
        for done, letter in enumerate(letters, 1):
            told[self._replay(letter.id, handler, letter).outcome] += 1
            if progress is not None:
                progress(done, len(letters))
        return told

    def take(self, id: str) -> LetterInHand | LetterOutcome:
        """The letter, for another process to run as the only one within 30 s (more, by renewing its lease); else why
        it need not or cannot be run now: skipped, busy, gone or unreadable."""
        return self._run(self._handing_out(id))

    def ack(self, token: str, value: Any = None) -> LetterOutcome:
        """The letter in hand was run and succeeded: it is gone, and its key is done; as `replay`. Or it was gone."""
        return self._run(self._acking(token, value))

    def fail(self, token: str, error: BaseException | str) -> LetterOutcome:
        """The letter in hand was run and failed: it stays, with one more attempt. Or it was gone."""
        return self._run(self._refusing(token, error))

    def purge(
        self, id: str | None = None, *, where: Where | None = None, all: bool = False, reason: str = "purge"
    ) -> int:
        """Removes the letter of this id, those that `where` says yes to, or all; logged; how many it were."""
        return self._run(self._purging(id, where, all, reason))

    def _replay(self, id: str, handler: Handler, listed: Letter | None) -> LetterReplay:
        taken = self._run(self._taking(id, listed))
        if not isinstance(taken, TakenLetter):
            return LetterReplay(id, taken)
        try:
            value = handler(taken.letter.payload)
        except Exception as error:  # noqa: BLE001 - whatever it raised, it is told and kept
            return self._run(self._failing(taken, error))
        except BaseException:
            self._run(self._giving_back(taken))
            raise
        return self._run(self._succeeding(taken, value))


class AsyncDeadLetters(DeadLettersBase):
    """The dead letters of one group, awaited."""

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
        """Parks what failed; the letter as it now stands. The same item again is the same letter, failed again.

        `key` is the dedup key of the work (of its claim or mark) and, if no `id` is given, the letter's id; without
        either it is a digest of the payload.
        """
        return await self._run(self._pushing(payload, error, key, attempts, origin, id))

    async def list(self, *, after: str = "", limit: int = 100, where: Where | None = None) -> Letters:
        """The letters with an id greater than `after`, in the order of ids, as far as `where` says yes to them."""
        return await self._run(self._listing(after, limit, where))

    async def count(self, where: Where | None = None) -> int:
        """How many letters there are, counted by looking at each."""
        return await self._run(self._counting(where))

    async def inspect(self, id: str) -> Letter | None:
        """The letter of this id; None if there is none."""
        return await self._run(deadletter.inspect(self.group, checked_name("id", id)))

    async def replay(self, id: str, handler: Callable[[Any], Awaitable[Any]] | Handler) -> LetterReplay:
        """Runs `handler(payload)`, as the only one, if the work has not succeeded meanwhile; never raises its error.

        On success the letter is gone and its key is done, on failure it stays with one more attempt. The handler is
        awaited if it is a coroutine.
        """
        return await self._replay(id, handler, None)

    async def replay_all(
        self,
        handler: Callable[[Any], Awaitable[Any]] | Handler,
        *,
        where: Where | None = None,
        progress: Progress | None = None,
    ) -> Counter[LetterOutcome]:
        """Replays each letter that is there now, one after the other; how many had which outcome.

        Of several that do so at once, each letter is run by one of them.
        """
        letters, told = await self._run(self._all(where)), Counter[LetterOutcome]()
        for done, letter in enumerate(letters, 1):
            told[(await self._replay(letter.id, handler, letter)).outcome] += 1
            if progress is not None:
                progress(done, len(letters))
        return told

    async def take(self, id: str) -> LetterInHand | LetterOutcome:
        """The letter, for another process to run as the only one within 30 s (more, by renewing its lease); else why
        it need not or cannot be run now: skipped, busy, gone or unreadable."""
        return await self._run(self._handing_out(id))

    async def ack(self, token: str, value: Any = None) -> LetterOutcome:
        """The letter in hand was run and succeeded: it is gone, and its key is done; as `replay`. Or it was gone."""
        return await self._run(self._acking(token, value))

    async def fail(self, token: str, error: BaseException | str) -> LetterOutcome:
        """The letter in hand was run and failed: it stays, with one more attempt. Or it was gone."""
        return await self._run(self._refusing(token, error))

    async def purge(
        self, id: str | None = None, *, where: Where | None = None, all: bool = False, reason: str = "purge"
    ) -> int:
        """Removes the letter of this id, those that `where` says yes to, or all; logged; how many it were."""
        return await self._run(self._purging(id, where, all, reason))

    async def _replay(self, id: str, handler: Handler, listed: Letter | None) -> LetterReplay:
        taken = await self._run(self._taking(id, listed))
        if not isinstance(taken, TakenLetter):
            return LetterReplay(id, taken)
        try:
            value = handler(taken.letter.payload)
            value = await value if isawaitable(value) else value
        except Exception as error:  # noqa: BLE001 - whatever it raised, it is told and kept
            return await self._run(self._failing(taken, error))
        except BaseException:
            await self._run(self._giving_back(taken))
            raise
        return await self._run(self._succeeding(taken, value))
