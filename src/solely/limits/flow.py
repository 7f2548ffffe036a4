"""Decisions of limits: never more than `limit` hits in any window of time."""

from __future__ import annotations

from ..errors import INTERRUPTIONS, is_unanswered
from ..flow import Ask, Flow, undo
from ..model import Allowance
from ..ops import Hit, Unhit


def hit(key: str, limit: int, per: float) -> Flow[tuple[str, Allowance]]:
    """(the owner of the hit, the reply): allowed only if there were fewer than `limit` hits in the last `per` seconds.

    An interrupted caller removes its hit. If that fails too, this window allows one hit less.
    """
    owner: str = yield Ask.OWNER
    try:
        allowance: Allowance = yield Hit(key, owner, limit, per)
    except INTERRUPTIONS as why:
        if is_unanswered(why):  # else nothing was sent
            yield from undo([Unhit(key, owner)])
        raise
    return owner, allowance


def give_back(key: str, owner: str) -> Flow[bool]:
    """Removes this owner's hit; False if there was none."""
    removed: bool = yield Unhit(key, owner)
    return removed
