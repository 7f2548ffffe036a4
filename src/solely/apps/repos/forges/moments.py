"""Moments as forges write them: ISO 8601 with or without fractions, or `2026-01-31 12:00:00 UTC` as GitLab 15 does."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_LONGEST = 64  # characters: twice what any of them writes; the pattern takes long for a long row of spaces
_OFFSET = re.compile(r"\s+(?=[+-]\d\d:?\d\d$)")


def moment_of(text: str) -> datetime:
    """The moment in UTC; ValueError if the text is none. Without an offset it is UTC."""
    if len(text) > _LONGEST:
        raise ValueError(f"{text:.20}… is no time: it has {len(text)} characters")
    moment = datetime.fromisoformat(_OFFSET.sub("", text.strip().removesuffix(" UTC")))
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def seconds_of(text: str | None) -> float:
    """The moment as seconds of UTC; now, if the text is none: it is for people, and no reason to refuse a job."""
    try:
        return moment_of(text or "").timestamp()
    except (ValueError, OverflowError):
        return datetime.now(UTC).timestamp()


def their_now(sent: datetime, answered: datetime, date: datetime | None) -> datetime:
    """The other system's time when the request was sent: `date` is the one of its answer, in whole seconds, and is
    never too late by that. Our own time if it did not say."""
    skew = timedelta() if date is None else date - answered
    return sent + skew


def written(moment: datetime) -> str:
    """The moment in ISO 8601, in UTC and with microseconds, as watermarks are shown and sent."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
