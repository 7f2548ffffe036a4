"""Formats durations, times and numbers for people, and JSON and lines for pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from ..bodies import to_json
from .links import key_link

_UNITS = ((2 * 86_400.0, "days", 86_400.0), (2 * 3_600.0, "h", 3_600.0), (120.0, "min", 60.0))
WIDTH, HEIGHT = 600.0, 120.0  # of a chart, in its own units


def span(seconds: float | None) -> str:
    """12.3 s, 14 min, 23 h, 12 days; `for ever` if it never ends."""
    if seconds is None or seconds == float("inf"):
        return "for ever"
    for least, unit, size in _UNITS:
        if seconds >= least:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.1f} s"


def at(time: float) -> str:
    """2026-03-01 14:05:09 UTC."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time:g} s since 1970"  # after the year 9999


def clock(time: float) -> str:
    """14:05:09."""
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S")


def day(time: float) -> str:
    """Tuesday, 2026-03-01."""
    return datetime.fromtimestamp(time, UTC).strftime("%A, %Y-%m-%d")


def rate(per_second: float) -> str:
    """0, 0.25, 3.1, 1,240."""
    if not per_second:
        return "0"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.{1 if per_second >= 1 else 2}f}"


def ms(seconds: float | None) -> str:
    """0.42 ms, 12 ms, 1.3 s; a dash for None."""
    if seconds is None:
        return "–"
    if seconds >= 1.0:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.{0 if seconds >= 0.01 else 1 if seconds >= 0.001 else 2}f} ms"


def facts(of: dict[str, Any]) -> str:
    """The fields of an event: `fence 17, waited 0.2 s`."""
    return ", ".join(f"{name.replace('_', ' ')} {_fact(name, value)}" for name, value in of.items() if value != "")


def _fact(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return span(value) if isinstance(value, float) else str(value)


def pretty(value: Any) -> str:
    """Indented JSON, for people."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except RecursionError:
        return "unreadable: it is nested too deep"


def compact(value: Any) -> str:
    """JSON, for scripts."""
    return to_json(value).decode()


def points(values: Sequence[float | None], most: float) -> str:
    """The points of a line through the values, for a chart of WIDTH × HEIGHT."""
    step = WIDTH / max(1, len(values) - 1)
    drawn = (f"{i * step:.1f},{HEIGHT - HEIGHT * (v or 0.0) / (most or 1.0):.1f}" for i, v in enumerate(values))
    return " ".join(drawn)


FILTERS = {
    "span": span, "at": at, "clock": clock, "day": day, "rate": rate, "ms": ms, "facts": facts, "pretty": pretty,
    "points": points, "json": compact, "key_link": key_link, "query": partial(urlencode, errors="replace"),
}  # fmt: skip
