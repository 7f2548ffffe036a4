"""Silences: an admin suppresses alerts for a time and for a reason.

Every worker has a copy of the silences in effect, at most a second old, so that matching an alert needs no query.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ....data import Database, Row, without_nul
from ....errors import InvalidInput
from ..model import Alert
from .matchers import Matcher, checked, parse, predicate

MOST = 1_000  # current and future silences: each alert is matched with all of them
LONGEST = 366 * 86_400.0  # seconds: for longer, turn the sender off
REMEMBERED = 30 * 86_400.0  # seconds that a silence is listed after its end

_ADD = """
INSERT INTO alerts_silences (id, matchers, starts, ends, made, made_by, reason, ended_by, ended_why)
VALUES (:id, :matchers, :starts, :ends, :made, :made_by, :reason, '', '')
"""
_END = """
UPDATE alerts_silences SET ends = :now, ended_by = :ended_by, ended_why = :ended_why WHERE id = :id AND ends > :now
"""
_HOLDING = "SELECT * FROM alerts_silences WHERE ends > :now ORDER BY ends, id LIMIT :limit"
_ENDED = "SELECT * FROM alerts_silences WHERE ends <= :now ORDER BY ends DESC, id LIMIT :limit"
_FORGET = "DELETE FROM alerts_silences WHERE ends < :before"


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


class _Compiled:
    """A silence with its matchers as predicates."""

    def __init__(self, silence: Silence, matchers: Iterable[Matcher]) -> None:
        self.silence = silence
        self._predicates: list[Callable[[Alert], bool]] = [predicate(each) for each in matchers]

    def matches(self, alert: Alert) -> bool:
        """True if the alert matches all matchers."""
        return all(predicate(alert) for predicate in self._predicates)


class Silences:
    """The silences in the database, and this worker's copy of the current and future ones."""

    def __init__(self, data: Database) -> None:
        self._data = data
        self._copy: tuple[_Compiled, ...] = ()

    def match(self, alert: Alert) -> Silence | None:
        """A silence that suppresses this alert now, according to this worker's copy."""
        return next(self.matching(alert), None) if self._copy else None

    def matching(self, alert: Alert) -> Iterator[Silence]:
        """All silences that suppress this alert now, the one that ends last first."""
        now = time.time()
        for each in self._copy:
            if each.silence.starts <= now < each.silence.ends and each.matches(alert):
                yield each.silence

    async def refresh(self) -> None:
        """Copies the current and future silences. If the database fails (DataError), the last copy stays."""
        rows = await self._data.rows(_HOLDING, now=time.time(), limit=MOST)
        before = {each.silence: each for each in self._copy}
        found = [_silence(row) for row in rows]
        self._copy = tuple(before.get(each) or _Compiled(each, map(parse, each.matchers)) for each in reversed(found))

    async def add(
        self, matchers: Sequence[str], *, ends: float, by: str, reason: str, starts: float | None = None
    ) -> Silence:
        """Adds a silence from `starts` (default: now) until `ends`. It applies in this worker at once and in others
        within a second. InvalidInput if the arguments are invalid, or there are too many silences."""
        now = time.time()
        begins = now if starts is None else starts
        if not (now < ends <= now + LONGEST and begins < ends):
            raise InvalidInput(
                f"a silence must end after now and after it starts, and within {LONGEST / 86_400:.0f} days; this one "
                f"would last from {begins:.0f} to {ends:.0f} (now is {now:.0f})"
            )
        parsed = checked(matchers)
        if len(await self._data.rows(_HOLDING, now=now, limit=MOST)) >= MOST:
            raise InvalidInput(f"there are {MOST} silences already; end some first")
        silence = Silence(
            id=secrets.token_hex(8),
            matchers=tuple(map(str, parsed)),
            starts=begins,
            ends=ends,
            made=now,
            made_by=without_nul(by),
            reason=without_nul(reason),
        )
        kept = msgspec.structs.asdict(silence) | {"matchers": msgspec.json.encode(silence.matchers).decode()}
        await self._data.run(_ADD, **{name: kept[name] for name in kept if not name.startswith("ended_")})
        await self._data.run(_FORGET, before=now - REMEMBERED)
        await self.refresh()
        return silence

    async def expire(self, id: str, *, by: str, reason: str) -> bool:
        """Ends it now; False if no current or future silence has this id."""
        ended = await self._data.run(
            _END, id=without_nul(id), now=time.time(), ended_by=without_nul(by), ended_why=without_nul(reason)
        )
        await self.refresh()
        return ended == 1

    async def list(self, *, ended: bool = False, limit: int = 100) -> list[Silence]:
        """Current and future silences in the order in which they end; or those that ended, the latest first."""
        rows = await self._data.rows(_ENDED if ended else _HOLDING, now=time.time(), limit=limit)
        return [_silence(row) for row in rows]


def _silence(row: Row) -> Silence:
    return Silence(**row | {"matchers": msgspec.json.decode(row["matchers"], type=tuple[str, ...])})
