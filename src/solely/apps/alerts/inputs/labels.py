"""Alerts from other systems: cut to our bounds, since a truncated alert is better than a lost one, and fingerprinted by
their labels where they bring no fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from ....kit import Announcement
from ..model import FIRING, MAX_FINGERPRINT, Alert, Labels, Status, part_of

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
    return {cut_text(name): cut_text(value, LONGEST_VALUE) for name, value in islice(given.items(), MOST_LABELS)}


def present(facts: Mapping[str, str | None]) -> Labels:
    """The facts that are neither missing nor empty."""
    return {name: fact for name, fact in facts.items() if fact}


def label_fingerprint(labels: Labels) -> str:
    """The fingerprint that Alertmanager gives an alert with these labels."""
    digest = _OFFSET
    for name in sorted(labels, key=str.encode):
        for byte in b"".join((name.encode(), _END, labels[name].encode(), _END)):
            digest = ((digest ^ byte) * _PRIME) & _BITS
    return f"{digest:016x}"


def labelled_alert(
    labels: Labels, annotations: Labels, *, source: str, fingerprint: str = "", status: Status = FIRING
) -> Alert:
    """The alert that these labels describe. Empty labels are ignored."""
    known = present(labels)
    return Alert(
        name=cut_text(known.get("alertname", UNNAMED)),
        severity=cut_text(known.get("severity", DEFAULT_SEVERITY)),
        source=cut_text(source),
        fingerprint=fingerprint or label_fingerprint(known),
        labels=cut_labels(known),
        annotations=cut_labels(annotations),
        status=status,
    )


def announced_alert(given: Announcement) -> Alert:
    """The alert that another application of the service announces (`service.announce(…)`). A fingerprint that is too
    long becomes a digest."""
    fingerprint = given.fingerprint if len(given.fingerprint) <= MAX_FINGERPRINT else part_of(given.fingerprint)
    return Alert(
        name=cut_text(given.name),
        severity=cut_text(given.severity),
        source=cut_text(given.source),
        fingerprint=fingerprint,
        labels=cut_labels(given.labels),
        annotations=cut_labels(present({"summary": given.summary})),  # as monitors name what people read
        status=given.status,
    )
