"""Lists that are read in parts: a store reads entries with their values, of up to 256 KiB each, which most lists do not
show. So a list takes the memory of one part, whatever is stored, and other requests are handled between two parts."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")

PART = 50  # entries: 13 MiB at the worst


class ListPart(NamedTuple, Generic[R]):
    """Consecutive rows of a list, and the key after which it goes on; "" at its end."""

    rows: list[R]
    last: str


Read = Callable[[str, int], Awaitable[ListPart[R]]]  # the rows of so many entries after this key


async def in_parts(read: Read[R], after: str, limit: int, seconds: float = math.inf) -> ListPart[R]:
    """The rows of the next `limit` entries after this key; fewer if to read them takes longer than that."""
    rows, left, ends = list[R](), limit, time.monotonic() + seconds
    while True:
        part = await read(after, min(PART, left))
        rows += part.rows
        left -= PART
        after = part.last
        if not after or left <= 0 or time.monotonic() > ends:
            return ListPart(rows, after)
