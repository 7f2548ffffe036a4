"""Keyset paging, the newest first: a page continues after the last row of the page before, however many rows were added
meanwhile. A statement compares `(at, id) < (:at, :id)` and orders by `at DESC, id DESC`."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..errors import InvalidInput
from .dialect import without_nul


class Position(NamedTuple):
    """The moment and id of a row. `str()` is its place: what a caller gives as `after` for the next page."""

    at: float
    id: str

    def __str__(self) -> str:
        return f"{self.at!r}/{self.id}"


NEWEST = Position(1e18, "")  # after every row


def position_after(place: str) -> Position:
    """The position of this place, or that of the first page if it is empty; InvalidInput if it is invalid."""
    if not place:
        return NEWEST
    at, _, id = place.partition("/")
    try:
        moment = float(at)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        raise InvalidInput(f"{place!r:.80} is not a position in this list; give the `next` of the page before")
    return Position(moment, without_nul(id))
