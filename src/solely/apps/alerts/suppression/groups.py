"""Groups: alerts of one group and severity share one window, and so one notification."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from ..model import MAX_GROUP, Alert

_PLAIN = " -_.:/@"  # characters of a value that are not encoded in a group's name: none of them separates fields


def with_group(alert: Alert, fields: Sequence[str]) -> Alert:
    """The alert with its group: the sender's, else the one of these fields, if it has any of them."""
    if alert.group or not fields:
        return alert
    return msgspec.structs.replace(alert, group=group_of(alert, fields))


def group_of(alert: Alert, fields: Sequence[str]) -> str:
    """The name of the group that these fields define; "" if the alert has none of them."""
    values = {field: _value(alert, field) for field in fields}
    if not any(values.values()):
        return ""
    name = ",".join(f"{field}={quote(value, safe=_PLAIN)}" for field, value in values.items())
    return name if len(name) <= MAX_GROUP else hashlib.sha256(name.encode()).hexdigest()


def _value(alert: Alert, field: str) -> str:
    kind, _, name = field.partition(".")
    if name:
        return (alert.labels if kind == "labels" else alert.annotations).get(name, "")
    return str(getattr(alert, field))
