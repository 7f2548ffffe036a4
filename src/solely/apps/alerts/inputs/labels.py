"""Alerts from other systems: cut to our bounds, since a truncated alert is better than a lost one, and fingerprinted by
their labels where they bring no fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from ..model import FIRING, Alert, Labels, Status

LONGEST_TEXT = 255  # characters of a name, a severity or a source
LONGEST_VALUE = 8_192  # characters of a label's or an annotation's value: a paragraph, or a query
MOST_LABELS = 64  # of an alert, and as many annotations: more than people read; Prometheus has a dozen
DEFAULT_SEVERITY = "none"  # of an alert without a label `severity`, as in Prometheus' own rules
UNNAMED = "unnamed"  # an alert without a label `alertname`: accepted rather than refused

# FNV-1a with 64 bits, and a separator byte that UTF-8 never has: Alertmanager's fingerprints.
_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_BITS = 0xFFFFFFFFFFFFFFFF
_END = b"\xff"


def cut_text(given: str, most: int = LONGEST_TEXT) -> str:
    """The text, cut to its bound."""
    return given if len(given) <= most else f"{given[: most - 1]}…"


def cut_labels(given: Mapping[str, str]) -> Labels:
    """The first labels or annotations, each cut to its bounds."""
    if len(given) <= MOST_LABELS and all(len(value) <= LONGEST_VALUE for value in given.values()):
        return dict(given)
    return {cut_text(name): cut_text(value, LONGEST_VALUE) for name, value in islice(given.items(), MOST_LABELS)}


def label_fingerprint(labels: Labels) -> str:
    """The fingerprint that Alertmanager gives an alert with these labels."""
    digest = _OFFSET
    for name in sorted(labels, key=str.encode):
        for byte in b"".join((name.encode(), _END, labels[name].encode(), _END)):
            digest = ((digest ^ byte) * _PRIME) & _BITS
    return f"{digest:016x}"


def labelled_alert(
    labels: Labels,
    annotations: Labels,
    *,
    source: str,
    fingerprint: str = "",
    status: Status = FIRING,
    starts_at: str = "",
    generator_url: str = "",
) -> Alert:
    """The alert that these labels describe. Empty labels are ignored. `starts_at` and `generator_url` become
    annotations, which do not affect the fingerprint."""
    known = {name: value for name, value in labels.items() if value}
    facts = {"startsAt": starts_at, "generatorURL": generator_url}
    return Alert(
        name=cut_text(known.get("alertname", UNNAMED)),
        severity=cut_text(known.get("severity", DEFAULT_SEVERITY)),
        source=cut_text(source),
        fingerprint=fingerprint or label_fingerprint(known),
        labels=cut_labels(known),
        annotations=cut_labels({name: fact for name, fact in facts.items() if fact} | annotations),
        status=status,
    )
