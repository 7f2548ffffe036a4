"""Cron expressions mean what cron users expect, in every zone; invalid ones are refused with the part that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from solely.errors import InvalidInput
from solely.schedules.cron import CronExpression
from solely.schedules.timetable import Timetable, microseconds, moment, timetable

# ruff: noqa: E501 - a vector is a line
# Expression, zone, after, the next ticks; as local times of the zone with their offset.
VECTORS = [
    ("* * * * *", "UTC", "2026-01-31T23:58:30Z", ["2026-01-31T23:59Z", "2026-02-01T00:00Z", "2026-02-01T00:01Z"]),
    ("*/15 * * * *", "UTC", "2026-01-01T00:00Z", ["2026-01-01T00:15Z", "2026-01-01T00:30Z", "2026-01-01T00:45Z"]),
    ("5/20 * * * *", "UTC", "2026-01-01T00:05Z", ["2026-01-01T00:25Z", "2026-01-01T00:45Z", "2026-01-01T01:05Z"]),
    ("0 3 * * *", "UTC", "2026-01-01T03:00Z", ["2026-01-02T03:00Z", "2026-01-03T03:00Z", "2026-01-04T03:00Z"]),
    ("30 9-17/4 * * mon-fri", "UTC", "2026-11-13T18:00Z", ["2026-11-16T09:30Z", "2026-11-16T13:30Z", "2026-11-16T17:30Z"]),
    ("0 0 1,15 * *", "UTC", "2026-01-15T00:00Z", ["2026-02-01T00:00Z", "2026-02-15T00:00Z", "2026-03-01T00:00Z"]),
    ("0 0 13 * fri", "UTC", "2026-11-01T00:00Z", ["2026-11-06T00:00Z", "2026-11-13T00:00Z", "2026-11-20T00:00Z"]),
    ("0 0 */2 * fri", "UTC", "2026-11-01T00:00Z", ["2026-11-13T00:00Z", "2026-11-27T00:00Z", "2026-12-11T00:00Z"]),
    ("0 0 31 * *", "UTC", "2026-01-31T00:00Z", ["2026-03-31T00:00Z", "2026-05-31T00:00Z", "2026-07-31T00:00Z"]),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", ["2028-02-29T00:00Z", "2032-02-29T00:00Z", "2036-02-29T00:00Z"]),
    ("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", ["2104-02-29T00:00Z", "2108-02-29T00:00Z", "2112-02-29T00:00Z"]),
    ("0 12 * JAN,Jul Sun", "UTC", "2026-01-31T00:00Z", ["2026-07-05T12:00Z", "2026-07-12T12:00Z", "2026-07-19T12:00Z"]),
    ("0 12 * * 7", "UTC", "2026-11-16T00:00Z", ["2026-11-22T12:00Z", "2026-11-29T12:00Z", "2026-12-06T12:00Z"]),
    ("@yearly", "UTC", "2026-06-01T00:00Z", ["2027-01-01T00:00Z", "2028-01-01T00:00Z", "2029-01-01T00:00Z"]),
    ("@weekly", "UTC", "2026-11-16T00:00Z", ["2026-11-22T00:00Z", "2026-11-29T00:00Z", "2026-12-06T00:00Z"]),
    ("@daily", "UTC", "2026-12-30T12:00Z", ["2026-12-31T00:00Z", "2027-01-01T00:00Z", "2027-01-02T00:00Z"]),
    ("@hourly", "UTC", "2026-12-31T22:30Z", ["2026-12-31T23:00Z", "2027-01-01T00:00Z", "2027-01-01T01:00Z"]),
    # half-hour zones, and zones far from UTC
    ("0 9 * * *", "Asia/Kolkata", "2026-01-01T03:30Z", ["2026-01-02T09:00+05:30", "2026-01-03T09:00+05:30", "2026-01-04T09:00+05:30"]),
    ("0 0 * * mon", "Pacific/Kiritimati", "2026-11-14T00:00Z", ["2026-11-16T00:00+14:00", "2026-11-23T00:00+14:00", "2026-11-30T00:00+14:00"]),
]  # fmt: skip

# Daylight saving in Berlin: on 29 March 2026 the hour from 02:00 is skipped, on 25 October that from 02:00 is repeated.
SAVING = [
    # a time of day that is skipped fires at the moment of the change, and once for all of them
    ("30 2 * * *", "2026-03-28T12:00Z", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00", "2026-03-31T02:30+02:00"]),
    ("0,30 2 * * *", "2026-03-28T12:00Z", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00", "2026-03-30T02:30+02:00"]),
    ("0 2,3 * * *", "2026-03-28T12:00Z", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00", "2026-03-30T03:00+02:00"]),
    # a time of day that is repeated fires the first time only
    ("30 2 * * *", "2026-10-24T12:00Z", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00", "2026-10-27T02:30+01:00"]),
    ("30 2 * * *", "2026-10-25T02:10+01:00", ["2026-10-26T02:30+01:00", "2026-10-27T02:30+01:00", "2026-10-28T02:30+01:00"]),
    # what goes by the clock is not run in a skipped hour, and in both of a repeated one
    ("30 * * * *", "2026-03-29T01:00+01:00", ["2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00", "2026-03-29T04:30+02:00"]),
    ("*/30 * * * *", "2026-03-29T01:00+01:00", ["2026-03-29T01:30+01:00", "2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00"]),
    ("30 * * * *", "2026-10-25T02:00+02:00", ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"]),
    ("*/20 2 * * *", "2026-10-25T02:30+02:00", ["2026-10-25T02:40+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:20+01:00"]),
    ("*/20 2 * * *", "2026-03-28T12:00Z", ["2026-03-30T02:00+02:00", "2026-03-30T02:20+02:00", "2026-03-30T02:40+02:00"]),
    # other times of these days are as always
    ("0 12 * * *", "2026-03-28T12:00Z", ["2026-03-29T12:00+02:00", "2026-03-30T12:00+02:00", "2026-03-31T12:00+02:00"]),
]  # fmt: skip
# Lord Howe Island changes by half an hour; Samoa had no 30 December 2011 at all.
ODD = [
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z", ["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"]),
    ("0 12 * * *", "Pacific/Apia", "2011-12-29T23:00Z", ["2011-12-31T00:00+14:00", "2011-12-31T12:00+14:00"]),
    ("0 * * * *", "Pacific/Apia", "2011-12-30T09:30Z", ["2011-12-31T00:00+14:00", "2011-12-31T01:00+14:00"]),
]  # fmt: skip


def ticks(expression: str, zone: str, after: str, count: int) -> list[datetime]:
    times = timetable("t", expression, zone, 0)
    found, at = [], microseconds(datetime.fromisoformat(after))
    for _ in range(count):
        at = times.next_after(at)
        found.append(moment(at))
    return found


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [*VECTORS, *((e, "Europe/Berlin", after, expected) for e, after, expected in SAVING), *ODD],
)
def test_the_next_ticks_are(expression: str, zone: str, after: str, expected: list[str]) -> None:
    wanted = [datetime.fromisoformat(text) for text in expected]
    assert ticks(expression, zone, after, len(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a cron expression: give minute, hour, day, month, weekday"),
        ("* * * *", "is not a cron expression"),
        ("* * * * * *", "is not a cron expression"),
        ("@reboot", "is not a cron expression"),
        ("60 * * * *", "minute: '60' is not allowed; give 0 to 59"),
        ("* 24 * * *", "hour: '24' is not allowed; give 0 to 23"),
        ("* * 0 * *", "day of month: '0' is not allowed; give 1 to 31"),
        ("* * * 13 *", "month: '13' is not allowed; give 1 to 12 or jan, feb"),
        ("* * * foo *", "month: 'foo' is not allowed"),
        ("* * * * 8", "day of week: '8' is not allowed; give 0 to 7 or sun"),
        ("5-1 * * * *", "minute: the range '5-1' goes backwards"),
        ("* * * * fri-mon", "day of week: the range 'fri-mon' goes backwards"),
        ("*/0 * * * *", "minute: the step of '*/0' must be from 1 to 59"),
        ("*/61 * * * *", "minute: the step of '*/61' must be"),
        ("1,,2 * * * *", "minute: '' is not"),
        ("1-2-3 * * * *", "minute: '1-2-3' is not"),
        ("-1 * * * *", "minute: '-1' is not"),
        ("1.5 * * * *", "minute: '1.5' is not"),
        ("0 0 30 2 *", "never matches: no such day exists"),
        ("0 0 31 4,6,9,11 *", "never matches"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_part_that_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        CronExpression.parse(text)
    assert why in str(refused.value)


# -- properties

EXAMPLES = 100  # of each: a zone changes twice a year, and most examples cover a year
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo")
_zones = st.sampled_from(ZONES)
_moments = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001


def _field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    pair = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    stepped = st.tuples(st.one_of(st.just("*"), pair), st.integers(1, most)).map(lambda both: f"{both[0]}/{both[1]}")
    part = st.one_of(number.map(str), pair, stepped)
    return st.one_of(st.just("*"), st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


_expressions = st.tuples(_field(0, 59), _field(0, 23), _field(1, 31), _field(1, 12), _field(0, 7)).map(" ".join)


def _parsed(expression: str, zone: str) -> Timetable:
    try:
        return timetable("t", expression, zone, 0)
    except InvalidInput as error:
        assume("never matches" not in str(error))
        raise


@example("* 0 1 1 *", "America/Sao_Paulo", datetime(2000, 3, 1, tzinfo=UTC))  # the offset changed long before the tick
@settings(max_examples=EXAMPLES)
@given(_expressions, _zones, _moments)
def test_ticks_go_forward_and_the_latest_is_the_one_before_the_next(
    expression: str, zone: str, after: datetime
) -> None:
    times = _parsed(expression, zone)
    at = microseconds(after)
    first = times.next_after(at)
    second = times.next_after(first)
    assert at < first < second
    assert times.latest_by(second - 1) == first
    assert times.latest_by(second) == second
    assert times.latest_by(first - 1) <= at
    assert times.next_after(times.latest_by(at)) == first


@settings(max_examples=EXAMPLES // 3)  # of 400 days each
@given(st.integers(0, 23), st.integers(0, 59), _zones, _moments)
def test_a_time_of_day_comes_once_a_day_whatever_daylight_saving_does(
    hour: int, minute: int, zone: str, after: datetime
) -> None:
    times = timetable("t", f"{minute} {hour} * * *", zone, 0)
    found, at = [], microseconds(after)
    for _ in range(400):
        at = times.next_after(at)
        found.append(moment(at).astimezone(ZoneInfo(zone)).date())
    assert all(later - earlier == timedelta(days=1) for earlier, later in pairwise(found))


@settings(max_examples=EXAMPLES)
@given(_zones, _moments, st.sampled_from(["* * * * *", "*/5 * * * *", "*/30 * * * *"]))
def test_what_goes_by_the_clock_never_pauses_for_daylight_saving(zone: str, after: datetime, expression: str) -> None:
    """In steps that divide half an hour, by which Lord Howe Island changes."""
    step = {"* * * * *": 1, "*/5 * * * *": 5, "*/30 * * * *": 30}[expression]
    found = ticks(expression, zone, after.isoformat(), 50)
    assert all(timedelta(0) < later - earlier <= timedelta(minutes=step) for earlier, later in pairwise(found))


@settings(max_examples=EXAMPLES)
@given(st.floats(0.1, 1e6), st.text(min_size=1, max_size=20), _moments, st.floats(0, 100))
def test_intervals_are_even_and_jitter_keeps_their_order(
    every: float, name: str, after: datetime, jitter: float
) -> None:
    times = timetable(name, every, "UTC", jitter)
    at = microseconds(after)
    first = times.next_after(at)
    second = times.next_after(first)
    third = times.next_after(second)
    assert second - first == third - second == round(every * 1_000_000)
    assert at < first <= at + second - first
    assert first <= times.fires(first) < second
    assert times.fires(first) - first <= jitter * 1_000_000
    assert times.due_by(times.fires(second)) == second
    assert times.due_by(times.fires(second) - 1) == first


def test_schedules_of_one_interval_are_spread_over_it() -> None:
    phases = sorted(timetable(f"target-{n}", 60.0, "UTC", 0).next_after(0) for n in range(100))
    assert phases[0] < 10_000_000
    assert phases[-1] > 50_000_000
    assert max(later - earlier for earlier, later in pairwise(phases)) < 6_000_000


def test_an_interval_can_be_written_as_text() -> None:
    assert timetable("t", "@every 90s", "UTC", 0).text == timetable("t", 90, "UTC", 0).text == "@every 90s"
    with pytest.raises(InvalidInput, match=r"^'now' is not a duration"):
        timetable("t", "@every now", "UTC", 0)
    with pytest.raises(InvalidInput, match=r"the interval=0.05 \(50ms\) is out of bounds"):
        timetable("t", 0.05, "UTC", 0)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", 7])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInput, match="there is no time zone"):
        timetable("t", "@daily", zone, 0)
