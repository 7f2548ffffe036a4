"""A check is a function that sends requests to a target and raises Nonconforming if the target breaks a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from http.client import HTTPException
from typing import NamedTuple

from .target import NotGiven, Target, TargetResponse


class Nonconforming(AssertionError):
    """The service does not conform; the text says what it did instead."""


class CheckOutcome(StrEnum):
    """Whether a check passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class Check(NamedTuple):
    """One rule. `source` is the section of the draft, an RFC, or "safety": what a careful service adds."""

    name: str
    source: str
    text: str
    function: Callable[[Target], None]

    def __call__(self, target: Target) -> None:
        """Raises Nonconforming if the target breaks the rule, NotGiven if the target lacks a URL that it needs."""
        self.function(target)


class Result(NamedTuple):
    """A check, its outcome, and the reason if it did not pass."""

    check: Check
    outcome: CheckOutcome
    seen: str = ""


class Checklist(list[Check]):
    """A list to which `check` adds the function that it decorates."""

    def check(self, source: str, text: str) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
        """Adds the decorated function under its own name."""

        def add(function: Callable[[Target], None]) -> Callable[[Target], None]:
            self.append(Check(function.__name__, source, text, function))
            return function

        return add


def expect(condition: bool, wanted: str, seen: TargetResponse | str) -> None:
    """Raises Nonconforming unless the condition is true."""
    if not condition:
        raise Nonconforming(f"wanted {wanted}; saw {seen}")


def first(reply: TargetResponse) -> TargetResponse:
    """Returns the reply to a first request; raises Nonconforming if it was not processed."""
    expect(reply.done, "a first request to be processed (2xx)", reply)
    return reply


def repeats(one: TargetResponse, again: TargetResponse) -> bool:
    """True if both replies come from the same execution: their bodies are equal, as bytes or as JSON."""
    if again.body == one.body:
        return True
    try:
        return bool(json.loads(again.body) == json.loads(one.body))
    except ValueError:
        return False


def expect_repeat(one: TargetResponse, again: TargetResponse) -> None:
    """Raises Nonconforming unless both replies come from the same execution."""
    expect(repeats(one, again), f"the same response again: {one}", again)


def outcome_of(check: Check, target: Target) -> Result:
    """Runs the check and returns its result; never raises."""
    try:
        check(target)
    except Nonconforming as broken:
        return Result(check, CheckOutcome.FAILED, str(broken))
    except NotGiven as missing:
        return Result(check, CheckOutcome.NOT_RUN, str(missing))
    except (OSError, HTTPException) as error:
        return Result(check, CheckOutcome.FAILED, f"no response: {error!r}")
    return Result(check, CheckOutcome.PASSED)
