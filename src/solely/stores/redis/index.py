"""The index of what is listed: its kinds of keys, the ranges of their names, and the ops that only this store has.

listing.lua describes the index. Its ops travel as the others do, in batches and to their buckets.
"""

from __future__ import annotations

from typing import NamedTuple

from ...model import Entry
from ...ops import Op

KINDS = ("item", "reservation", "watermark")  # what people and workers list; records.lua knows them too


class ListPage(NamedTuple):
    """→ IndexPage, or None if the index must be completed first. Looks at 128 records at most."""

    bucket: int
    prefix: str
    after: str
    most: int

    @property
    def kind(self) -> str:
        return self.prefix.partition("/")[0]

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """The first and the last name, as ZRANGEBYLEX takes them."""
        start = len(self.kind) + 1
        low = "(" + self.after[start:] if self.after >= self.prefix else "[" + self.prefix[start:]
        return low.encode(), b"(%b\xff" % self.prefix[start:].encode()  # a byte that UTF-8 does not have


class IndexPage(NamedTuple):
    """Entries in key order, and the last key that was looked at; "" if there are no more."""

    entries: list[Entry]
    last: str


class Enlist(NamedTuple):
    """→ bool: True if a record that an older version wrote was added to the index."""

    key: str


class Complete(NamedTuple):
    """→ bool. From now on the index of this bucket is complete."""

    bucket: int


RedisOp = Op | ListPage | Enlist | Complete


def is_listed(prefix: str) -> bool:
    """True if all keys that begin with this prefix are in the index."""
    kind, slash, _ = prefix.partition("/")
    return bool(slash) and kind in KINDS
