"""Silences: an admin suppresses alerts for a time, from now or later, and for a reason. They can be edited until they
end.

Every worker has a copy of the silences in effect, at most a second old, so that matching an alert needs no query.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence

import msgspec

from .... import InvalidInput
from ....kit import DAY, Matcher, Queries, Row, from_row, parse_matchers, without_nul
from ..model import Alert
from .matchers import checked, matches

MOST = 1_000  # current and future silences: each alert is matched with all of them
LONGEST = 366 * DAY  # seconds: for longer, turn the sender off
REMEMBERED = 30 * DAY  # seconds that a silence is listed after its end


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """From `starts` until `ends` (seconds of UTC), alerts that match all matchers are suppressed."""

    id: str
    matchers: tuple[str, ...]
    starts: float
    ends: float
    made: float
    made_by: str
    reason: str
    ended_by: str = ""
    ended_why: str = ""


class Silences:
    """The silences in the database, and this worker's copy of the current and future ones."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._copy: dict[Silence, tuple[Matcher, ...]] = {}  # those that end last first

    def match(self, alert: Alert) -> Silence | None:
        """A silence that suppresses this alert now, according to this worker's copy."""
        return next(self.matching(alert), None) if self._copy else None

    def matching(self, alert: Alert) -> Iterator[Silence]:
        """All silences that suppress this alert now, the one that ends last first."""
        now = time.time()
        current = ((each, matchers) for each, matchers in self._copy.items() if each.starts <= now < each.ends)
        return (each for each, matchers in current if matches(matchers, alert))

    async def refresh(self) -> None:
        """Copies the current and future silences. If the database fails (DataError), the last copy stays."""
        found = await self.list(limit=MOST)
        self._copy = {each: self._copy.get(each) or parse_matchers(each.matchers) for each in reversed(found)}

    async def add(
        self, matchers: Sequence[str], *, ends: float, by: str, reason: str, starts: float | None = None
    ) -> Silence:
        """Adds a silence from `starts` (default: now) until `ends`. It applies in this worker at once and in others
        within a second. InvalidInput if the arguments are invalid, or there are too many silences."""
        now = time.time()
        row = _row(matchers, starts, ends, by, reason, now) | {"id": str(uuid.uuid4()), "made": now}
        if len(await self.list(limit=MOST)) >= MOST:
            raise InvalidInput(f"there are {MOST} silences already; end some first")
        await self._queries.run("add_silence", **row)
        await self._queries.run("forget_silences", before=now - REMEMBERED)
        await self.refresh()
        return from_row(Silence, row)

    async def edit(
        self, id: str, matchers: Sequence[str], *, ends: float, by: str, reason: str, starts: float | None = None
    ) -> Silence | None:
        """Replaces all but the id, and the start only if it has not begun; the change applies as soon as a new silence
        does. None if no current or future silence has this id. InvalidInput if the arguments are invalid."""
        now = time.time()
        row = _row(matchers, starts, ends, by, reason, now)
        edited = await self._queries.run("edit_silence", id=without_nul(id), now=now, **row)
        await self.refresh()
        return await self.read(id) if edited else None

    async def expire(self, id: str, *, by: str, reason: str) -> bool:
        """Ends it now; False if no current or future silence has this id."""
        who = {"ended_by": without_nul(by), "ended_why": without_nul(reason)}
        ended = await self._queries.run("end_silence", id=without_nul(id), now=time.time(), **who)
        await self.refresh()
        return ended == 1

    async def read(self, id: str) -> Silence | None:
        """The silence of this id, also if it ended within 30 days; None if there is none."""
        row = await self._queries.row("silence", id=without_nul(id))
        return None if row is None else from_row(Silence, row)

    async def list(self, *, ended: bool = False, limit: int = 100) -> list[Silence]:
        """Current and future silences in the order in which they end; or those that ended, the latest first."""
        rows = await self._queries.rows("ended_silences" if ended else "silences", now=time.time(), limit=limit)
        return [from_row(Silence, row) for row in rows]


def _row(matchers: Sequence[str], starts: float | None, ends: float, by: str, reason: str, now: float) -> Row:
    """The columns that can be edited; InvalidInput if they are invalid."""
    begins = now if starts is None else starts
    if not (now < ends <= now + LONGEST and begins < ends):
        raise InvalidInput(
            f"a silence must end after now and after it starts, and within {LONGEST / DAY:.0f} days; this one "
            f"would last from {begins:.0f} to {ends:.0f} (now is {now:.0f})"
        )
    texts = msgspec.json.encode([str(each) for each in checked(matchers)]).decode()
    who = {"made_by": without_nul(by), "reason": without_nul(reason)}
    return {"matchers": texts, "starts": begins, "ends": ends, **who}
