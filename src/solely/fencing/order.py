"""Validates, encodes and compares fences, for all guards."""

from __future__ import annotations

from ..errors import InvalidInput, StaleFence
from ..formats import FENCE_DIGITS, MAX_FENCE
from ..rules import stored_key


def valid_fence(fence: int) -> int:
    """The fence; InvalidInput if it is invalid."""
    if type(fence) is not int or not 0 < fence <= MAX_FENCE:  # a bool is no fence
        raise InvalidInput(f"a fence is an int from 1 to {MAX_FENCE}, as lease.fence gives it, not {fence!r:.80}")
    return fence


def valid_resource(resource: str) -> str:
    """The name of the resource; InvalidInput if it is not a valid key."""
    stored_key("fence", resource)
    return resource


def encoded(fence: int) -> bytes:
    """The fence as digits that sort like the number; InvalidInput if it is invalid."""
    return b"%0*d" % (FENCE_DIGITS, valid_fence(fence))


def stale(resource: str, offered: int, stored: int) -> StaleFence:
    """The error for a smaller fence than the stored one."""
    text = f"{resource!r} was written under fence {stored}: a holder with fence {offered} is no longer the one to write"
    return StaleFence(text, key=resource, offered=offered, stored=stored)
