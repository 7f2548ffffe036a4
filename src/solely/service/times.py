"""Moments and durations in bodies and queries, as programs and as people write them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from ..errors import InvalidInput
from ..rules import MAX_TTL, duration

LAST = 1e11  # seconds of UTC: in the year 5138, so that every program can still write it as a date
Moment = Annotated[float, msgspec.Meta(ge=0.0, le=LAST, description="seconds of UTC")]
_Time = Annotated[datetime, msgspec.Meta(tz=True, description="a time as in RFC 3339: 2027-01-31T22:00:00+01:00")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=32, description='a duration such as "2h"')]
AnyMoment = Moment | _Time
AnyDuration = Annotated[float, msgspec.Meta(gt=0.0, le=MAX_TTL, description="seconds")] | _Text


def moment_of(given: AnyMoment) -> float:
    """The moment in seconds of UTC; InvalidInput if it is before 1970 or after 5138."""
    at = given.timestamp() if isinstance(given, datetime) else given
    if not 0.0 <= at <= LAST:
        raise InvalidInput(f"{given} is not a time from 1970 to 5138")
    return at


def duration_of(given: AnyDuration) -> float:
    """The duration in seconds; InvalidInput if the text is none."""
    return duration(given) if isinstance(given, str) else given
