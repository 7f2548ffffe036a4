"""Matchers: which alerts are meant, by their fields and labels, as Alertmanager's are written."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from re import _parser  # type: ignore[attr-defined]  # the only way to see how a pattern repeats before it is tried
from typing import Any, NamedTuple

from ....errors import InvalidInput
from ..model import Alert

FIELDS = frozenset(("name", "severity", "source", "fingerprint"))
LABEL = "labels."  # before a label's name, where it could be mistaken for a field's
OPERATORS = "=~, !~, != or ="
MOST_MATCHERS = 20  # of one silence: more than anybody reads
MAX_MATCHER = 600  # characters: a name, a value and what stands around them
MAX_PATTERN = 256  # characters
LOOKED_AT = 256  # characters of a value that a pattern is compared with: a longer one is known by its beginning
MOST_WAYS = 100_000  # in which a pattern may be tried on a value: two repetitions, and some alternatives; about 1 ms
_REMEMBERED = 10_000  # values and what patterns said to them: alerts come again

_WRITTEN = re.compile(r"\s*([^\s=!~\"]+)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


class Matcher(NamedTuple):
    """`name` is a field or a label of the alert; one that it does not have is empty."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{json.dumps(self.value, ensure_ascii=False)}"


def parse(text: str) -> Matcher:
    """The matcher that is written as severity="critical", labels.host=~web-.* or team!=dba; else InvalidInput."""
    written = _WRITTEN.fullmatch(text) if len(text) <= MAX_MATCHER else None
    if written is None:
        raise InvalidInput(
            f"{text!r:.80} is no matcher; write a field or label, {OPERATORS}, and a value, e.g. severity=critical "
            f"(at most {MAX_MATCHER} characters)"
        )
    name, operator, value = written.groups()
    return Matcher(name, operator, _unquoted(value))


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        raise InvalidInput(f"the value {value!r:.80} is not quoted as JSON text is; leave the quotes out") from None


def checked(texts: Sequence[str]) -> tuple[Matcher, ...]:
    """The matchers, all of which an alert must meet; InvalidInput if one cannot be, or they would meet every alert."""
    if not 1 <= len(texts) <= MOST_MATCHERS:
        raise InvalidInput(f"give 1 to {MOST_MATCHERS} matchers, not {len(texts)}")
    matchers = tuple(map(parse, texts))
    for matcher in matchers:
        if matcher.operator.endswith("~"):
            check_pattern(matcher.value)
    if all(_says_nothing(matcher) for matcher in matchers):
        raise InvalidInput("these matchers meet every alert; give at least one that an empty value does not meet")
    return matchers


def _says_nothing(matcher: Matcher) -> bool:
    return predicate(matcher)(Alert(name="", severity="", source="", fingerprint=""))


def predicate(matcher: Matcher) -> Callable[[Alert], bool]:
    """True for an alert that the matcher meets. A pattern must match the whole value."""
    read = _reader(matcher.name)
    wanted = not matcher.operator.startswith("!")
    if matcher.operator.endswith("~"):
        matches = _remembering(re.compile(matcher.value, re.DOTALL))
        return lambda alert: matches(read(alert)[:LOOKED_AT]) is wanted
    return lambda alert: (read(alert) == matcher.value) is wanted


def _remembering(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lru_cache(_REMEMBERED)(lambda value: pattern.fullmatch(value) is not None)


def _reader(name: str) -> Callable[[Alert], str]:
    if name in FIELDS:
        return partial(_field, name)
    return partial(_label, name.removeprefix(LABEL))


def _field(name: str, alert: Alert) -> str:
    return str(getattr(alert, name))


def _label(name: str, alert: Alert) -> str:
    return alert.labels.get(name, "")


def check_pattern(pattern: str) -> None:
    """Returns if the pattern can be compared with any value in next to no time; else InvalidInput.

    Python's patterns are tried one way after the other, so that a careless one could stop the service.
    """
    if len(pattern) > MAX_PATTERN:
        raise InvalidInput(f"the pattern {pattern!r:.80} has {len(pattern)} characters; the most is {MAX_PATTERN}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python will read in another way one day
            re.compile(pattern, re.DOTALL)
            ways = _ways(_parser.parse(pattern, re.DOTALL))
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise InvalidInput(f"the pattern {pattern!r:.80} cannot be: {error}") from None
    if ways > MOST_WAYS:
        raise InvalidInput(
            f"the pattern {pattern!r:.80} can be tried in too many ways; repeat (*, +, ?) at most twice, single "
            "characters or classes only, and leave look-arounds and references out"
        )


_ONE_WAY = frozenset(("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"))  # as Python's parser names them
_REPEATS = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))


def _ways(parsed: Any) -> float:
    """In how many ways the parsed pattern can be tried at one place; more than may be for what is not counted."""
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
