"""Times in JSON: seconds. What stays for ever has no number: null."""

from __future__ import annotations

import math
from datetime import datetime


def lasting(seconds: float) -> float | None:
    """Seconds; None for ever."""
    return seconds if math.isfinite(seconds) else None


def moment(at: datetime | None) -> float | None:
    """Seconds since 1970 on the wall clock; None if it is not known."""
    return None if at is None else at.timestamp()
