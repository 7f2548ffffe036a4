"""What tells alerts of the same name apart, for people who see many of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from .model import Alert

MOST_LABELS = 4  # of an alert: one or two lines of a phone
PLACES = ("instance", "host", "hostname", "node", "pod", "service")  # labels that people look for first


class Distinction(NamedTuple):
    """The labels that tell an alert from others of its name, and its group or source; unless it is `unique` by them,
    only its fingerprint does."""

    labels: str
    place: str
    unique: bool


def distinctions(alerts: Sequence[Alert]) -> dict[str, Distinction]:
    """By fingerprint, what tells each of these alerts from the others."""
    found = dict[str, Distinction]()
    for _, group in groupby(sorted(alerts, key=_name), _name):
        same = list(group)
        names = _differing(same)
        shown = [(_labels(alert, names), _place(alert)) for alert in same]
        times = Counter(shown)
        found |= {
            alert.fingerprint: Distinction(*each, times[each] == 1) for alert, each in zip(same, shown, strict=True)
        }
    return found


def _place(alert: Alert) -> str:
    return f"in {alert.group}" if alert.group else alert.source


def _name(alert: Alert) -> str:
    return alert.name


def _differing(alerts: Sequence[Alert]) -> list[str]:
    """The labels that not all of these alerts have with the same value, or all labels if there is one alert; those that
    name a place first."""
    pairs = Counter(pair for alert in alerts for pair in alert.labels.items())
    names = {name for (name, _), times in pairs.items() if len(alerts) == 1 or times < len(alerts)}
    return sorted(names, key=lambda name: (PLACES.index(name) if name in PLACES else len(PLACES), name))


def _labels(alert: Alert, names: Sequence[str]) -> str:
    """These labels of the alert, without what is shown anyway."""
    shown = (None, alert.name, alert.severity, alert.source)
    labels = [f"{name}={alert.labels[name]}" for name in names if alert.labels.get(name) not in shown]
    return ", ".join(labels[:MOST_LABELS])
