"""Checks: each is a function that asks a target and raises Nonconforming, with what it saw, if a promise is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from http.client import HTTPException
from typing import NamedTuple

from .target import NotGiven, Target, TargetResponse


class Nonconforming(AssertionError):
    """The service did otherwise; the text says what was seen."""


class CheckOutcome(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class Check(NamedTuple):
    """One promise. `source` is the section of the draft, an RFC, or "safety": what a careful service adds."""

    name: str
    source: str
    text: str
    ask: Callable[[Target], None]

    def __call__(self, target: Target) -> None:
        """Returns if the promise was kept; raises Nonconforming if not, NotGiven if the target does not offer it."""
        self.ask(target)


class Result(NamedTuple):
    """A check and what came of it."""

    check: Check
    outcome: CheckOutcome
    seen: str = ""


class Checklist(list[Check]):
    """Checks, in the order in which they were written."""

    def check(self, source: str, text: str) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
        """Adds the function, under its own name."""

        def added(ask: Callable[[Target], None]) -> Callable[[Target], None]:
            self.append(Check(ask.__name__, source, text, ask))
            return ask

        return added


def expect(truth: bool, wanted: str, seen: TargetResponse | str) -> None:
    """Nonconforming unless it is true."""
    if not truth:
        raise Nonconforming(f"wanted {wanted}; saw {seen}")


def first(reply: TargetResponse) -> TargetResponse:
    """The reply to a first request, which must have been processed."""
    expect(reply.done, "a first request to be processed (2xx)", reply)
    return reply


def repeats(one: TargetResponse, again: TargetResponse) -> bool:
    """True if both tell of the same execution: the same body, be it that its JSON was written anew."""
    if again.body == one.body:
        return True
    try:
        return bool(json.loads(again.body) == json.loads(one.body))
    except ValueError:
        return False


def expect_repeat(one: TargetResponse, again: TargetResponse) -> None:
    """Nonconforming unless both tell of the same execution."""
    expect(repeats(one, again), f"the same response again: {one}", again)


def outcome_of(check: Check, target: Target) -> Result:
    """What came of the check; never raises."""
    try:
        check(target)
    except Nonconforming as broken:
        return Result(check, CheckOutcome.FAILED, str(broken))
    except NotGiven as missing:
        return Result(check, CheckOutcome.NOT_RUN, str(missing))
    except (OSError, HTTPException) as error:
        return Result(check, CheckOutcome.FAILED, f"no answer: {error!r}")
    return Result(check, CheckOutcome.PASSED)
