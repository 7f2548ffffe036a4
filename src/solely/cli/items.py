"""What the commands of queues and of dead letters share: the names of queues, and payloads as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from urllib.parse import quote, unquote

from ..model import item_key
from ..stores import Store

_LAST = "\U0010ffff"  # sorts after every id


def names(
    store: Store, queue_of: Callable[[str], str], prefix: str = "", after: str = "", limit: int | None = None
) -> Iterator[str]:
    """The names of queues of this kind that have items, in order, after `after`; one request for each."""
    stored = f"item/{quote(queue_of(prefix), safe='')}"
    position = item_key(queue_of(after), _LAST) if after else ""
    for _ in count() if limit is None else range(limit):
        page = store.scan(stored, position, 1)
        if not page:
            return
        name = unquote(page[0].key.split("/", 2)[1]).removeprefix(queue_of(""))
        yield name
        position = item_key(queue_of(name), _LAST)


def shown(payload: Any) -> Any:
    """The payload for a table or JSON; bytes as text."""
    return payload.decode(errors="replace") if isinstance(payload, bytes) else payload
