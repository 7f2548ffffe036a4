"""Matchers: select things by their labels, in Alertmanager's syntax: severity="critical", host=~web-.*, team!=dba.

wanted = parse_matchers(["severity=critical", "host=~web-.*"])
all(each.meets(labels.get(each.name, "")) for each in wanted)
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # the only way to see how a pattern repeats without running it
from typing import Any, NamedTuple

from ..errors import InvalidInput

OPERATORS = "=~, !~, != or ="
MOST_MATCHERS = 20  # in one list: more than anybody reads
MAX_MATCHER = 600  # characters: a name, a pattern, the operator and quotes
MAX_PATTERN = 256  # characters
LOOKED_AT = 256  # characters of a value that a pattern is matched with; the rest is ignored
MOST_WAYS = 100_000  # ways in which a pattern may match a value: two repetitions and some alternatives; about 1 ms
_PATTERNS = 1_000  # compiled patterns: as many as there are in use
_REMEMBERED = 10_000  # cached results per pattern: the same values come again

_WRITTEN = re.compile(r"\s*([^\s=!~\"]+)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


class Matcher(NamedTuple):
    """`name` names a label; a missing label has an empty value."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{json.dumps(self.value, ensure_ascii=False)}"

    @classmethod
    def parse(cls, text: str) -> Matcher:
        """Parses severity="critical", host=~web-.* or team!=dba; InvalidInput if the text is invalid."""
        written = _WRITTEN.fullmatch(text) if len(text) <= MAX_MATCHER else None
        if written is None:
            raise InvalidInput(
                f"{text!r:.80} is not a matcher; write a field or label, {OPERATORS}, and a value, e.g. "
                f"severity=critical (at most {MAX_MATCHER} characters)"
            )
        name, operator, value = written.groups()
        return cls(name, operator, _unquoted(value))

    def meets(self, value: str) -> bool:
        """True if the label's value matches. A pattern must match the whole value."""
        wanted = not self.operator.startswith("!")
        if self.operator.endswith("~"):
            return _matcher_of(self.value)(value[:LOOKED_AT]) is wanted
        return (value == self.value) is wanted


@lru_cache(_PATTERNS)
def _matcher_of(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.DOTALL)
    return lru_cache(_REMEMBERED)(lambda value: compiled.fullmatch(value) is not None)


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        raise InvalidInput(f"the value {value!r:.80} is not a valid JSON string; omit the quotes") from None


def parse_matchers(texts: Sequence[str]) -> tuple[Matcher, ...]:
    """Parses matchers; InvalidInput if one is invalid, or has a pattern that could block the service."""
    matchers = tuple(map(Matcher.parse, texts))
    for matcher in matchers:
        if matcher.operator.endswith("~"):
            check_pattern(matcher.value)
    return matchers


def selective_matchers(texts: Sequence[str], what: str) -> tuple[Matcher, ...]:
    """Parses matchers; InvalidInput also if there are none, or too many, or if they match every `what`."""
    if not 1 <= len(texts) <= MOST_MATCHERS:
        raise InvalidInput(f"give 1 to {MOST_MATCHERS} matchers, not {len(texts)}")
    matchers = parse_matchers(texts)
    if all(each.meets("") for each in matchers):
        raise InvalidInput(f"these matchers match every {what}; give at least one that an empty value does not match")
    return matchers


def check_pattern(pattern: str) -> None:
    """Returns if the pattern matches any value in about a millisecond; else InvalidInput.

    Python's `re` backtracks, so that a careless pattern could block the service.
    """
    if len(pattern) > MAX_PATTERN:
        raise InvalidInput(f"the pattern {pattern!r:.80} has {len(pattern)} characters; the most is {MAX_PATTERN}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a pattern whose meaning is to change in a later Python
            re.compile(pattern, re.DOTALL)
            ways = _ways(_parser.parse(pattern, re.DOTALL))
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise InvalidInput(f"the pattern {pattern!r:.80} is invalid: {error}") from None
    if ways > MOST_WAYS:
        raise InvalidInput(
            f"the pattern {pattern!r:.80} can match in too many ways; repeat (*, +, ?) at most twice, single "
            "characters or classes only, and use no look-arounds or references"
        )


_ONE_WAY = frozenset(("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"))  # as Python's parser names them
_REPEATS = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))


def _ways(parsed: Any) -> float:
    """An upper bound of the ways in which the parsed pattern can match at one position; infinite if unknown."""
    return math.prod(_ways_of(str(code), given) for code, given in parsed)


def _ways_of(code: str, given: Any) -> float:
    if code in _ONE_WAY:
        return 1.0
    if code == "BRANCH":
        return sum(map(_ways, given[1]))
    if code in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _ways(given[-1] if code == "SUBPATTERN" else given)
    if code in _REPEATS:
        return _ways_to_repeat(*given)
    return math.inf


def _ways_to_repeat(least: int, most: int, what: Any) -> float:
    if most <= 1:
        return 1.0 + _ways(what)
    single = len(what) == 1 and str(what[0][0]) in _ONE_WAY
    return min(most, LOOKED_AT) - min(least, LOOKED_AT) + 1.0 if single else math.inf
