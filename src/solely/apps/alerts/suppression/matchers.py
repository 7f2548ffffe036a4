"""What matchers of silences read of an alert: a field, or a label; and the matchers that select an alert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .... import InvalidInput
from ....kit import MOST_MATCHERS, Matcher, parse_matchers, selective_matchers
from ..model import Alert

FIELDS = frozenset(("name", "severity", "source", "fingerprint"))
LABEL = "labels."  # optional prefix of a label's name, for labels that are named like a field
ALERTNAME = "alertname"  # the label with the alert's name, as Prometheus has it
_STAND_INS = {ALERTNAME: "name", "source": "source"}  # label → the field that an alert without this label has for it
MAX_SUGGESTED = 200  # characters of a matcher that a form starts with: it is part of an address

checked = partial(selective_matchers, what="alert")  # InvalidInput if one is invalid, or they match every alert


def matches(matchers: Sequence[Matcher], alert: Alert) -> bool:
    """True if the alert matches all of these."""
    return all(each.meets(_value(alert, each.name)) for each in matchers)


def matching(texts: Sequence[str]) -> Callable[[Alert], bool]:
    """A function that is true for an alert that matches all of these, or any alert if there are none; InvalidInput if
    one is invalid."""
    return partial(matches, parse_matchers(texts))


def _value(alert: Alert, name: str) -> str:
    if name in FIELDS:
        return str(getattr(alert, name))
    label = name.removeprefix(LABEL)
    found = alert.labels.get(label)
    if found is None and label in _STAND_INS:
        return str(getattr(alert, _STAND_INS[label]))
    return found or ""


def labels_of(alert: Alert) -> dict[str, str]:
    """The labels by which clients of Alertmanager know the alert: its own, its severity, and where it lacks them its
    name and source as labels. A matcher of one of these labels reads the same value."""
    names = {label: str(getattr(alert, field)) for label, field in _STAND_INS.items()}
    return names | alert.labels | {"severity": alert.severity}


def matchers_of(alert: Alert) -> list[str]:
    """Matchers that this alert matches: its name, severity and source, then its labels. People remove those that are
    too narrow. A label that cannot be written as a matcher, or is too long, is left out."""
    fields = {name: getattr(alert, name) for name in ("name", "severity", "source")}
    known = set(fields.values())  # Prometheus has the name and the severity as labels, too
    labels = {
        f"{LABEL if name in FIELDS else ''}{name}": value for name, value in alert.labels.items() if value not in known
    }
    texts = [str(Matcher(name, "=", value)) for name, value in (fields | labels).items()]
    return [text for text in texts if len(text) <= MAX_SUGGESTED and _is_matcher(text)][:MOST_MATCHERS]


def _is_matcher(text: str) -> bool:
    try:
        return lines(text) == [text] and str(Matcher.parse(text)) == text
    except InvalidInput:
        return False


def lines(text: str) -> list[str]:
    """The matchers in this text: one per line."""
    return [line.strip() for line in text.splitlines() if line.strip()]
