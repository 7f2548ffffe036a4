"""Moments and durations in bodies and queries, as programs and as people write them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from ..rules import MAX_TTL, duration

Moment = Annotated[float, msgspec.Meta(ge=0.0, le=1e11, description="seconds of UTC")]
_Time = Annotated[datetime, msgspec.Meta(tz=True, description="a time as in RFC 3339: 2027-01-31T22:00:00+01:00")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=32, description='a duration such as "2h"')]
AnyMoment = Moment | _Time
AnyDuration = Annotated[float, msgspec.Meta(gt=0.0, le=MAX_TTL, description="seconds")] | _Text


def moment_of(given: AnyMoment) -> float:
    """The moment in seconds of UTC."""
    return given.timestamp() if isinstance(given, datetime) else given


def duration_of(given: AnyDuration) -> float:
    """The duration in seconds; InvalidInput if the text is none."""
    return duration(given) if isinstance(given, str) else given
