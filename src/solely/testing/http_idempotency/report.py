"""The results as a table: one row per check, one column per service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .checking import CheckOutcome, Result

SIGNS = {CheckOutcome.PASSED: "yes", CheckOutcome.FAILED: "NO", CheckOutcome.NOT_RUN: "–"}


def table(results: Mapping[str, Sequence[Result]]) -> str:
    """Markdown; below it what was seen where a check failed. Every service must have been asked the same checks."""
    names = list(results)
    lines = [f"| source | check | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for row in zip(*results.values(), strict=True):
        signs = " | ".join(SIGNS[result.outcome] for result in row)
        lines.append(f"| {row[0].check.source} | {row[0].check.text} | {signs} |")
    lines.append(f"| | passed | {' | '.join(_score(results[name]) for name in names)} |")
    for name in names:
        lines += ["", f"{name}:"] if any(_worth_saying(result) for result in results[name]) else []
        lines += [
            f"- {result.check.name}: {result.outcome}: {result.seen}"
            for result in results[name]
            if _worth_saying(result)
        ]
    return "\n".join(lines)


def _worth_saying(result: Result) -> bool:
    return result.outcome is not CheckOutcome.PASSED


def _score(results: Sequence[Result]) -> str:
    passed = sum(result.outcome is CheckOutcome.PASSED for result in results)
    return f"{passed} of {sum(result.outcome is not CheckOutcome.NOT_RUN for result in results)}"
