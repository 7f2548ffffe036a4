"""Reruns: replays of many dead letters, which go on when the page is closed. How far each is stands in the store, so
that every worker can tell; should its worker die, the letters that were not run are still there."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from ...errors import SolelyError, StoreError, not_ours
from ...model import Entry
from ...ops import MAX_BATCH, Advance, Clear, Op
from ..routes import Answer

if TYPE_CHECKING:
    from ..service import Service

log = structlog.get_logger("solely.reruns")

KIND = "rerun/"
KEPT = 20  # replays that are remembered
_END = 10**16  # µs: 2286. Ids count down from here, so that the newest comes first in key order
STEP = 0.5  # seconds between two notes of how far it is: a bar that moves, and not a write per letter


class Rerun(Answer):
    """A replay of many: `done` of `total`, and in the end by outcome. `at` is when that was noted; `over` if it has
    ended, and `failure` says how if not well; `notes` counts how often it was noted."""

    id: str
    group: str
    error: str
    who: str
    began: float
    at: float
    done: int = 0
    total: int = 0
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)
    over: bool = False
    failure: str = ""
    notes: int = 0


class Reruns:
    """Begins replays, and tells of the last ones."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def last(self) -> list[Rerun]:
        """The last replays, newest first."""
        return [_read(entry) for entry in await self._service.store.scan(KIND, "", KEPT)]

    async def begin(self, group: str, error: str, who: str, run: Callable[[Any], Any]) -> Rerun:
        """Begins to run each letter of the group whose last error contains `error`; on the record."""
        now = time.time()
        id = f"{_END - int(now * 1e6):016d}-{secrets.token_hex(4)}"
        made = Rerun(id=id, group=group, error=error, who=who, began=now, at=now)
        what = f"replay of those with {error!r}" if error else "replay of all"
        await self._service.audit.record(who, "dead-letters.replay", group, what)
        await self._forget_old()
        await self._note(made)
        self._service.run(self._go(made, run))
        return made

    async def _go(self, made: Rerun, run: Callable[[Any], Any]) -> None:
        """Runs them one after the other, and notes how far it is."""

        def stands(done: int, total: int) -> None:
            made.done, made.total = done, total

        noting = asyncio.create_task(self._keep_noting(made))
        try:
            box = self._service.letters(made.group)
            outcomes = await box.replay_all(run, where=lambda letter: made.error in letter.last_error, progress=stands)
            made.outcomes = {outcome.value: count for outcome, count in outcomes.items()}
        except SolelyError as error:
            log.warning("rerun_failed", group=made.group, error=str(error))
            made.failure = "the store failed; what was not run is still there"
        except asyncio.CancelledError:
            made.failure = "the service stopped; what was not run is still there"
            raise
        finally:
            noting.cancel()
            made.over = True
            await self._note(made)

    async def _keep_noting(self, made: Rerun) -> None:
        while True:
            await asyncio.sleep(STEP)
            await self._note(made)

    async def _note(self, made: Rerun) -> None:
        """Keeps how far it is. The store keeps the greater text: each begins with a greater number than the last."""
        made.at, made.notes = time.time(), made.notes + 1
        await self._perform([Advance(KIND + made.id, b"%010d " % made.notes + msgspec.json.encode(made))])

    async def _forget_old(self) -> None:
        old = (await self._service.store.scan(KIND, "", KEPT + MAX_BATCH))[KEPT - 1 :]
        if old:
            await self._perform([Clear(entry.key, entry.fence, "older than those that are kept") for entry in old])

    async def _perform(self, ops: list[Op]) -> None:
        for reply in await self._service.store.perform(ops):
            if isinstance(reply, StoreError):
                raise reply


def _read(entry: Entry) -> Rerun:
    """The replay; one that cannot be read says so as its failure."""
    try:
        return msgspec.json.decode((entry.value or b"").partition(b" ")[2], type=Rerun)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        id, at, why = entry.key.removeprefix(KIND), entry.fence / 1e6, f"unreadable: {not_ours(error)}"
        return Rerun(id=id, group="", error="", who="", began=at, at=at, over=True, failure=why)
