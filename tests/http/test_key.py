"""The Idempotency-Key field: RFC 9651, section 4.2, by tables."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solely import InvalidInput
from solely.integrations.idempotency import parse_key
from solely.integrations.idempotency.key import fitting_key
from solely.testing.http_idempotency.target import quoted

GOOD = {
    b'"8e03978e-40d5-43e8-bc93-6894a57f9324"': "8e03978e-40d5-43e8-bc93-6894a57f9324",
    b'  "a"  ': "a",
    b'""': "",
    b'" "': " ",
    b'"a\\"b\\\\c"': 'a"b\\c',
    b'"a";b': "a",
    b'"a"; b=1;c=?0; d="x;y" ;e'.replace(b" ;", b";"): "a",
    b'"a";t=tok/en:*;b=:YQ==:;d=@-1659578233;n=-1.5;*k=%"caf%c3%a9"': "a",
    b'"~"': "~",
}

BAD = {
    b"": "no structured field",
    b"token": "a token",
    b"8e03978e-40d5-43e8-bc93-6894a57f9324": "no structured field",
    b"42": "a number",
    b"-4.25": "a number",
    b"?1": "a boolean",
    b":YWJj:": "a byte sequence",
    b"@1659578233": "a date",
    b'%"caf%c3%a9"': "a display string",
    b'"a", "b"': "a list",
    b'"a",': "a list",
    b'("a" "b")': "no structured field",
    b'"a" "b"': "no structured field",
    b'"a': "no structured field",
    b'a"': "no structured field",
    b'"a\\n"': "no structured field",
    b'"a\\"': "no structured field",
    b'"a"b': "no structured field",
    b'"a\tb"': "no structured field",
    b'\t"a"': "no structured field",
    b'"caf\xc3\xa9"': "no structured field",
    b'"\x7f"': "no structured field",
    b'"\x00"': "no structured field",
    b"'a'": "no structured field",
    b'"a" ;b': "no structured field",
    b'"a";B': "no structured field",
    b'"a";b=': "no structured field",
    b'"a";': "no structured field",
}


@pytest.mark.parametrize("line", GOOD, ids=repr)
def test_a_string_is_read(line: bytes) -> None:
    assert parse_key([line]) == GOOD[line]


@pytest.mark.parametrize("line", BAD, ids=repr)
def test_anything_else_is_refused_and_named(line: bytes) -> None:
    with pytest.raises(InvalidInput, match=BAD[line]):
        parse_key([line])


BARE = {
    b"8e03978e-40d5-43e8-bc93-6894a57f9324": "8e03978e-40d5-43e8-bc93-6894a57f9324",
    b"  order_42:retry  ": "order_42:retry",
    b"42": "42",
    b'"a"': "a",
}


@pytest.mark.parametrize("line", BARE, ids=repr)
def test_a_key_without_quotes_is_read_where_that_is_allowed(line: bytes) -> None:
    assert parse_key([line], bare=True) == BARE[line]


@pytest.mark.parametrize(
    "line", [b"", b"  ", b"a b", b"a, b", b"a,b", b'"a', b'a"', b"caf\xc3\xa9", b"a\x00", b'"a"b'], ids=repr
)
def test_what_is_no_single_key_is_refused_even_then(line: bytes) -> None:
    with pytest.raises(InvalidInput, match="must be a Structured Field String"):
        parse_key([line], bare=True)


def test_two_lines_are_refused() -> None:
    with pytest.raises(InvalidInput, match="sent 2 times"):
        parse_key([b'"a"', b'"a"'])


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_whatever_can_be_written_is_read_back(key: str) -> None:
    assert parse_key([quoted(key).encode()]) == key


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(line: bytes) -> None:
    try:
        key = parse_key([line])
    except InvalidInput:
        return
    assert key.isascii()
    assert key.isprintable()


def test_a_long_line_is_refused_quickly() -> None:
    with pytest.raises(InvalidInput):
        parse_key([b'"' + b"\\\\" * 30_000 + b"\x00" + b";a=1" * 1000])


@pytest.mark.parametrize("key", ["", "a b", "x" * 256])
def test_a_key_must_have_the_published_form(key: str) -> None:
    with pytest.raises(InvalidInput, match="published form"):
        fitting_key(key, re.compile("[!-~]{1,255}"))
