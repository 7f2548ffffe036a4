"""Timetables: when the ticks of a schedule are due. Pure functions of the time, the same in every replica.

Times are whole microseconds since 1970, as the store's clock counts them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..errors import InvalidInput
from ..rules import MAX_TTL, Seconds, duration, seconds
from .cron import CronExpression

US = 1_000_000
MIN_INTERVAL = 0.1  # seconds: what is due more often is a loop, and would spend its time at the store
EVERY = "@every "
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
# How far back the latest tick is searched for, in this order: dense expressions end early, the last covers a leap day.
_LOOK_BACK = tuple(timedelta(days=days) for days in (0.05, 1.05, 8, 33, 370, 366 * 9))
MOST_COUNTED = 1_000  # ticks that are counted one by one for a log line: more are "at least"


def moment(at: int) -> datetime:
    """The time as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=at)


def microseconds(at: datetime) -> int:
    """The time as whole microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


class Timetable(ABC):
    """The ticks of one schedule. A tick fires at its time plus an offset below `jitter`, and below the time to the next
    tick. The offset is drawn from the schedule's name and the tick, so that all replicas agree."""

    text: str  # as a user would write it

    def __init__(self, name: str, jitter: float) -> None:
        self._name = name
        self._jitter = int(jitter * US)

    @abstractmethod
    def next_after(self, at: int) -> int:
        """The first tick after this time."""

    @abstractmethod
    def latest_by(self, at: int) -> int:
        """The last tick that is not after this time."""

    def fires(self, tick: int) -> int:
        """When this tick is due: its time plus its share of the jitter."""
        if not self._jitter:
            return tick
        room = min(self._jitter, self.next_after(tick) - tick)
        return tick + _drawn(f"{self._name}\0{tick}", room)

    def due_by(self, at: int) -> int:
        """The last tick that has fired by this time."""
        tick = self.latest_by(at)
        return tick if self.fires(tick) <= at else self.latest_by(tick - 1)

    def count(self, after: int, until: int) -> int:
        """The ticks after the one time and not after the other, at most MOST_COUNTED."""
        found = 0
        while found < MOST_COUNTED and (after := self.next_after(after)) <= until:
            found += 1
        return found


def _drawn(text: str, below: int) -> int:
    """A number from 0 to below `below`, the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % max(1, below)


class Interval(Timetable):
    """A tick every so often. Schedules of the same interval are spread over it: each has its own phase, by its name."""

    def __init__(self, name: str, every: float, jitter: float) -> None:
        super().__init__(name, jitter)
        self._every = round(every * US)
        self._phase = _drawn(name, self._every)
        self.text = f"{EVERY}{every:g}s"

    def next_after(self, at: int) -> int:
        return self.latest_by(at) + self._every

    def latest_by(self, at: int) -> int:
        return at - (at - self._phase) % self._every


class Calendar(Timetable):
    """A cron expression in a time zone.

    When daylight saving skips an hour, times of day in it fire at the moment of the change; when it repeats an hour,
    they fire the first time only. An expression whose minute or hour begins with `*` goes by the clock on the wall: it
    fires in both hours, and not in a skipped one.
    """

    def __init__(self, name: str, expression: CronExpression, zone: tzinfo, jitter: float) -> None:
        super().__init__(name, jitter)
        self._expression, self._zone = expression, zone
        self.text = expression.text

    def next_after(self, at: int) -> int:
        start = moment(at)
        found = self._next_by_the_clock(start) if self._expression.by_the_clock else self._next_of_day(start)
        return microseconds(found)

    def latest_by(self, at: int) -> int:
        for back in _LOOK_BACK:
            tick = self.next_after(at - int(back.total_seconds()) * US)
            if tick <= at:
                return self._last_between(tick, at)
        raise AssertionError("an expression that was parsed matches within nine years")

    def _last_between(self, tick: int, at: int) -> int:
        """The last tick from this one to that time, found by halving: there may be thousands in between."""
        high = at
        while (following := self.next_after(tick)) <= at:
            middle = (following + high) // 2
            later = self.next_after(middle)
            tick, high = (later, high) if later <= at else (following, middle)
        return tick

    def _next_of_day(self, start: datetime) -> datetime:
        """Each matching time of day once; one that does not exist fires when the gap ends."""
        local = start.astimezone(self._zone).replace(tzinfo=None)
        while True:
            local = self._match(local + timedelta(microseconds=1))
            found = self._instant(local)
            if found > start:
                return found

    def _next_by_the_clock(self, start: datetime) -> datetime:
        """Each matching minute that passes: the search begins anew where the offset from UTC changes."""
        begin, least = start, timedelta(microseconds=1)
        while True:
            offset = self._offset(begin)
            found = (self._match((begin + offset + least).replace(tzinfo=None)) - offset).replace(tzinfo=UTC)
            if self._offset(found) == offset:
                return found
            near = found - timedelta(days=2)  # nothing matches before that, whatever the offset was
            begin, least = near if near > begin else self._change(begin, found), timedelta(0)

    def _match(self, local: datetime) -> datetime:
        found = self._expression.next_match(local)
        assert found is not None, "an expression that was parsed matches within nine years"
        return found

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta(0)

    def _instant(self, local: datetime) -> datetime:
        """When this local time is for the first time, or the end of the gap that it is in."""
        found = local.replace(tzinfo=self._zone).astimezone(UTC)
        if found.astimezone(self._zone).replace(tzinfo=None) == local:
            return found
        return self._change(local.replace(tzinfo=self._zone, fold=1).astimezone(UTC), found)

    def _change(self, before: datetime, after: datetime) -> datetime:
        """The first second with the offset of `after`, which differs from that of `before`."""
        old = self._offset(before)
        low, high = 0, int((after - before).total_seconds())
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(before + timedelta(seconds=middle)) == old else (low, middle)
        return (before + timedelta(seconds=high)).replace(microsecond=0)


def check_schedule(when: str | Seconds, tz: str | tzinfo = "UTC") -> None:
    """Raises InvalidInput unless schedules take these seconds, "@every 90s", or cron expression, in this time zone."""
    timetable("", when, tz, 0.0)


def timetable(name: str, when: str | Seconds, tz: str | tzinfo, jitter: Seconds) -> Timetable:
    """The timetable of seconds, of "@every 90s", or of a cron expression; raises InvalidInput if it is invalid."""
    spread = seconds("jitter", jitter, least=0.0, most=MAX_TTL)
    zone = _zone(tz)
    if isinstance(when, str) and when.strip().startswith(EVERY.strip()):
        when = duration(when.strip().removeprefix(EVERY.strip()).strip())
    if isinstance(when, str):
        return Calendar(name, CronExpression.parse(when), zone, spread)
    return Interval(name, seconds("the interval", when, least=MIN_INTERVAL, most=MAX_TTL), spread)


def _zone(tz: str | tzinfo) -> tzinfo:
    if isinstance(tz, tzinfo):
        return tz
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, RecursionError):  # the last: a row of dots
        hint = "give a name such as Europe/Berlin; a machine without a zone database needs the package tzdata"
        raise InvalidInput(f"there is no time zone {tz!r:.80}: {hint}") from None
