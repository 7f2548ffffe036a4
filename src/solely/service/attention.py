"""What needs the attention of people, as plain data: applications report it; the overview and the page of health
show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

IN_THE_LOG = "the log of the service says why"  # of a defect, whose error is for its developers
NAMED = 3  # subjects that one line names: the page behind its link has all


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs attention, and the page that shows it. An error needs it now."""

    level: Literal["error", "warning"]
    text: str
    link: str


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are: for the text of one line."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
