"""Limit: so many in any window of time, and not one more."""

from __future__ import annotations

from ..errors import Interrupted, StoreError
from ..flow import Ask, Flow, undo
from ..model import Allowance
from ..ops import Hit, Unhit


def hit(key: str, limit: int, per: float) -> Flow[tuple[str, Allowance]]:
    """(the owner of the hit, the answer): allowed only if fewer than `limit` were in the last `per` seconds.

    An interrupted caller gives its hit back; where that is lost as well, the limit is reached one too early for once.
    """
    owner: str = yield Ask.OWNER
    try:
        allowance: Allowance = yield Hit(key, owner, limit, per)
    except (Interrupted, StoreError) as why:
        if not isinstance(why, Interrupted) or why.unanswered:  # else nothing was sent
            yield from undo([Unhit(key, owner)])
        raise
    return owner, allowance


def give_back(key: str, owner: str) -> Flow[bool]:
    """True if this owner's hit was given back by this call, False if there was none."""
    given_back: bool = yield Unhit(key, owner)
    return given_back
