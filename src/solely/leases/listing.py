"""Lists of what the store has of one kind: a page of entries in key order, the same for every noun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..flow import Flow, Scan
from ..model import FREE, Entry
from ..rules import page_size, stored_key

T = TypeVar("T")
_PART = 50  # entries per scan: at 256 KiB each, 13 MiB in memory at worst


def listing(kind: str, prefix: Any, after: Any, limit: Any, row: Callable[[Entry], T]) -> Flow[list[T]]:
    """Rows of the entries of this kind that are not free, whose key starts with `prefix` and follows `after`, in key
    order. Entries are read in parts, so that their values, which few rows have, are never all in memory.

    At most `limit`; fewer only if there are no more. Raises InvalidInput before anything is sent.
    """
    return _listing(_start(kind, prefix), _start(kind, after), page_size(limit), row)


def _listing(prefix: str, last: str, limit: int, row: Callable[[Entry], T]) -> Flow[list[T]]:
    found, asked = list[T](), min(_PART, limit)
    while len(found) < limit:
        page: list[Entry] = yield Scan(prefix, last, asked)
        found += [row(entry) for entry in page if entry.state is not FREE]  # a store remembers some that have ended
        if len(page) < asked:
            break
        last = page[-1].key
    return found[:limit]


def _start(kind: str, name: Any) -> str:
    return stored_key(kind, name) if name or not isinstance(name, str) else f"{kind}/"
