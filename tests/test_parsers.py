"""Whatever a parser is given, it returns a value or raises the error that it documents; its work grows with the input,
not with its square. `tests/parsers.py` lists every parser of what others send."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parsers import PARSERS, Parser

EXAMPLES, MORE = 60, 2_000  # of each parser, without and with --all, beside what is tried without chance
MOST_PARTS = 60  # of an accepted text whose parts are replaced
SHORT, LONG = 250, 2_000  # repetitions of a piece
REPEATED = (*'\t 09a./:;,=([{"\\%@&é*', '\\"', '{"a":', "[1,", "a+a+", "%F0", "../")
PIECES = (
    "", " ", "\t", "\n", "\r\n", "\0", "\x7f", "é", "\xff", "٣", "²", "𝔘", "\ud800", "%", "%00", "%zz", "%F0",
    "+", "-", "--", "0", "1", "-1", "1e999", "NaN", "9" * 20, "9" * 5_000, "a", "Z", "_", ".", "..", "/", "//",
    "://", ":", ";", ",", "=", "==", "=~", "!", "~", "*", "**", "?", "#", "@", "@@", "&", "|", "(", ")", "((",
    "[", "]", "[[", "[::1]", "{", "}", "<", ">", '"', "'", "\\", '\\"', "\\u", "\\ud800", "null", "true",
    '{"a":', "[1,", "T", "Z", "GMT", "31", "2026", "*/0", "1-", "x=", "a+a+", "(a*)*", "(?i)", "v1,", "sha256=",
    "bearer ", "localhost", "🙂",
)  # fmt: skip
JUNK = st.sampled_from(PIECES) | st.text(max_size=6)
every_parser = pytest.mark.parametrize("parser", PARSERS, ids=[each.name for each in PARSERS])


def mutated(parser: Parser) -> st.SearchStrategy[str]:
    """Texts that are accepted with pieces replaced, removed and inserted; and texts made of pieces only."""
    junk = st.lists(JUNK, max_size=6).map("".join)
    if not parser.accepts:
        return junk
    cut = st.integers(0, max(map(len, parser.accepts)))
    changed = st.tuples(st.sampled_from(parser.accepts), cut, cut, junk).map(
        lambda it: it[0][: min(it[1], it[2])] + it[3] + it[0][max(it[1], it[2]) if it[2] % 2 else min(it[1], it[2]) :]
    )
    return changed | junk


def replaced(parser: Parser) -> Iterator[str]:
    """Each accepted text with each of its parts replaced by each piece."""
    for accepted in parser.accepts:
        parts = re.findall(r"\w+|\W", accepted)[:MOST_PARTS]
        for place in range(len(parts)):
            before, after = "".join(parts[:place]), "".join(parts[place + 1 :])
            for piece in PIECES:
                yield before + piece + after


def run(parser: Parser, text: str) -> None:
    """Fails with the text if the parser raises an error that it does not document."""
    try:
        parser.parse(text)
    except parser.errors:
        pass
    except Exception as error:
        raise AssertionError(f"{parser.name} raised {error!r} for {text!r:.300}") from error


@every_parser
def test_any_text_is_read_or_refused_by_a_documented_error(parser: Parser, request: pytest.FixtureRequest) -> None:
    thorough = bool(request.config.getoption("--all"))

    @settings(
        max_examples=MORE if thorough else EXAMPLES,
        derandomize=not thorough,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated(parser))
    def check(text: str) -> None:
        run(parser, text)

    check()


@every_parser
def test_any_part_may_be_replaced_by_anything(parser: Parser) -> None:
    for text in islice(replaced(parser), 0, None, parser.pace):
        run(parser, text)


@pytest.mark.parametrize("parser", [each for each in PARSERS if each.accepts], ids=lambda each: each.name)
def test_what_the_fuzzing_begins_with_is_accepted(parser: Parser) -> None:
    for text in parser.accepts:
        parser.parse(text)


def hostile(parser: Parser, count: int) -> Iterator[str]:
    """Long texts: each piece again and again, alone and inside of what is accepted."""
    for piece in REPEATED:
        text = (piece * count)[: parser.longest]
        yield text
        for accepted in parser.accepts[:1]:
            half = len(accepted) // 2
            yield accepted[:half] + text + accepted[half:]


def steps(parser: Parser, text: str) -> int:
    """The lines of Python that the parser executes for this text."""
    counted = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        run(parser, text)
    finally:
        sys.settrace(before)
    return counted


@every_parser
def test_work_grows_with_the_input_and_not_with_its_square(parser: Parser) -> None:
    """Eight times the input may take some more than eight times the steps; a square would take 64 times as many. What
    runs inside of C, such as a pattern, is not counted: a square there would run into the time limit of the test."""
    for short, long in zip(hostile(parser, SHORT), hostile(parser, LONG), strict=True):
        few, many = steps(parser, short), steps(parser, long)
        assert many <= 12 * few + 20_000, f"{few} steps for {len(short)} and {many} for {len(long)} of {short!r:.60}"


@every_parser
@pytest.mark.only_with_all
def test_a_very_long_text_takes_no_time(parser: Parser) -> None:
    for text in hostile(parser, parser.longest):
        run(parser, text)
