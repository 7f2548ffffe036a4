"""How fences compare, everywhere alike: what may be one, how it is written so that text sorts as the number does."""

from __future__ import annotations

from ..errors import InvalidInput, StaleFence
from ..formats import FENCE_DIGITS, MAX_FENCE
from ..rules import stored_key


def valid_fence(fence: int) -> int:
    """The fence, if it can be one; else InvalidInput."""
    if type(fence) is not int or not 0 < fence <= MAX_FENCE:  # a bool is no number
        raise InvalidInput(f"a fence is an int from 1 to {MAX_FENCE}, as lease.fence gives it, not {fence!r:.80}")
    return fence


def valid_resource(resource: str) -> str:
    """The resource's name, if it can be a key; else InvalidInput."""
    stored_key("fence", resource)
    return resource


def encoded(fence: int) -> bytes:
    """The fence as digits that sort as the number does; else InvalidInput."""
    return b"%0*d" % (FENCE_DIGITS, valid_fence(fence))


def stale(resource: str, offered: int, stored: int) -> StaleFence:
    """What a guard raises."""
    text = f"{resource!r} was written under fence {stored}: a holder with fence {offered} is no longer the one to write"
    return StaleFence(text, key=resource, offered=offered, stored=stored)
