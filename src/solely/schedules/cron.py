"""Cron expressions of five fields, as Vixie cron reads them: which minutes of which days match, without a time zone."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from ..errors import InvalidInput

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_PART = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d{1,9}))?", re.ASCII)
_LONGEST_GAP = datetime.combine(date(2096, 3, 1), time.min)  # the longest time without a 29 February begins here
_SEARCHED = 366 * 9  # days: 29 February is at most eight years away, around a year such as 2100


@dataclass(frozen=True, slots=True)
class _Field:
    """What one of the five fields may hold."""

    name: str
    least: int
    most: int
    names: dict[str, int]

    def values(self, text: str) -> frozenset[int]:
        """The numbers that the field matches; raises InvalidInput if it is invalid."""
        return frozenset(number for part in text.split(",") for number in self._part(part))

    def _part(self, text: str) -> range:
        found = _PART.fullmatch(text)
        if found is None:
            raise InvalidInput(
                f"{self.name}: {text!r:.40} is not *, a number, a range such as 1-5, or either with /step"
            )
        step = int(found["step"] or 1)
        if found["first"] is None:
            first, last = self.least, self.most
        else:
            first = self._number(found["first"])
            last = self._number(found["last"]) if found["last"] else self.most if found["step"] else first
        if not first <= last:
            raise InvalidInput(
                f"{self.name}: the range {text!r} goes backwards; write it as two: {first}-{self.most},…"
            )
        if not 1 <= step <= self.most:
            raise InvalidInput(f"{self.name}: the step of {text!r} must be from 1 to {self.most}")
        return range(first, last + 1, step)

    def _number(self, text: str) -> int:
        number = self.names.get(text.lower(), int(text) if text.isdecimal() and len(text) < 10 else -1)
        if not self.least <= number <= self.most:
            allowed = f"{self.least} to {self.most}" + (f" or {', '.join(self.names)}" if self.names else "")
            raise InvalidInput(f"{self.name}: {text!r:.40} is not allowed; give {allowed}")
        return number


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """The matches of an expression. `by_the_clock`: its minute or hour begins with `*`, so it means every such minute
    that passes, also in an hour that daylight saving repeats; else it means times of day, each once a day."""

    text: str
    minutes: tuple[int, ...]  # of the day, in order
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    either_day: bool  # both kinds of days are restricted: then a day matches if either of them does
    by_the_clock: bool

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """The expression; raises InvalidInput, which says what is wrong and with which part."""
        words = NICKNAMES.get(text.strip().lower(), text).split()
        if len(words) != len(_FIELDS):
            known = f"or one of {', '.join(NICKNAMES)}"
            raise InvalidInput(
                f"{text!r:.80} is not a cron expression: give minute, hour, day, month, weekday, {known}"
            )
        try:
            minutes, hours, days, months, weekdays = (
                field.values(word) for field, word in zip(_FIELDS, words, strict=True)
            )
        except InvalidInput as error:
            raise InvalidInput(f"cron expression {text!r:.80}: {error}") from None
        found = cls(
            " ".join(words),
            tuple(sorted(60 * hour + minute for hour in hours for minute in minutes)),
            days,
            months,
            frozenset(day % 7 for day in weekdays),
            not (words[2].startswith("*") or words[4].startswith("*")),
            words[0].startswith("*") or words[1].startswith("*"),
        )
        if found.next_match(_LONGEST_GAP) is None:
            raise InvalidInput(f"cron expression {text!r:.80} never matches: no such day exists")
        return found

    def next_match(self, start: datetime) -> datetime | None:
        """The first matching minute that is not before `start`; None if there is none for nine years."""
        day, minute = start.date(), 60 * start.hour + start.minute + (start.second > 0 or start.microsecond > 0)
        for _ in range(_SEARCHED):
            if self._matches(day):
                place = bisect_left(self.minutes, minute)
                if place < len(self.minutes):
                    return datetime.combine(day, time.min) + timedelta(minutes=self.minutes[place])
            day, minute = day + timedelta(days=1), 0
        return None

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday
