"""Signals over HTTP: producers post batches, consumers read the next signal, operators look and act."""

from __future__ import annotations

import time
from typing import Any

from ... import Busy, InvalidInput, LetterOutcome
from ...kit import (
    BUSY,
    KIB,
    READ,
    UNKNOWN,
    WRITE,
    Affected,
    Call,
    Problem,
    Route,
    Rows,
    act_routes,
    list_route,
)
from . import acts
from .bodies import (
    MOST,
    Acknowledged,
    AcknowledgeSignal,
    DeadSignal,
    DeadSignalsQuery,
    LeaseSignal,
    NextQuery,
    ReplaySignals,
    RollbackSignals,
    SignalBatch,
    SignalBatchAnswer,
    SignalGroupRow,
    SignalGroupsQuery,
    SignalsRolledBack,
    SwitchFlag,
    WaitingQuery,
    dead_signal,
    group_row,
)
from .model import LETTERS, SignalGroup
from .rollback import PAGE, PREFIXES
from .runtime import PostedSignal, SignalsRuntime, SwitchedOff
from .table import StoredSignal

HOUR = 3_600
SIZE = 1024 * KIB  # bytes of a batch: 1 KiB for each signal
AGAIN = 1.0  # seconds after which a producer may post again: a group is handled in less


class SignalHandlers:
    """The handlers of the API."""

    def __init__(self, app: SignalsRuntime) -> None:
        self._app = app

    async def post(self, call: Call[SignalBatch, None]) -> SignalBatchAnswer:
        """Writes a batch."""
        group = SignalGroup(call.params["house"], call.params["game"])
        result = await self._app.receive(_posted(group, call.body.signals), group)
        if result.outcome == "contended":
            text = f"another producer is posting signals of {group.house}/{group.game}: post again"
            raise Busy(text, key=group.lock, left=AGAIN)
        counts = {name: getattr(result, name) for name in ("generated", "deduplicated", "dead_lettered")}
        return SignalBatchAnswer(outcome=result.outcome, **counts)

    async def next(self, call: Call[None, None]) -> StoredSignal:
        """The next signal of the group that is not acknowledged."""
        return _found(await self._app.table.waiting(call.params["house"], call.params["game"]))

    async def next_of_all(self, call: Call[None, NextQuery]) -> StoredSignal:
        """The next signal that is not acknowledged."""
        return _found(await self._app.table.waiting(call.query.house, call.query.game))

    async def lease(self, call: Call[LeaseSignal, None]) -> StoredSignal:
        """The next signal of the group that nobody has, for a while."""
        taken = await self._app.table.take(call.params["house"], call.params["game"], call.body.lease)
        return _found([taken] if taken else [])

    async def acknowledge(self, call: Call[AcknowledgeSignal, None]) -> Acknowledged:
        """Records that a signal was processed."""
        return Acknowledged(acknowledged=await self._app.table.acknowledge(call.body.id))

    # -- lists

    async def waiting(self, query: WaitingQuery) -> list[StoredSignal]:
        return await self._app.table.waiting(query.house, query.game, query.limit)

    async def groups(self, query: SignalGroupsQuery) -> list[SignalGroupRow]:
        return await self.groups_since(HOUR, query.limit)

    async def groups_since(self, seconds: int, limit: int) -> list[SignalGroupRow]:
        """The groups of so many last seconds."""
        await self._app.minutes.flush()
        found = await self._app.queries.rows("groups", since=int(time.time()) - seconds, limit=limit)
        waiting = await self._app.table.counts()
        return [group_row(row, waiting.get((row["house"], row["game"]), 0)) for row in found]

    async def dead_letters(self, query: DeadSignalsQuery) -> Rows[DeadSignal]:
        found = await self._letters.list(after=query.after, limit=query.limit)
        return Rows([dead_signal(each) for each in found], found[-1].id if len(found) == query.limit else None)

    @property
    def _letters(self) -> Any:
        return self._app.once.dead_letters(self._app.own(LETTERS))

    # -- acts

    async def off(self, call: Call[SwitchFlag, None]) -> bool:
        """Switches the flag off."""
        return await self._app.switch(SwitchedOff(call.principal.name, call.reason))

    async def on(self, call: Call[SwitchFlag, None]) -> bool:
        """Switches the flag on."""
        return await self._app.switch(None) and self._app.generator.use_idempotent_signals

    async def replay(self, call: Call[ReplaySignals, None]) -> int:
        """Replays all dead letters."""
        outcomes = await self._app.generator.replay_all()
        return int(outcomes[LetterOutcome.REPLAYED] + outcomes[LetterOutcome.SKIPPED])

    async def replayable(self, call: Call[Any, Any], wanted: ReplaySignals) -> Affected | None:
        """What a replay would affect now."""
        found = len(await self._letters.list(limit=MOST))
        return Affected(f"{found} dead {'letter' if found == 1 else 'letters'} of signals") if found else None

    async def rollback(self, call: Call[RollbackSignals, None]) -> SignalsRolledBack:
        """Removes what the store has of idempotent signals, unless they are on or a letter is not exported."""
        app, letters = self._app, self._letters
        await app.read_flag()
        exported = set(call.body.exported)
        found = await letters.list(limit=MOST * MOST)
        if app.generator.use_idempotent_signals or any(f"{each.fence}/{each.id}" not in exported for each in found):
            return SignalsRolledBack(rolled_back=False)
        removed = await letters.purge(where=lambda each: f"{each.fence}/{each.id}" in exported, reason=call.reason)
        return SignalsRolledBack(rolled_back=True, dead_letters=removed, marks=await self._remove_marks())

    async def _remove_marks(self) -> int:
        once, own, removed = self._app.once, self._app.own, 0
        for prefix in map(own, PREFIXES):
            while page := await once.marks(prefix, limit=PAGE):
                for mark in page:
                    removed += await once.forget(mark.key)
        return removed


