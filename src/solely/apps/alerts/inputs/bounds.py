"""Bounds of what others send. What our own API would refuse is cut: an alert is better told in part than lost."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from ..model import Labels

LONGEST_TEXT = 255  # characters of a name, a severity or a source, as in our own API
LONGEST_VALUE = 8_192  # characters of a label's or an annotation's value
MOST_LABELS = 64  # of an alert, and as many annotations


def text(given: str) -> str:
    """The text of a name, a severity or a source, cut."""
    return _cut(given, LONGEST_TEXT)


def labels(given: Mapping[str, str]) -> Labels:
    """The first labels or annotations, each cut."""
    if len(given) <= MOST_LABELS and all(len(value) <= LONGEST_VALUE for value in given.values()):
        return dict(given)
    return {_cut(name, LONGEST_TEXT): _cut(value, LONGEST_VALUE) for name, value in islice(given.items(), MOST_LABELS)}


def _cut(given: str, most: int) -> str:
    return given if len(given) <= most else f"{given[: most - 1]}…"
