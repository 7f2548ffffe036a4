"""Moments and durations of bodies: programs send numbers, people write texts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from solely.errors import InvalidInput
from solely.kit import AnyDuration, AnyMoment, duration_of, duration_text, moment_of
from solely.rules import MAX_TTL


@pytest.mark.parametrize(("given", "seconds"), [(60, 60.0), (0.5, 0.5), ("2h", 7_200.0), ("90", 90.0)])
def test_a_duration_is_a_number_or_a_text(given: Any, seconds: float) -> None:
    known: AnyDuration = msgspec.convert(given, AnyDuration)
    assert duration_of(known) == seconds


@pytest.mark.parametrize("given", [0, -1, MAX_TTL + 1, "", "x" * 33, None])
def test_another_duration_is_refused(given: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, AnyDuration)


def test_a_text_that_is_no_duration_is_refused_when_it_is_read() -> None:
    with pytest.raises(InvalidInput, match="not a duration"):
        duration_of("soon")


def test_a_moment_is_a_number_or_a_time_with_its_zone() -> None:
    for given in (1_800_000_000.0, "2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00"):
        known: AnyMoment = msgspec.convert(given, AnyMoment)
        assert moment_of(known) == 1_800_000_000.0
    for wrong in ("2027-01-15T08:00:00", -1.0, 1e12, "now"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, AnyMoment)
    for far in ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"):  # in the years 10000 and 0 of UTC
        with pytest.raises(InvalidInput, match="is not a time from 1970 to 5138"):
            moment_of(msgspec.convert(far, AnyMoment))


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400.0, "1d"), (7_200.0, "2h"), (90.0, "1m30s"), (300.0, "5m"), (0.5, "500ms")]
)
def test_a_duration_is_written_as_people_do(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
