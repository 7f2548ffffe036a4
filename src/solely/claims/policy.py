"""What becomes of a claim whose work failed, as data: per class of error, replay, release, retry after, or park.

Policy({CardDeclined: Replay(), RateLimited: RetryAfter(60), Exception: Park(after=5, group="charges")})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import InvalidInput
from ..rules import DAY, HOUR, Seconds, seconds, ttl_seconds


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """The claim is let go at once: the next one, or the first who waits, runs the work again."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The failure is the result: for `keep` seconds everyone is told WorkFailed, and nobody runs the work again.

    An hour by default: long enough for the retries of a client, short enough that what was repaired runs today.
    """

    keep: Seconds = HOUR

    def __post_init__(self) -> None:
        ttl_seconds(self.keep, "keep")


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The claim is let go, and nobody runs the work again before that many seconds."""

    seconds: Seconds

    def __post_init__(self) -> None:
        seconds("seconds", self.seconds, least=0.001, most=DAY)


@dataclass(frozen=True, slots=True)
class Park:
    """Let go until attempt number `after`; that one's failure leaves a dead letter in `group` and is the result.

    It is told to everyone for `keep` seconds. The count of attempts is kept as long as the claim's result would be.
    """

    after: int
    group: str
    keep: Seconds = DAY  # a day: a person has looked at the dead letter by then

    def __post_init__(self) -> None:
        after: Any = self.after
        group: Any = self.group
        if type(after) is not int or after < 1:
            raise InvalidInput(f"park after a whole number of attempts, at least 1, not {after!r}")
        if not isinstance(group, str) or not group:
            raise InvalidInput(f"park needs the name of a group of dead letters, not {group!r}")
        ttl_seconds(self.keep, "keep")


Outcome = ReleaseClaim | Replay | RetryAfter | Park
RELEASE = ReleaseClaim()


class Failing(StrEnum):
    """What was done with a claim whose work failed."""

    RELEASED = "released"  # anyone may run it now
    DELAYED = "delayed"  # anyone may run it after the delay
    REPLAYED = "replayed"  # the failure is the result
    PARKED = "parked"  # the failure is the result, and a dead letter
    LOST = "lost"  # nothing: the claim was another's by then, or had ended before; that outcome stands


class Policy:
    """Which outcome a failure has: that of its class, or of the nearest class that it derives from; else `default`.

    What is no Exception (cancellation, KeyboardInterrupt) releases unless its own class is named.
    """

    __slots__ = ("default", "rules")

    def __init__(
        self, rules: Mapping[type[BaseException], Outcome] | None = None, *, default: Outcome = RELEASE
    ) -> None:
        kind: Any
        for kind, outcome in (rules or {}).items():
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise InvalidInput(f"a policy maps classes of exceptions to outcomes; {kind!r} is none")
            _checked(outcome)
        self.rules = dict(rules or {})
        self.default = _checked(default)

    def of(self, error: BaseException) -> Outcome:
        """The outcome of this failure."""
        for kind in type(error).__mro__:
            if kind in self.rules:
                return self.rules[kind]
        return self.default if isinstance(error, Exception) else RELEASE


def _checked(outcome: Outcome) -> Outcome:
    if not isinstance(outcome, ReleaseClaim | Replay | RetryAfter | Park):
        raise InvalidInput(f"an outcome is RELEASE, Replay(…), RetryAfter(…) or Park(…), not {outcome!r}")
    return outcome


ALWAYS_RELEASE = Policy()
