"""The signals of the service in its database, and what consumers get of them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ...kit import Answer, Queries, from_row
from .model import SignalGroup

PAGE = 200  # rows that one statement deletes: few enough that it blocks nobody


class StoredSignal(Answer):
    """A signal as consumers get it: `signal` is what the producer posted. `at` is when it was written."""

    id: str
    house: str
    game: str
    username: str
    priority: float
    at: float
    signal: dict[str, Any]


class SignalTable:
    """The table of signals: the most urgent first, then the oldest."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def write(self, group: SignalGroup, username: str, signal: dict[str, Any], place: int, id: str) -> bool:
        """Writes the signal, which has this place in its batch, under this id; False if it is there."""
        text = msgspec.json.encode(signal).decode().replace("\\u0000", "")
        values: dict[str, Any] = {
            "id": id,
            "place": place,
            "house": group.house,
            "game": group.game,
            "username": username,
        }
        return await self._queries.run("write", **values, priority=priority_of(signal), signal=text) == 1

    async def waiting(self, house: str = "", game: str = "", limit: int = 1) -> list[StoredSignal]:
        """The signals that are not acknowledged, of this house and game or of all."""
        found = await self._queries.rows("waiting", house=house, game=game, limit=limit)
        return [from_row(StoredSignal, row) for row in found]

    async def take(self, house: str, game: str, lease: float) -> StoredSignal | None:
        """The next signal that is neither acknowledged nor leased, leased for so many seconds; None without one."""
        row = await self._queries.row("take", house=house, game=game, lease=lease)
        return None if row is None else from_row(StoredSignal, row)

    async def acknowledge(self, id: str) -> bool:
        """Records that the signal was processed; False if it was, or is unknown."""
        return await self._queries.run("acknowledge", id=id) == 1

    async def sweep(self, older_than: float) -> None:
        """Deletes signals that were acknowledged so many seconds ago."""
        deleted = PAGE
        while deleted == PAGE:
            deleted = await self._queries.run("forget", before=time.time() - older_than, page=PAGE)

    async def counts(self) -> dict[tuple[str, str], int]:
        """How many signals wait, by house and game."""
        return {(row["house"], row["game"]): row["waiting"] for row in await self._queries.rows("count_waiting")}


def priority_of(signal: dict[str, Any]) -> float:
    """The number in the signal's field `priority` or `Priority`; 0 without one."""
    given = signal.get("priority", signal.get("Priority", 0))
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else 0.0
