"""Patterns that users write, matched with text that others send. RE2 does not backtrack: the time of a match grows with
the text and with the pattern, and never faster. A pattern must be valid in RE2, as in Go and so in Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import re2

from ..errors import InvalidInput

MAX_PATTERN = 256  # characters, where nothing else is said
SYNTAX = "https://github.com/google/re2/wiki/Syntax"
# Instructions of a compiled pattern. A search of 256 KiB takes up to 0.5 ms for each: one second for the largest.
MOST_INSTRUCTIONS = 2_000
_MAX_MEMORY = 1 << 20  # bytes of a compiled pattern with its states; with fewer, large patterns are ten times slower
_KEPT = 256  # compiled patterns: a compilation takes some 50 µs
_QUICK = 1_000_000  # characters × instructions of a search that takes at most some milliseconds
_TURN = 0.005  # seconds of matching after which others go on: a request may wait for some of these
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="solely-patterns")  # RE2 runs without the interpreter's lock


def check_pattern(pattern: str, most: int = MAX_PATTERN) -> None:
    """Raises InvalidInput unless it is a pattern of at most so many characters that matches any text in good time."""
    if len(pattern) > most:
        raise InvalidInput(f"the pattern {pattern!r:.80} has {len(pattern)} characters; the most is {most}")
    _compiled(pattern)


def matches(pattern: str, text: str) -> bool:
    """True if the whole text matches, in which a dot is any character. For short texts: the caller waits."""
    return _compiled(pattern, True).fullmatch(_encodable(text)) is not None


async def search_pattern(pattern: str, text: str) -> Sequence[str | None] | None:
    """The first place in the text that matches, and the groups in it; None if there is none."""
    compiled, text = _compiled(pattern), _encodable(text)
    if len(text) * compiled.programsize <= _QUICK:
        found = compiled.search(text)
    else:
        found = await asyncio.get_running_loop().run_in_executor(_THREADS, compiled.search, text)
    return None if found is None else (found[0], *found.groups())


class Turns:
    """Awaited in each round of a loop that matches many short texts: lets others go on once 5 ms have passed."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def __call__(self) -> None:
        if time.perf_counter() - self._began >= _TURN:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


@lru_cache(_KEPT)
def _compiled(pattern: str, dot_is_any: bool = False) -> Any:
    options = re2.Options()
    options.log_errors, options.dot_nl, options.max_mem = False, dot_is_any, _MAX_MEMORY
    options.never_capture = dot_is_any  # groups, which `matches` does not return, take up to thirty times as long
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise InvalidInput(f"the pattern {pattern!r:.80} is invalid: it is not encodable as UTF-8") from None
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise InvalidInput(f"the pattern {pattern!r:.80} is invalid: {why}; see {SYNTAX}") from None
    if compiled.programsize > MOST_INSTRUCTIONS:
        raise InvalidInput(f"the pattern {pattern!r:.80} is too large; repeat less, such as x+ instead of x{{1,1000}}")
    return compiled


def _encodable(text: str) -> str:
    """The text, with ? for what is no character: half of a surrogate pair."""
    return text if text.isascii() else text.encode(errors="replace").decode()
