"""The whole checklist in the order of the draft, how to run it, and its results as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import errors, in_flight, replays, syntax
from .checking import Check, CheckOutcome, Result, outcome_of
from .target import Target

CHECKS: list[Check] = [*syntax.CHECKS, *errors.CHECKS, *replays.CHECKS, *in_flight.CHECKS]
SIGNS = {CheckOutcome.PASSED: "yes", CheckOutcome.FAILED: "NO", CheckOutcome.NOT_RUN: "–"}


def run(target: Target) -> list[Result]:
    """Runs all checks, one after the other."""
    return [outcome_of(check, target) for check in CHECKS]


def table(results: Mapping[str, Sequence[Result]]) -> str:
    """Returns a Markdown table with one row per check and one column per service, followed by the reasons of failures.

    All services must have run the same checks."""
    names = list(results)
    lines = [f"| source | check | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for row in zip(*results.values(), strict=True):
        signs = " | ".join(SIGNS[result.outcome] for result in row)
        lines.append(f"| {row[0].check.source} | {row[0].check.text} | {signs} |")
    lines.append(f"| | passed | {' | '.join(_score(results[name]) for name in names)} |")
    for name in names:
        lines += ["", f"{name}:"] if any(_not_passed(result) for result in results[name]) else []
        lines += [
            f"- {result.check.name}: {result.outcome}: {result.seen}" for result in results[name] if _not_passed(result)
        ]
    return "\n".join(lines)


def _not_passed(result: Result) -> bool:
    return result.outcome is not CheckOutcome.PASSED


def _score(results: Sequence[Result]) -> str:
    passed = sum(result.outcome is CheckOutcome.PASSED for result in results)
    return f"{passed} of {sum(result.outcome is not CheckOutcome.NOT_RUN for result in results)}"
