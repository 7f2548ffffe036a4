"""Calls of dead letters, the same for threads and asyncio: checked arguments, outage rule, logs and events."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ..errors import InvalidInput
from ..events import DeadLettered
from ..flow import Flow
from ..functions import finished, plain_function
from ..holder import describe
from ..leases.context import Context
from ..logs import get_logger
from ..model import item_key
from ..rules import checked_name
from . import flow as deadletter
from . import replay as replays
from .flow import Letter, Where
from .hand_over import LetterInHand, hand_over, read_hand_over
from .replay import LetterHold, LetterOutcome

log = get_logger()

Handler = Callable[[Any], Any]
Progress = Callable[[int, int], object]  # called with the number of letters done, and the total
Letters = list[Letter]
_AT_ONCE = 1_000  # letters removed in one batch


@dataclass(frozen=True, slots=True)
class LetterReplay:
    """The result of one replay: `value` is what the handler returned, `error` what it raised."""

    id: str
    outcome: LetterOutcome
    value: Any = None
    error: Exception | None = None


class DeadLettersBase:
    """The dead letters of one group, the same for threads and asyncio."""

    def __init__(self, context: Context, group: str) -> None:
        self.group = checked_name("group", group)
        self._context = context

    def _pushing(self, payload: Any, error: Any, key: str, attempts: Any, origin: str, id: str | None) -> Flow[Letter]:
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise InvalidInput(f"attempts must be an int of at least 1, not {attempts!r:.80}")
        if not isinstance(error, BaseException | str):
            raise InvalidInput(f"error must be an exception or a text, not {type(error).__name__}: {error!r:.80}")
        facts: dict[str, Any] = {
            "key": checked_name("key", key) if key else "",
            "attempts": attempts,
            "origin": origin or describe(self._context.signature.info("")).partition(" since ")[0],
            "id": "" if id is None else checked_name("id", id),
            "error": error,
            "at": datetime.now(UTC),
        }
        op = deadletter.letter(self.group, payload, **facts)
        flow = self._reported(deadletter.push(self.group, payload, **facts))
        return self._context.or_proceed(
            item_key(op.queue, op.id), "dead_letter", flow, lambda: deadletter.as_pushed(op)
        )  # fmt: skip

    def _reported(self, flow: Flow[Letter]) -> Flow[Letter]:
        letter = yield from flow
        key = item_key(deadletter.queue_of(self.group), letter.id)
        facts = {"key": key, "group": self.group, "attempts": letter.attempts, "error": letter.last_error}
        text = "dead_lettered: %(key)r is a dead letter of %(group)r after %(attempts)d attempts: %(error)s"
        log.warning(text, facts, extra=facts)
        if self._context.hook is not None:
            self._context.hook(DeadLettered(key, self.group, letter.attempts))
        return letter

    def _listing(self, after: str, limit: Any, where: Where | None) -> Flow[list[Letter]]:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidInput(f"limit must be an int of at least 1, not {limit!r:.80}")
        found, chosen = list[Letter](), None if where is None else plain_function("where", where)

        def visit(letter: Letter) -> bool:
            if chosen is None or finished("where", chosen(letter)):
                found.append(letter)
            return len(found) < limit

        yield from deadletter.each(self.group, visit, after)
        return found

    def _all(self, where: Where | None) -> Flow[list[Letter]]:
        """All letters without their payloads, which together may be too large for memory."""
        found, chosen = list[Letter](), None if where is None else plain_function("where", where)

        def visit(letter: Letter) -> bool:
            if chosen is None or finished("where", chosen(letter)):
                found.append(replace(letter, payload=None))
            return True

        yield from deadletter.each(self.group, visit)
        return found

    def _counting(self, where: Where | None) -> Flow[int]:
        return len((yield from self._all(where)))

    def _purging(self, id: str | None, where: Where | None, all: bool, reason: str) -> Flow[int]:
        if (id is not None) + (where is not None) + bool(all) != 1:
            raise InvalidInput("purge needs exactly one of: an id, where=…, all=True")
        if id is None:
            letters = yield from self._all(where)
        else:
            known = yield from deadletter.inspect(self.group, checked_name("id", id))
            letters = [] if known is None else [known]
        removed = 0
        for start in range(0, len(letters), _AT_ONCE):
            removed += yield from deadletter.remove(letters[start : start + _AT_ONCE], reason)
        facts = {"group": self.group, "count": removed, "reason": reason}
        log.warning(
            "dead_letters_purged: %(count)d dead letters of %(group)r were removed: %(reason)s", facts, extra=facts
        )
        return removed

    # -- replay

    def _taking(self, id: str, listed: Letter | None) -> Flow[LetterHold | LetterOutcome]:
        info = self._context.signature.info(f"replays a dead letter of {self.group}")
        taken = yield from replays.take(self.group, checked_name("id", id), info, listed)
        if isinstance(taken, LetterHold):
            taken.hold.keep(True, math.inf)
            self._context.keep(taken.hold)
        return taken

    def _succeeding(self, taken: LetterHold, value: Any) -> Flow[LetterReplay]:
        self._context.keeper.remove(taken.hold)
        self._context.forget_cached(taken.hold.key)  # the cache of claims may have the failure
        if not (yield from replays.succeeded(taken, value)):
            facts = {"key": taken.hold.key, "fence": taken.hold.fence}
            log.warning(
                "replay_superseded: %(key)r has another result than this replay (fence %(fence)d) returned",
                facts,
                extra=facts,
            )
        return LetterReplay(taken.letter.id, LetterOutcome.REPLAYED, value)

    def _failing(self, taken: LetterHold, error: Exception | str) -> Flow[LetterReplay]:
        self._context.keeper.remove(taken.hold)
        yield from replays.failed(taken, error, datetime.now(UTC))
        raised = None if isinstance(error, str) else error
        return LetterReplay(taken.letter.id, LetterOutcome.FAILED, error=raised)

    def _giving_back(self, taken: LetterHold) -> Flow[None]:
        self._context.keeper.remove(taken.hold)
        return replays.give_back(taken)

    # -- replay by another process

    def _handing_over(self, id: str) -> Flow[LetterInHand | LetterOutcome]:
        info = self._context.signature.info(f"replays a dead letter of {self.group}")
        taken = yield from replays.take(self.group, checked_name("id", id), info)
        return hand_over(taken) if isinstance(taken, LetterHold) else taken

    def _acking_by_token(self, token: str, value: Any) -> Flow[LetterOutcome]:
        taken = yield from read_hand_over(self.group, token)
        return LetterOutcome.GONE if taken is None else (yield from self._succeeding(taken, value)).outcome

    def _failing_by_token(self, token: str, error: Any) -> Flow[LetterOutcome]:
        taken = yield from read_hand_over(self.group, token)
        return LetterOutcome.GONE if taken is None else (yield from self._failing(taken, error)).outcome

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group!r}>"
