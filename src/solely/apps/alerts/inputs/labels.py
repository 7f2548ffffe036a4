"""Alerts that are known by their labels, as Prometheus and Alertmanager have them."""

from __future__ import annotations

from ..model import FIRING, Alert, Labels, Status
from . import bounds

DEFAULT_SEVERITY = "none"  # of an alert without a label `severity`, as Prometheus' own rules name what nobody acts on
UNNAMED = "unnamed"  # an alert without a label `alertname`: told rather than refused

# FNV-1a with 64 bits, and a byte that no UTF-8 text has: what Alertmanager makes its fingerprints of.
_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_BITS = 0xFFFFFFFFFFFFFFFF
_END = b"\xff"


def label_fingerprint(labels: Labels) -> str:
    """The fingerprint that Alertmanager gives an alert with these labels, so that it is the same by either way."""
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
    """The alert that these labels describe. Labels without a value count as not there; where it came from and since
    when goes with the annotations, which say nothing about which alert it is."""
    known = {name: value for name, value in labels.items() if value}
    facts = {"startsAt": starts_at, "generatorURL": generator_url}
    return Alert(
        name=bounds.text(known.get("alertname", UNNAMED)),
        severity=bounds.text(known.get("severity", DEFAULT_SEVERITY)),
        source=bounds.text(source),
        fingerprint=fingerprint or label_fingerprint(known),
        labels=bounds.labels(known),
        annotations=bounds.labels({name: fact for name, fact in facts.items() if fact} | annotations),
        status=status,
    )
