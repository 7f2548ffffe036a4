"""Stores that nobody may call: whoever uses them shows that bad input went past the edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solely.model import Entry, Finding
from solely.ops import Op
from solely.stores import OnHint


class _Untouched:
    client = "0" * 32
    polls = False
    max_limit = 10_000
    portion = 128
    perform_within = None

    def listen(self, on_hint: OnHint) -> None:
        pass

    def forked(self) -> None:
        pass


class RefusingStore(_Untouched):
    """Fails the test if anything is asked of it."""

    def perform(self, ops: Sequence[Op]) -> Any:
        raise AssertionError(f"the store was asked: {ops}")

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        raise AssertionError("the store was scanned")

    def check(self) -> list[Finding]:
        return []

    def close(self) -> None:
        pass


class AsyncRefusingStore(_Untouched):
    """Fails the test if anything is asked of it."""

    def perform(self, ops: Sequence[Op]) -> Any:
        raise AssertionError(f"the store was asked: {ops}")

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        raise AssertionError("the store was scanned")

    async def check(self) -> list[Finding]:
        return []

    async def close(self) -> None:
        pass
