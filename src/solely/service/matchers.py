"""Matchers: select things by their labels, in Alertmanager's syntax: severity="critical", host=~web-.*, team!=dba.

wanted = parse_matchers(["severity=critical", "host=~web-.*"])
all(each.meets(labels.get(each.name, "")) for each in wanted)
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import InvalidInput
from .patterns import check_pattern, matches

OPERATORS = "=~, !~, != or ="
MOST_MATCHERS = 20  # in one list: more than anybody reads
MAX_MATCHER = 600  # characters: a name, a pattern, the operator and quotes
LOOKED_AT = 256  # characters of a value that a pattern is matched with; the rest is ignored
_REMEMBERED = 100_000  # results: the same values meet the same patterns again

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
            return _matches(self.value, value[:LOOKED_AT]) is wanted
        return (value == self.value) is wanted


_matches = lru_cache(_REMEMBERED)(matches)


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        raise InvalidInput(f"the value {value!r:.80} is not a valid JSON string; omit the quotes") from None


def parse_matchers(texts: Sequence[str]) -> tuple[Matcher, ...]:
    """Parses matchers; InvalidInput if one is invalid, or has an invalid pattern."""
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
