"""The alert receiver's plain data: alerts, notifications, outcomes, and the keys under which the store holds them."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

from ...kit import part_of as part_of
from ...kit import reserved

own = partial(reserved, "alerts")  # a name (of a key, a queue, …) that only this application may write
MAX_FINGERPRINT = 255  # characters: the bound of PagerDuty's dedup_key
OF_GROUP = "group:"  # the prefix of a group's name where a fingerprint is expected
MAX_GROUP = MAX_FINGERPRINT - len(OF_GROUP)
MAX_OPEN = 30 * 86_400.0  # seconds: an alert that has not fired for a month counts as gone
_PLAIN = " -_.:/@"  # characters of a value that are not encoded in a group's name: none of them separates fields
_SEPARATOR = "\x1f"  # between the fields of a fingerprint: the encoding of the fields escapes it

Status = Literal["firing", "resolved"]
FIRING: Status = "firing"
RESOLVED: Status = "resolved"

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_FINGERPRINT)]
Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]  # safe in the headers of mails and webhooks
Labels = dict[str, str]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as a sender reported it. Alerts with the same `fingerprint` are the same alert, whatever their severity.
    Alerts with the same non-empty `group` share one notification."""

    name: str
    severity: str
    source: str
    fingerprint: str
    labels: Labels = {}
    annotations: Labels = {}
    status: Status = FIRING
    group: str = ""

    @property
    def facts(self) -> dict[str, str]:
        """What a log line says of it."""
        return {"fingerprint": self.fingerprint, "severity": self.severity}


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of a group, as a notification lists it."""

    fingerprint: str
    name: str
    severity: str


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """An alert to be published. Every attempt uses the same id, also after a crash, so that receivers can discard
    repeats. `at` is the wall clock in seconds, `trace` the traceparent of the request that brought the alert.

    `reminder` is 0 for the first notification of a firing alert, 1 for the next one, and so on. `flapping` means that
    the next openings are suppressed because there were too many. `members` lists firing alerts of the group.
    `publisher` is the only one that has yet to send it; if it is empty, all that want it have.
    """

    id: Id
    alert: Alert
    at: float
    trace: str = ""
    reminder: int = 0
    flapping: bool = False
    members: tuple[Member, ...] = ()
    publisher: str = ""

    @property
    def remarks(self) -> list[str]:
        """Reminder number, flapping and group, in words; empty if none applies."""
        remarks = [f"reminder {self.reminder}"] if self.reminder else []
        if self.flapping:
            remarks.append("flapping")
        if self.alert.group:
            remarks.append(f"group {self.alert.group}")
        return remarks


class AlertOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result for an alert: published, suppressed (with the reason, and when it may be sent again), or durably
    queued."""

    outcome: Literal["published", "suppressed", "queued"]
    fingerprint: str
    reason: str = ""
    retry_after: float | None = None


def published(alert: Alert) -> AlertOutcome:
    """The outcome of an alert that at least one publisher has."""
    return AlertOutcome(outcome="published", fingerprint=alert.fingerprint)


def queued(alert: Alert, reason: str) -> AlertOutcome:
    """The outcome of an alert that is in the store and is published later."""
    return AlertOutcome(outcome="queued", fingerprint=alert.fingerprint, reason=reason)


def new_notification(alert: Alert, trace: str = "") -> Notification:
    """A notification of this alert, with a new id and the current time."""
    return Notification(id=f"msg_{secrets.token_hex(16)}", alert=alert, at=time.time(), trace=trace)


def bare_alert(fingerprint: str = "", group: str = "") -> Alert:
    """An alert of which only the fingerprint and group are known."""
    return Alert(name="", severity="", source="", fingerprint=fingerprint, group=group)


def reservation_key(fingerprint: str, severity: str) -> str:
    """The key of a firing alert's reservation; the parts are encoded, so that no two alerts share a key."""
    return f"{fingerprint_prefix(fingerprint)}{part_of(severity)}"


def fingerprint_prefix(fingerprint: str) -> str:
    """The common prefix of the reservation keys of all severities of this fingerprint."""
    return own(f"firing/{part_of(fingerprint)}/")


def resolved_key(fingerprint: str) -> str:
    """The key of the reservation of the resolved notification."""
    return own(f"resolved/{part_of(fingerprint)}")


def key_of(alert: Alert) -> str:
    """The key of the reservation of this alert, firing or resolved."""
    subject = subject_of(alert)
    return reservation_key(subject, alert.severity) if alert.status == FIRING else resolved_key(subject)


def subject_of(alert: Alert) -> str:
    """The subject of the notification: the alert's fingerprint, or `group:<name>` if it has a group."""
    return f"{OF_GROUP}{alert.group}" if alert.group else alert.fingerprint


def cache_key(alert: Alert) -> str:
    """The key under which a worker caches a refusal of this alert: members of a group are cached one by one."""
    return f"{key_of(alert)}/{part_of(alert.fingerprint)}" if alert.group else key_of(alert)


def with_group(alert: Alert, fields: Sequence[str]) -> Alert:
    """The alert with its group: the sender's, else the one of these fields, if it has any of them."""
    if alert.group or not fields:
        return alert
    return msgspec.structs.replace(alert, group=group_of(alert, fields))


def group_of(alert: Alert, fields: Sequence[str]) -> str:
    """The name of the group that these fields define; "" if the alert has none of them."""
    values = {field: field_of(alert, field) or "" for field in fields}
    if not any(values.values()):
        return ""
    name = ",".join(f"{field}={quote(value, safe=_PLAIN)}" for field, value in values.items())
    return name if len(name) <= MAX_GROUP else hashlib.sha256(name.encode()).hexdigest()


def field_of(alert: Alert, field: str) -> str | None:
    """The value of a field that settings name: name, source, severity, `labels.<name>` or `annotations.<name>`; None if
    the alert has no such label or annotation."""
    kind, _, name = field.partition(".")
    found = getattr(alert, kind)
    return found.get(name) if name else str(found)


def fingerprint_of(fields: Iterable[tuple[str, str]]) -> str:
    """A digest of these fields, independent of their order."""
    facts = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(fields))
    return hashlib.sha256(_SEPARATOR.join(facts).encode()).hexdigest()[:32]
