"""The output of a run: a table for people, one flat JSON object for programs."""

import json
import math
from collections.abc import Sequence

from .harness import Goal, Row

HEAD = ("key", "median", "range", "goal", "", "pinned", "compared with")


def table(rows: Sequence[Row]) -> str:
    """Returns one line per figure, with "MISSED" after a missed goal."""
    lines = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.goal.key,
        f"{row.figure:.2f}",
        f"{min(row.figures):.2f}-{max(row.figures):.2f}",
        _bound(row.goal),
        "" if row.reached else "MISSED",
        row.place,
        row.goal.against,
    )


def _bound(goal: Goal) -> str:
    if goal.bound == (math.inf if goal.at_most else 0.0):
        return "–"
    return f"{'<=' if goal.at_most else '>='} {goal.bound:g}"


def flat_json(rows: Sequence[Row]) -> str:
    """Returns the medians by key."""
    return json.dumps({row.goal.key: round(row.figure, 3) for row in rows})
