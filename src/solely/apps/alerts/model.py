"""The words of the alert receiver, as plain data: what comes in, what goes out, what the sender is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

from ...names import reserved

own = partial(reserved, "alerts")  # a name, of a key, a queue or whatever else, that only this application may write
MAX_FINGERPRINT = 255  # characters: as PagerDuty bounds its dedup_key
OF_GROUP = "group:"  # what stands before a group's name where a fingerprint is asked for
MAX_GROUP = MAX_FINGERPRINT - len(OF_GROUP)
_LONGEST_PART = 200  # bytes of a key's part: two of them and what stands around them fit into a key's 512
_SEPARATOR = "\x1f"  # between the fields of which a fingerprint is made: its own escape is part of their encoding

Status = Literal["firing", "resolved"]
FIRING: Status = "firing"
RESOLVED: Status = "resolved"

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_FINGERPRINT)]
Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]  # it stands in headers of mails and webhooks
Labels = dict[str, str]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that people should hear of. `fingerprint` says which alerts are the same, whatever their severity;
    `group`, if there is one, which are told together.
    """

    name: str
    severity: str
    source: str
    fingerprint: str
    labels: Labels = {}
    annotations: Labels = {}
    status: Status = FIRING
    group: str = ""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of a group, as a notification lists it."""

    fingerprint: str
    name: str
    severity: str


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """An alert on its way to people. Who takes it over after a crash sends it under the same id, so that receivers can
    tell that it is the same. `at` is the wall clock in seconds, `trace` the traceparent of the request that brought it.

    `reminder` is 1 when people are told for the second time that it fires, 2 for the third. `flapping` says that they
    are not told of the next openings, since there were so many. `members` are the alerts of its group that fire, as far
    as they are listed.
    """

    id: Id
    alert: Alert
    at: float
    trace: str = ""
    reminder: int = 0
    flapping: bool = False
    members: tuple[Member, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """What people should know besides the alert, in words."""
        said = [f"reminder {self.reminder}"] if self.reminder else []
        if self.flapping:
            said.append("flapping")
        if self.alert.group:
            said.append(f"group {self.alert.group}")
        return said


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of an alert: published, suppressed (and why, and when it may be sent again), or durably queued."""

    outcome: Literal["published", "suppressed", "queued"]
    fingerprint: str
    reason: str = ""
    retry_after: float | None = None


def reservation_key(fingerprint: str, severity: str) -> str:
    """The key of the reservation of a firing alert: its parts are encoded, so that no two alerts share one."""
    return f"{fingerprint_prefix(fingerprint)}{part_of(severity)}"


def fingerprint_prefix(fingerprint: str) -> str:
    """What the reservation keys of all severities of this fingerprint begin with."""
    return own(f"firing/{part_of(fingerprint)}/")


def resolved_key(fingerprint: str) -> str:
    """The key of the reservation of the message that it is over."""
    return own(f"resolved/{part_of(fingerprint)}")


def key_of(alert: Alert) -> str:
    """The key of the reservation of this alert, firing or resolved."""
    subject = subject_of(alert)
    return reservation_key(subject, alert.severity) if alert.status == FIRING else resolved_key(subject)


def subject_of(alert: Alert) -> str:
    """What people are told of: the alert by its fingerprint, or its group, which is named as if it were one."""
    return f"{OF_GROUP}{alert.group}" if alert.group else alert.fingerprint


def asking_key(alert: Alert) -> str:
    """Under what a worker remembers the answer to this alert: members of a group are answered one by one."""
    return f"{key_of(alert)}/{part_of(alert.fingerprint)}" if alert.group else key_of(alert)


def open_mark(fingerprint: str) -> str:
    """The key of the mark that says that people were told of it, and not yet that it is over."""
    return own(f"open/{part_of(fingerprint)}")


def part_of(text: str) -> str:
    """The text without slashes; one that is too long as its digest, which no short text is encoded to."""
    encoded = quote(text, safe="").replace("~", "%7E")
    return encoded if len(encoded) <= _LONGEST_PART else f"~{hashlib.sha256(text.encode()).hexdigest()}"


def fingerprint_of(fields: Iterable[tuple[str, str]]) -> str:
    """A digest of these fields, the same in whatever order they come."""
    facts = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(fields))
    return hashlib.sha256(_SEPARATOR.join(facts).encode()).hexdigest()[:32]
