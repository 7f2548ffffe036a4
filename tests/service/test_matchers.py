"""Matchers: they select by labels, as Alertmanager writes them, and no pattern blocks the service."""

from __future__ import annotations

import pytest

from solely.errors import InvalidInput
from solely.kit import MAX_MATCHER, MOST_MATCHERS, Matcher, check_pattern, parse_matchers, selective_matchers


@pytest.mark.parametrize(
    ("text", "value", "met"),
    [
        ("team=dba", "dba", True),
        ("team=dba", "", False),
        ("team!=dba", "", True),
        ('team = "a \\"b\\""', 'a "b"', True),
        ("host=~web-.*", "web-1", True),
        ("host=~web", "web-1", False),  # a pattern must match the whole value
        ("host!~web-.*", "db-1", True),
        ("host!~web-.*", "web-1", False),
        ("note=~x{256}", "x" * 5_000, True),  # of a long value, the beginning is matched
    ],
)
def test_a_matcher_meets_a_value(text: str, value: str, met: bool) -> None:
    matcher = Matcher.parse(text)
    assert matcher.meets(value) is met
    assert Matcher.parse(str(matcher)) == matcher


@pytest.mark.parametrize("text", ["team", "=dba", 'team="dba', "team=" + "x" * MAX_MATCHER])
def test_a_text_that_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Matcher.parse(text)


@pytest.mark.parametrize("pattern", [r"(a*)\1", "(?=a+)a", "[", "x" * 257, "\ud800", "(x{0,99}){10}" * 3])
def test_a_pattern_that_cannot_be_matched_in_good_time_is_refused(pattern: str) -> None:
    for refuse in (lambda: check_pattern(pattern), lambda: parse_matchers([f"team=~{pattern}"])):
        with pytest.raises(InvalidInput, match="pattern"):
            refuse()


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", ".*.*.*x", r"(\s*a*)*$", "(a?){25}a{25}b"])
def test_no_pattern_blocks_the_service(pattern: str) -> None:
    """Each of them takes Python's own engine minutes or longer, which the time limit of the test would end."""
    check_pattern(pattern)
    for value in ("a" * 255 + "!", "\ud800" * 300):
        assert Matcher("team", "=~", pattern).meets(value) is False


def test_matchers_that_select_nothing_are_refused() -> None:
    assert parse_matchers(["team!=dba"]) == (Matcher("team", "!=", "dba"),)
    for texts in ([], ["team!=dba"], ["team=~.*", "zone="], ["team=a"] * (MOST_MATCHERS + 1)):
        with pytest.raises(InvalidInput, match=r"match every probe|give 1 to 20"):
            selective_matchers(texts, "probe")
    assert len(selective_matchers(["team!=dba", "zone=a"], "probe")) == 2
