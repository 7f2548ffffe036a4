"""Lists of what the store has of one kind: a page of entries in key order, the same for every noun."""

from __future__ import annotations

from typing import Any

from ..flow import Flow, Scan
from ..model import FREE, Entry
from ..rules import page_size, stored_key


def listing(kind: str, prefix: Any, after: Any, limit: Any) -> Flow[list[Entry]]:
    """The entries of this kind that are not free, whose key starts with `prefix` and follows `after`, in key order.

    At most `limit`; fewer only if there are no more. Raises InvalidInput before anything is sent.
    """
    return _listing(_start(kind, prefix), _start(kind, after), page_size(limit))


def _listing(prefix: str, last: str, limit: int) -> Flow[list[Entry]]:
    found: list[Entry] = []
    while len(found) < limit:
        page: list[Entry] = yield Scan(prefix, last, limit)
        found += [entry for entry in page if entry.state is not FREE]  # a store remembers some that have ended
        if len(page) < limit:
            break
        last = page[-1].key
    return found[:limit]


def _start(kind: str, name: Any) -> str:
    return stored_key(kind, name) if name or not isinstance(name, str) else f"{kind}/"
