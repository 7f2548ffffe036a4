"""One text for both dialects: what names a value, and what only looks like it."""

from __future__ import annotations

import pytest

from solely.data.dialect import for_psycopg


@pytest.mark.parametrize(
    ("sql", "said", "names"),
    [
        ("SELECT 1", "SELECT 1", set()),
        ("SELECT '100%'", "SELECT '100%'", set()),
        ("SELECT :a, :b_2, :a", "SELECT %(a)s, %(b_2)s, %(a)s", {"a", "b_2"}),
        ("SELECT :a::text", "SELECT %(a)s::text", {"a"}),
        ("SELECT x::text", "SELECT x::text", set()),
        ("SELECT ':a', \":b\", :c", "SELECT ':a', \":b\", %(c)s", {"c"}),
        ("SELECT 'it''s :a', :c", "SELECT 'it''s :a', %(c)s", {"c"}),
        ("SELECT :c -- not :a, it's\n, :d", "SELECT %(c)s -- not :a, it's\n, %(d)s", {"c", "d"}),
        ("SELECT /* :a ' */ :c", "SELECT /* :a ' */ %(c)s", {"c"}),
        ("SELECT $t$ :a ' $t$, :c", "SELECT $t$ :a ' $t$, %(c)s", {"c"}),
        ("SELECT '10%', 7 % 2, :c", "SELECT '10%%', 7 %% 2, %(c)s", {"c"}),
    ],
)
def test_values_are_found_and_all_else_is_left_alone(sql: str, said: str, names: set[str]) -> None:
    assert tuple(for_psycopg(sql)) == (said.encode(), frozenset(names))


def test_a_text_is_read_once() -> None:
    before = for_psycopg.cache_info().hits
    assert for_psycopg("SELECT :once") is for_psycopg("SELECT :once")
    assert for_psycopg.cache_info().hits > before
