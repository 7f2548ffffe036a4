"""The words of the alert receiver, as plain data: what comes in, what goes out, what the sender is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

MAX_FINGERPRINT = 255  # characters: as PagerDuty bounds its dedup_key
_LONGEST_PART = 200  # bytes of a key's part: two of them and what stands around them fit into a key's 512
_SEPARATOR = "\x1f"  # between the fields of which a fingerprint is made: its own escape is part of their encoding

Status = Literal["firing", "resolved"]
FIRING: Status = "firing"
RESOLVED: Status = "resolved"

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_FINGERPRINT)]
Labels = dict[str, str]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that people should hear of. `fingerprint` says which alerts are the same, whatever their severity."""

    name: str
    severity: str
    source: str
    fingerprint: str
    labels: Labels = {}
    annotations: Labels = {}
    status: Status = FIRING


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """An alert on its way to people. Who takes it over after a crash sends it under the same id, so that receivers can
    tell that it is the same. `at` is the wall clock in seconds, `trace` the traceparent of the request that brought it.
    """

    id: str
    alert: Alert
    at: float
    trace: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of an alert: published, suppressed (and why, and when it may be sent again), or durably queued."""

    outcome: Literal["published", "suppressed", "queued"]
    fingerprint: str
    reason: str = ""
    retry_after: float | None = None


def reservation_key(fingerprint: str, severity: str) -> str:
    """The key of the reservation of a firing alert: its parts are encoded, so that no two alerts share one."""
    return f"{fingerprint_prefix(fingerprint)}{_part(severity)}"


def fingerprint_prefix(fingerprint: str) -> str:
    """What the reservation keys of all severities of this fingerprint begin with."""
    return f"alerts/{_part(fingerprint)}/"


def resolved_key(fingerprint: str) -> str:
    """The key of the reservation of the message that it is over."""
    return f"alerts-resolved/{_part(fingerprint)}"


def key_of(alert: Alert) -> str:
    """The key of the reservation of this alert, firing or resolved."""
    if alert.status == FIRING:
        return reservation_key(alert.fingerprint, alert.severity)
    return resolved_key(alert.fingerprint)


def open_mark(fingerprint: str) -> str:
    """The key of the mark that says that people were told of it, and not yet that it is over."""
    return f"alerts-open:{_part(fingerprint)}"


def _part(text: str) -> str:
    """The text without slashes; one that is too long as its digest, which no short text is encoded to."""
    encoded = quote(text, safe="").replace("~", "%7E")
    return encoded if len(encoded) <= _LONGEST_PART else f"~{hashlib.sha256(text.encode()).hexdigest()}"


def fingerprint_of(fields: Iterable[tuple[str, str]]) -> str:
    """A digest of these fields, the same in whatever order they come."""
    facts = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(fields))
    return hashlib.sha256(_SEPARATOR.join(facts).encode()).hexdigest()[:32]
