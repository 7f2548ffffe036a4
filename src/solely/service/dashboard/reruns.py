"""Reruns: replays of many dead letters, which go on when the page is closed. Their progress is kept in the store, so
that every worker can show it. If the worker dies, the letters that were not run are still there."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from ...errors import SolelyError, not_ours
from ...model import Entry
from ...ops import MAX_BATCH, Advance, Clear
from ..routes import Answer

if TYPE_CHECKING:
    from ..service import Service

log = structlog.get_logger("solely.reruns")

KIND = "rerun/"
KEPT = 20  # replays whose progress is kept
_END = 10**16  # µs: 2286. Ids count down from here, so that the newest comes first in key order
STEP = 0.5  # seconds between saves of the progress: a bar that moves, without a write per letter


class Rerun(Answer):
    """A replay of many letters: `done` of `total`, and at the end `outcomes`. `at` is when the progress was saved,
    `notes` how often; `over` if it has ended, and `failure` says why it stopped early."""

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
    """Starts replays, and lists the last ones."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def last(self) -> list[Rerun]:
        """The last replays, newest first."""
        return [_read(entry) for entry in await self._service.store.scan(KIND, "", KEPT)]

    async def start(self, group: str, error: str, who: str, run: Callable[[Any], Any]) -> Rerun:
        """Starts to run each letter of the group whose last error contains `error`."""
        now = time.time()
        id = f"{_END - int(now * 1e6):016d}-{secrets.token_hex(4)}"
        made = Rerun(id=id, group=group, error=error, who=who, began=now, at=now)
        await self._remove_old()
        await self._save(made)
        self._service.run(self._run(made, run))
        return made

    async def _run(self, made: Rerun, run: Callable[[Any], Any]) -> None:
        """Runs the letters one after the other, and saves the progress."""

        def progress(done: int, total: int) -> None:
            made.done, made.total = done, total

        saving = asyncio.create_task(self._keep_saving(made))
        try:
            box = self._service.letters(made.group)
            outcomes = await box.replay_all(
                run, where=lambda letter: made.error in letter.last_error, progress=progress
            )
            made.outcomes = {outcome.value: count for outcome, count in outcomes.items()}
        except SolelyError as error:
            log.warning("rerun_failed", group=made.group, error=str(error))
            made.failure = "the store failed; what was not run is still there"
        except asyncio.CancelledError:
            made.failure = "the service stopped; what was not run is still there"
            raise
        finally:
            saving.cancel()
            made.over = True
            await self._save(made)

    async def _keep_saving(self, made: Rerun) -> None:
        while True:
            await asyncio.sleep(STEP)
            await self._save(made)

    async def _save(self, made: Rerun) -> None:
        """Saves the progress. The store keeps the greater text, so each begins with a greater number than the last."""
        made.at, made.notes = time.time(), made.notes + 1
        await self._service.perform(Advance(KIND + made.id, b"%010d " % made.notes + msgspec.json.encode(made)))

    async def _remove_old(self) -> None:
        old = (await self._service.store.scan(KIND, "", KEPT + MAX_BATCH))[KEPT - 1 :]
        if old:
            await self._service.perform(*(Clear(entry.key, entry.fence, "older than the newest") for entry in old))


def _read(entry: Entry) -> Rerun:
    """The replay; for an unreadable one, the failure says so."""
    try:
        return msgspec.json.decode((entry.value or b"").partition(b" ")[2], type=Rerun)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        id, at, why = entry.key.removeprefix(KIND), entry.fence / 1e6, f"unreadable: {not_ours(error)}"
        return Rerun(id=id, group="", error="", who="", began=at, at=at, over=True, failure=why)
