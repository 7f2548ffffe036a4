"""Dead letters: what failed, parked by group until it is replayed or purged."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput
from ..events import DeadLettered
from ..flows import deadletter
from ..flows import replay as replays
from ..flows.deadletter import Letter, Where
from ..flows.replay import LetterOutcome, Taken
from ..flows.requests import Flow
from ..holder import describe
from ..model import item_key
from ..rules import stored_key
from .handout import LetterInHand, in_hand, taken_again

if TYPE_CHECKING:
    from ..core import Core
    from ..faces import AsyncRun, Run

log = logging.getLogger("solely")

Handler = Callable[[Any], Any]
Progress = Callable[[int, int], object]  # is told how many are done, of how many
Letters = list[Letter]
_AT_ONCE = 1_000  # letters removed in one batch


@dataclass(frozen=True, slots=True)
class LetterReplay:
    """What became of one letter: `value` is what its handler returned, `error` what it raised."""

    id: str
    outcome: LetterOutcome
    value: Any = None
    error: Exception | None = None


class DeadLettersFace:
    """What both handles decide alike; asking and running is theirs."""

    def __init__(self, core: Core, group: str) -> None:
        self.group = _name("group", group)
        self._core = core

    def _pushing(self, payload: Any, error: Any, key: str, attempts: Any, origin: str, id: str | None) -> Flow[Letter]:
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise InvalidInput(f"attempts must be a whole number, at least 1, not {attempts!r:.80}")
        if not isinstance(error, BaseException | str):
            raise InvalidInput(f"error must be an exception or a text, not {type(error).__name__}: {error!r:.80}")
        facts: dict[str, Any] = {
            "key": _name("key", key) if key else "",
            "attempts": attempts,
            "origin": origin or describe(self._core.info("")).partition(" since ")[0],
            "id": "" if id is None else _name("id", id),
            "error": error,
            "at": datetime.now(UTC),
        }
        op = deadletter.letter(self.group, payload, **facts)
        flow = self._telling(deadletter.push(self.group, payload, **facts))
        return self._core.or_proceed(
            item_key(op.queue, op.id), "dead_letter", flow, lambda: deadletter.as_pushed(op)
        )  # fmt: skip

    def _telling(self, flow: Flow[Letter]) -> Flow[Letter]:
        letter = yield from flow
        key = item_key(deadletter.queue_of(self.group), letter.id)
        facts = {"key": key, "group": self.group, "attempts": letter.attempts, "error": letter.last_error}
        log.warning("dead_lettered", extra=facts)
        if self._core.hook is not None:
            self._core.hook(DeadLettered(key, self.group, letter.attempts))
        return letter

    def _listing(self, after: str, limit: Any, where: Where | None) -> Flow[list[Letter]]:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidInput(f"limit must be a whole number, at least 1, not {limit!r:.80}")
        found: list[Letter] = []

        def visit(letter: Letter) -> bool:
            if where is None or where(letter):
                found.append(letter)
            return len(found) < limit

        yield from deadletter.each(self.group, visit, after)
        return found

    def _all(self, where: Where | None) -> Flow[list[Letter]]:
        """All of them without their payloads, which together may be larger than what a process should hold."""
        found: list[Letter] = []

        def visit(letter: Letter) -> bool:
            if where is None or where(letter):
                found.append(replace(letter, payload=None))
            return True

        yield from deadletter.each(self.group, visit)
        return found

    def _counting(self, where: Where | None) -> Flow[int]:
        return len((yield from self._all(where)))

    def _purging(self, id: str | None, where: Where | None, all: bool, reason: str) -> Flow[int]:
        if (id is not None) + (where is not None) + bool(all) != 1:
            raise InvalidInput("purge what? Give one of: an id, where=…, all=True")
        if id is None:
            letters = yield from self._all(where)
        else:
            known = yield from deadletter.inspect(self.group, _name("id", id))
            letters = [] if known is None else [known]
        removed = 0
        for start in range(0, len(letters), _AT_ONCE):
            removed += yield from deadletter.remove(letters[start : start + _AT_ONCE], reason)
        log.warning("dead_letters_purged", extra={"group": self.group, "count": removed, "reason": reason})
        return removed

    # -- replay

    def _taking(self, id: str, listed: Letter | None) -> Flow[Taken | LetterOutcome]:
        info = self._core.info(f"replays a dead letter of {self.group}")
        taken = yield from replays.take(self.group, _name("id", id), info, listed)
        if isinstance(taken, Taken):
            taken.hold.keep(True, math.inf)
            self._core.keep(taken.hold)
        return taken

    def _succeeding(self, taken: Taken, value: Any) -> Flow[LetterReplay]:
        self._core.book.remove(taken.hold)
        self._core.desk.flights.forget(taken.hold.key)  # a failure that the cache of claims may remember
        if not (yield from replays.succeeded(taken, value)):
            log.warning("replay_superseded", extra={"key": taken.hold.key, "fence": taken.hold.fence})
        return LetterReplay(taken.letter.id, LetterOutcome.REPLAYED, value)

    def _failing(self, taken: Taken, error: Exception | str) -> Flow[LetterReplay]:
        self._core.book.remove(taken.hold)
        yield from replays.failed(taken, error, datetime.now(UTC))
        told = None if isinstance(error, str) else error
        return LetterReplay(taken.letter.id, LetterOutcome.FAILED, error=told)

    def _giving_back(self, taken: Taken) -> Flow[None]:
        self._core.book.remove(taken.hold)
        return replays.give_back(taken)

    # -- replay by another process

    def _handing_out(self, id: str) -> Flow[LetterInHand | LetterOutcome]:
        info = self._core.info(f"replays a dead letter of {self.group}")
        taken = yield from replays.take(self.group, _name("id", id), info)
        return in_hand(taken) if isinstance(taken, Taken) else taken

    def _acking(self, token: str, value: Any) -> Flow[LetterOutcome]:
        taken = yield from taken_again(self.group, token)
        return LetterOutcome.GONE if taken is None else (yield from self._succeeding(taken, value)).outcome

    def _refusing(self, token: str, error: Any) -> Flow[LetterOutcome]:
        taken = yield from taken_again(self.group, token)
        return LetterOutcome.GONE if taken is None else (yield from self._failing(taken, error)).outcome

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group!r}>"


class DeadLetters(DeadLettersFace):
    """The dead letters of one group, for threads."""

    def __init__(self, core: Core, run: Run, group: str) -> None:
        super().__init__(core, group)
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
        return self._run(deadletter.inspect(self.group, _name("id", id)))

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
        it need not or cannot be run now: skipped, busy or gone."""
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
        if not isinstance(taken, Taken):
            return LetterReplay(id, taken)
        try:
            value = handler(taken.letter.payload)
        except Exception as error:  # noqa: BLE001 - whatever it raised, it is told and kept
            return self._run(self._failing(taken, error))
        except BaseException:
            self._run(self._giving_back(taken))
            raise
        return self._run(self._succeeding(taken, value))


class AsyncDeadLetters(DeadLettersFace):
    """The dead letters of one group, awaited."""

    def __init__(self, core: Core, run: AsyncRun, group: str) -> None:
        super().__init__(core, group)
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
        return await self._run(deadletter.inspect(self.group, _name("id", id)))

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
        it need not or cannot be run now: skipped, busy or gone."""
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
        if not isinstance(taken, Taken):
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


def _name(what: str, text: str) -> str:
    """The text if it can be (a part of) a key; else InvalidInput."""
    try:
        stored_key("item", text)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None
    return text
