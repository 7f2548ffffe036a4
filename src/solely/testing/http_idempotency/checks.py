"""The whole checklist, in the order of the draft."""

from __future__ import annotations

from . import errors, replays, running, syntax
from .checking import Check, Result, outcome_of
from .target import Target

CHECKS: list[Check] = [*syntax.CHECKS, *errors.CHECKS, *replays.CHECKS, *running.CHECKS]


def run(target: Target) -> list[Result]:
    """All checks, one after the other."""
    return [outcome_of(check, target) for check in CHECKS]
