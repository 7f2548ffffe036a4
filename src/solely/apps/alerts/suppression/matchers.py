"""Matchers: select alerts by their fields and labels, in Alertmanager's syntax."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # the only way to see how a pattern repeats without running it
from typing import Any, NamedTuple

from .... import InvalidInput
from ..model import Alert, bare_alert

FIELDS = frozenset(("name", "severity", "source", "fingerprint"))
LABEL = "labels."  # optional prefix of a label's name, for labels that are named like a field
ALERTNAME = "alertname"  # the label with the alert's name, as Prometheus has it
_STAND_INS = {ALERTNAME: "name", "source": "source"}  # label → the field that an alert without this label has for it
OPERATORS = "=~, !~, != or ="
MOST_MATCHERS = 20  # of one silence: more than anybody reads
MAX_MATCHER = 600  # characters: a name, a pattern, the operator and quotes
MAX_PATTERN = 256  # characters
LOOKED_AT = 256  # characters of a value that a pattern is matched with; the rest is ignored
MOST_WAYS = 100_000  # ways in which a pattern may match a value: two repetitions and some alternatives; about 1 ms
_REMEMBERED = 10_000  # cached results per pattern: the same alerts come again

_WRITTEN = re.compile(r"\s*([^\s=!~\"]+)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


class Matcher(NamedTuple):
    """`name` is a field or a label of the alert; a missing label has an empty value."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{json.dumps(self.value, ensure_ascii=False)}"


def parse(text: str) -> Matcher:
    """Parses severity="critical", labels.host=~web-.* or team!=dba; InvalidInput if the text is invalid."""
    written = _WRITTEN.fullmatch(text) if len(text) <= MAX_MATCHER else None
    if written is None:
        raise InvalidInput(
            f"{text!r:.80} is not a matcher; write a field or label, {OPERATORS}, and a value, e.g. severity=critical "
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
        raise InvalidInput(f"the value {value!r:.80} is not a valid JSON string; omit the quotes") from None


def checked(texts: Sequence[str]) -> tuple[Matcher, ...]:
    """Parses matchers, all of which an alert must match; InvalidInput if one is invalid, or they match every alert."""
    if not 1 <= len(texts) <= MOST_MATCHERS:
        raise InvalidInput(f"give 1 to {MOST_MATCHERS} matchers, not {len(texts)}")
    if matching(texts)(bare_alert()):
        raise InvalidInput("these matchers match every alert; give at least one that an empty value does not match")
    return _parsed(texts)


def _parsed(texts: Sequence[str]) -> tuple[Matcher, ...]:
    matchers = tuple(map(parse, texts))
    for matcher in matchers:
        if matcher.operator.endswith("~"):
            check_pattern(matcher.value)
    return matchers


def predicate(matcher: Matcher) -> Callable[[Alert], bool]:
    """A function that is true for an alert that matches. A pattern must match the whole value."""
    read = _reader(matcher.name)
    wanted = not matcher.operator.startswith("!")
    if matcher.operator.endswith("~"):
        pattern = re.compile(matcher.value, re.DOTALL)
        matches = lru_cache(_REMEMBERED)(lambda value: pattern.fullmatch(value) is not None)
        return lambda alert: matches(read(alert)[:LOOKED_AT]) is wanted
    return lambda alert: (read(alert) == matcher.value) is wanted


def matching(texts: Sequence[str]) -> Callable[[Alert], bool]:
    """A function that is true for an alert that matches all of these, or any alert if there are none; InvalidInput if
    one is invalid."""
    predicates = [predicate(matcher) for matcher in _parsed(texts)]
    return lambda alert: all(matches(alert) for matches in predicates)


def labels_of(alert: Alert) -> dict[str, str]:
    """The labels by which clients of Alertmanager know the alert: its own, its severity, and where it lacks them its
    name and source as labels. A matcher of one of these labels reads the same value."""
    return {label: str(getattr(alert, field)) for label, field in _STAND_INS.items()} | {
        **alert.labels,
        "severity": alert.severity,
    }


def _reader(name: str) -> Callable[[Alert], str]:
    if name in FIELDS:
        return lambda alert: str(getattr(alert, name))
    label = name.removeprefix(LABEL)
    if label in _STAND_INS:
        return lambda alert: alert.labels.get(label, str(getattr(alert, _STAND_INS[label])))
    return lambda alert: alert.labels.get(label, "")


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
