"""Ticks are those of an independent library, cronsim, and of the examples of Debian's crontab(5).

Both follow Debian's cron. Where cronsim differs, the test says how, and asserts both answers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from solely.errors import InvalidInput
from solely.schedules.timetable import microseconds, moment, timetable

# ruff: noqa: E501 - a vector is a line
EXAMPLES = 100  # of each property: three of four instants are around a change of daylight saving
TICKS = 6  # that are compared after each instant

# Changes of one hour, none at midnight: there cronsim is exact for every expression.
PLAIN_ZONES = ("Europe/Berlin", "America/New_York", "Australia/Sydney", "Europe/London", "Pacific/Auckland")
# Changes of half an hour, or at midnight, which then does not exist.
ODD_ZONES = ("Australia/Lord_Howe", "America/Havana", "Asia/Beirut", "America/Sao_Paulo")


# -- expressions and instants


def _field(least: int, most: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    written = st.one_of(number.map(str), st.sampled_from(names)) if names else number.map(str)
    ends = st.tuples(number, number).filter(lambda both: both[0] != both[1])  # cronsim reads 5-5/2 as 5/2
    pair = ends.map(lambda both: f"{min(both)}-{max(both)}")
    start = st.one_of(st.just("*"), pair, number.map(str))
    stepped = st.tuples(start, st.integers(1, most)).map(lambda both: f"{both[0]}/{both[1]}")
    part = st.one_of(written, pair, stepped)
    return st.lists(part, min_size=1, max_size=3).map(",".join)


def _or_any(field: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), field)


_MINUTES, _HOURS, _DAYS = _field(0, 59), _field(0, 23), _field(1, 31)
_MONTHS, _WEEKDAYS = _field(1, 12, ("jan", "Jun", "OCT")), _field(0, 7, ("sun", "Wed", "SAT"))
_expressions = st.tuples(*map(_or_any, (_MINUTES, _HOURS, _DAYS, _MONTHS, _WEEKDAYS))).map(" ".join)
# Due on each day, so that many of them meet a change; often in the hours in which zones change.
_CHANGING = st.one_of(_HOURS, _field(0, 4))
_times_of_day = st.tuples(st.integers(0, 59), _MINUTES, st.integers(0, 23), _CHANGING).map(
    lambda parts: "{},{} {},{} * * *".format(*parts)  # does not begin with *, whatever follows
)
_STAR = st.one_of(st.just("*"), st.integers(1, 12).map(lambda step: f"*/{step}"))
_by_the_clock = st.one_of(st.tuples(_STAR, _CHANGING), st.tuples(_MINUTES, _STAR)).map(
    lambda parts: "{} {} * * *".format(*parts)
)
_instants = st.datetimes(datetime(1995, 1, 1), datetime(2090, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001


@cache
def _changes(zone: str) -> list[datetime]:
    """The days, of 24 hours from midnight in UTC, in which the zone changed, from 2000 to 2030."""
    local, day = ZoneInfo(zone), timedelta(days=1)
    days = [datetime(2000, 1, 1, tzinfo=UTC) + n * day for n in range(365 * 30)]
    return [each for each in days if _offset(each, local) != _offset(each + day, local)]


def _offset(at: datetime, zone: ZoneInfo) -> timedelta:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


@st.composite
def _near_changes(draw: st.DrawFn, zones: tuple[str, ...]) -> tuple[str, datetime]:
    """A zone and an instant, most of the time around a change."""
    zone = draw(st.sampled_from(zones))
    if draw(st.integers(0, 3)) == 0:
        return zone, draw(_instants)
    return zone, draw(st.sampled_from(_changes(zone))) + timedelta(minutes=draw(st.integers(-720, 24 * 60)))


# -- both sides


def _ours(expression: str, zone: str, after: datetime, count: int = TICKS) -> list[datetime]:
    try:
        times = timetable("t", expression, zone, 0)
    except InvalidInput as error:
        assume("never matches" not in str(error))
        raise
    found, at = [], microseconds(after)
    for _ in range(count):
        at = times.next_after(at)
        found.append(moment(at))
    return found


def _theirs(expression: str, zone: str, after: datetime, count: int = TICKS) -> list[datetime]:
    """Those of cronsim, in UTC. Given an instant in the second of two equal hours, cronsim first answers with times of
    day of the first hour, which have passed: these are dropped."""
    start = after if zone == "UTC" else after.astimezone(ZoneInfo(zone))
    peer, found = CronSim(expression, start), list[datetime]()
    while len(found) < count:
        tick = next(peer).astimezone(UTC)
        if tick > after:
            found.append(tick)
        else:
            assert start.fold == 1, "only there does cronsim go back in time"
    return found


# -- comparisons


@settings(max_examples=2 * EXAMPLES)
@given(_expressions, _instants)
@example("0 0 29 2 *", datetime(2096, 2, 29, 12, tzinfo=UTC))
@example("0 0 */2 * fri", datetime(2026, 11, 1, tzinfo=UTC))
@example("0 0 1-7 * */7", datetime(2026, 11, 1, tzinfo=UTC))
def test_in_utc_the_ticks_are_those_of_cronsim(expression: str, after: datetime) -> None:
    assert _ours(expression, "UTC", after) == _theirs(expression, "UTC", after)


@settings(max_examples=EXAMPLES)
@given(st.one_of(_times_of_day, _by_the_clock), _near_changes(PLAIN_ZONES))
@example("30 2 * * *", ("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)))
@example("*/20 2 * * *", ("Europe/Berlin", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)))
@example("30 2 * * *", ("Europe/Berlin", datetime(2026, 10, 25, 1, 10, tzinfo=UTC)))  # in the second of the two hours
def test_with_daylight_saving_the_ticks_are_those_of_cronsim(expression: str, where: tuple[str, datetime]) -> None:
    assert _ours(expression, *where) == _theirs(expression, *where)


@settings(max_examples=EXAMPLES)
@given(_expressions, _near_changes(PLAIN_ZONES))
def test_with_daylight_saving_any_expression_is_as_in_cronsim(expression: str, where: tuple[str, datetime]) -> None:
    assert _ours(expression, *where, count=2) == _theirs(expression, *where, count=2)


@settings(max_examples=EXAMPLES)
@given(_times_of_day, _near_changes(ODD_ZONES))
def test_times_of_day_in_odd_zones_are_those_of_cronsim(expression: str, where: tuple[str, datetime]) -> None:
    assert _ours(expression, *where) == _theirs(expression, *where)


@settings(max_examples=EXAMPLES)
@given(_by_the_clock, _near_changes(ODD_ZONES))
@example("*/10 3 * * *", ("Australia/Lord_Howe", datetime(2026, 10, 3, 14, 30, tzinfo=UTC)))
@example("*/30 0,1 * * *", ("America/Havana", datetime(2026, 3, 8, 3, 30, tzinfo=UTC)))
def test_what_goes_by_the_clock_in_odd_zones_is_each_matching_minute_that_passes(
    expression: str, where: tuple[str, datetime]
) -> None:
    """Looks up each minute of the next day in the zone; which minutes and hours match is what cronsim reads."""
    zone, after = where
    begin, read = after.replace(second=0, microsecond=0), CronSim(expression, after)
    minutes = [begin + timedelta(minutes=n) for n in range(1, 24 * 60 + 1)]
    local = [at.astimezone(ZoneInfo(zone)) for at in minutes]
    expected = [at.astimezone(UTC) for at in local if at.hour in read.hours and at.minute in read.minutes]
    found = _ours(expression, zone, after, len(expected) + 1)
    assert [at for at in found if at <= minutes[-1]] == expected


@pytest.mark.parametrize(
    ("expression", "zone", "after", "ours", "theirs"),
    [
        # After a gap of half an hour, cronsim looks at the next hours from their half on.
        ("*/10 3 * * *", "Australia/Lord_Howe", "2026-10-04T01:30+10:30", "2026-10-04T03:00+11:00", "2026-10-04T03:30+11:00"),
        # In a zone that skips midnight, cronsim answers with the midnight that does not exist.
        ("*/30 * * * sun", "America/Havana", "2026-03-07T12:00-05:00", "2026-03-08T01:00-04:00", "2026-03-08T00:00-05:00"),
        # A range of one number with a step is that number; cronsim goes on to the end, as for 5/20.
        ("5-5/20 * * * *", "UTC", "2026-01-01T00:05+00:00", "2026-01-01T01:05+00:00", "2026-01-01T00:25+00:00"),
        # In the second of two equal hours, cronsim answers with a time of day in the first, which has passed.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00", "2026-10-26T02:30+01:00", "2026-10-25T02:30+02:00"),
    ],
)  # fmt: skip
def test_where_cronsim_differs_we_know_why(expression: str, zone: str, after: str, ours: str, theirs: str) -> None:
    start = datetime.fromisoformat(after).astimezone(ZoneInfo(zone))
    assert _ours(expression, zone, start, 1) == [datetime.fromisoformat(ours)]
    assert next(CronSim(expression, start)).isoformat(timespec="minutes") == theirs


# Examples of crontab(5) in Debian, with what its comments say of them.
MANUAL = [
    ("5 0 * * *", "five minutes after midnight, every day", ["11-01T00:05", "11-02T00:05", "11-03T00:05"]),
    ("15 14 1 * *", "at 2:15pm on the first of every month", ["11-01T14:15", "12-01T14:15"]),
    ("0 22 * * 1-5", "at 10 pm on weekdays", ["11-02T22:00", "11-03T22:00", "11-04T22:00", "11-05T22:00", "11-06T22:00", "11-09T22:00"]),
    ("23 0-23/2 * * *", "23 minutes after midn, 2am, 4am ..., everyday", ["11-01T00:23", "11-01T02:23", "11-01T04:23"]),
    ("5 4 * * sun", "at 5 after 4 every Sunday", ["11-01T04:05", "11-08T04:05", "11-15T04:05"]),
    ("0 */4 1 * mon", "every 4th hour on the 1st and on every Monday", ["11-01T00:00", "11-01T04:00", "11-01T08:00", "11-01T12:00", "11-01T16:00", "11-01T20:00", "11-02T00:00"]),
    ("0 0 */2 * sun", "at midn on every Sunday that's an uneven date", ["11-01T00:00", "11-15T00:00", "11-29T00:00", "12-13T00:00"]),
    ("30 4 1,15 * 5", "at 4:30 am on the 1st and 15th of each month, plus every Friday", ["11-01T04:30", "11-06T04:30", "11-13T04:30", "11-15T04:30", "11-20T04:30"]),
    ("0 0-4,8-12 * * *", "ranges in a list", ["11-01T00:00", "11-01T01:00", "11-01T02:00", "11-01T03:00", "11-01T04:00", "11-01T08:00"]),
    ("@yearly", "once a year", ["2027-01-01T00:00"]),
    ("@annually", "once a year", ["2027-01-01T00:00"]),
    ("@monthly", "once a month", ["11-01T00:00", "12-01T00:00"]),
    ("@weekly", "once a week", ["11-01T00:00", "11-08T00:00"]),
    ("@daily", "once a day", ["11-01T00:00", "11-02T00:00"]),
    ("@midnight", "once a day", ["11-01T00:00", "11-02T00:00"]),
    ("@hourly", "once an hour", ["11-01T00:00", "11-01T01:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "meaning", "expected"), MANUAL)
def test_the_examples_of_the_manual_mean_what_it_says(expression: str, meaning: str, expected: list[str]) -> None:
    """From the last second of October 2026: the 1st of November is a Sunday."""
    wanted = [
        datetime.fromisoformat(text if len(text) > 11 else f"2026-{text}").replace(tzinfo=UTC) for text in expected
    ]
    after = datetime(2026, 10, 31, 23, 59, 59, tzinfo=UTC)
    assert _ours(expression, "UTC", after, len(wanted)) == wanted, meaning