def _posted(group: SignalGroup, signals: list[dict[str, Any]]) -> list[PostedSignal]:
    """The signals, each with its credential; raises InvalidInput, and nothing is written, if one names none."""
    found = []
    for place, signal in enumerate(signals):
        username = signal.get("username")
        try:
            group.key(username)  # type: ignore[arg-type]  # which is checked there
        except InvalidInput as error:
            raise InvalidInput(f"signals[{place}].username: {error}") from None
        found.append(PostedSignal(group, str(username), signal, place))
    return found


async def _flagged(call: Call[Any, Any], wanted: object) -> Affected:
    """What the acts of the flag affect."""
    return Affected("idempotent signals")


def _found(signals: list[StoredSignal]) -> StoredSignal:
    if not signals:
        raise Problem(UNKNOWN, "no signal waits")
    return signals[0]


def routes(app: SignalsRuntime) -> list[Route]:
    """The routes of the API."""
    handlers, group = SignalHandlers(app), "/api/signals/{house}/{game}"
    posted = "Post the signals of a group: each credential gets one per window"
    same = "Safe: signals that the window has are left out."
    leased = "Lease the next signal of a group, so that no other consumer that leases gets it"
    again = "Leases another one: acknowledge what was processed."
    acknowledged = "Acknowledge a signal, which is not read again"
    return [
        Route(
            "POST", group, WRITE, handlers.post, posted, refusals=(BUSY,), grants=True, cap=SIZE, over_max_body=True,
            again=same,
        ),
        Route("GET", f"{group}/next", READ, handlers.next, "Read the next signal of a group", refusals=(UNKNOWN,)),
        Route("POST", f"{group}/next", WRITE, handlers.lease, leased, refusals=(UNKNOWN,), grants=True, again=again),
        Route("GET", "/api/signals/next", READ, handlers.next_of_all, "Read the next signal", refusals=(UNKNOWN,)),
        Route(
            "POST", "/api/signals/acknowledge", WRITE, handlers.acknowledge, acknowledged, again="Nothing more happens."
        ),
        list_route(acts.GROUPS, handlers.groups),
        list_route(acts.WAITING, handlers.waiting),
        list_route(acts.DEAD_LETTERS, handlers.dead_letters),
        *act_routes(acts.OFF, handlers.off, _flagged),
        *act_routes(acts.ON, handlers.on, _flagged),
        *act_routes(acts.REPLAY, handlers.replay, handlers.replayable),
        *act_routes(acts.ROLLBACK, handlers.rollback, _flagged),
    ]  # fmt: skip
