"""Stores that count what they are asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solely.ops import Op
from solely.stores import Clock, open_async_store, open_store


class Counted:
    """A store of the kind at hand; `ops` are those that its client sent, but for renewals."""

    def __init__(self, kind: str, url: str, clock: Clock | None = None) -> None:
        self._store: Any = (open_store if kind == "blocking" else open_async_store)(url, clock=clock)
        self.ops: list[Op] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def perform(self, ops: Sequence[Op]) -> Any:
        self.ops.extend(ops)
        return self._store.perform(ops)

    def names(self) -> list[str]:
        """The names of the ops, in order."""
        return [type(op).__name__ for op in self.ops]
