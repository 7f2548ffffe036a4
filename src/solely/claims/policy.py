"""What to do with a claim whose work failed, as data: per class of error, replay, release, retry later, or park.

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
class ReleasePolicy:
    """Releases the claim at once: the first waiter, or the next caller, runs the work again."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Makes the failure the outcome: for `keep` seconds every caller gets WorkFailed, and the work does not run again.

    An hour by default: long enough for the retries of a client, short enough that repaired work runs the same day.
    """

    keep: Seconds = HOUR

    def __post_init__(self) -> None:
        ttl_seconds(self.keep, "keep")


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Releases the claim; the work does not run again for that many seconds."""

    seconds: Seconds

    def __post_init__(self) -> None:
        seconds("seconds", self.seconds, least=0.001, most=DAY)


@dataclass(frozen=True, slots=True)
class Park:
    """Releases the claim until attempt number `after`, whose failure becomes a dead letter in `group` and the outcome.

    Callers get that failure for `keep` seconds. The count of attempts is kept as long as the claim's result would be.
    """

    after: int
    group: str
    keep: Seconds = DAY  # by then a person has seen the dead letter

    def __post_init__(self) -> None:
        after: Any = self.after
        group: Any = self.group
        if type(after) is not int or after < 1:
            raise InvalidInput(f"after must be a number of attempts, an int of at least 1, not {after!r}")
        if not isinstance(group, str) or not group:
            raise InvalidInput(f"group must be the name of a group of dead letters, not {group!r}")
        ttl_seconds(self.keep, "keep")


Outcome = ReleasePolicy | Replay | RetryAfter | Park
RELEASE = ReleasePolicy()


class Failing(StrEnum):
    """How a claim ended whose work failed."""

    RELEASED = "released"  # any caller may run it now
    DELAYED = "delayed"  # any caller may run it after the delay
    REPLAYED = "replayed"  # the failure is the outcome
    PARKED = "parked"  # the failure is the outcome, and a dead letter
    LOST = "lost"  # unchanged: another holder has the claim, or it ended before


class Policy:
    """Maps a failure to an outcome: by its class, or its nearest base class in `rules`; else `default`.

    An error that is no Exception (cancellation, KeyboardInterrupt) releases the claim unless a rule names its class.
    """

    __slots__ = ("default", "rules")

    def __init__(
        self, rules: Mapping[type[BaseException], Outcome] | None = None, *, default: Outcome = RELEASE
    ) -> None:
        kind: Any
        for kind, outcome in (rules or {}).items():
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise InvalidInput(f"a policy maps exception classes to outcomes; {kind!r} is not an exception class")
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
    if not isinstance(outcome, ReleasePolicy | Replay | RetryAfter | Park):
        raise InvalidInput(f"an outcome must be RELEASE, Replay(…), RetryAfter(…) or Park(…), not {outcome!r}")
    return outcome


ALWAYS_RELEASE = Policy()
