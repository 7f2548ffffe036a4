"""The settings of the alert receiver: the section [alerts]. Invalid settings raise `InvalidInput` when read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ... import InvalidInput, PolicyTable, ReservationPolicy
from ...kit import Backoff, Limit, Quiet, Ttl
from .publishers import LogSettings, PublisherSettings

USUAL = ("critical", "warning")  # severities with a built-in policy
DEFAULT = "default"  # the name of the policy of all other severities
_FIELDS = ("name", "source", "severity", "labels")  # fields that a fingerprint can use
_GROUPING = ("name", "source")  # fields that a group can use; its windows are per severity in any case
_INSIDE = ("labels.", "annotations.")  # prefixes of a single label or annotation, which both can use
MOST = 10_000  # the highest limit: every store counts exactly up to it
_MONTH = 30 * 86_400.0


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Overrides for one severity; a field that is left out keeps its default. A `limit` of 0 means no limit.

    Other workers take over from a worker that died after `hold`. No further notification is sent during `quiet`. With
    `remind`, `quiet` applies to the first notification only, and an unresolved alert is sent again every `remind`.
    """

    hold: Ttl | None = None
    quiet: Quiet | None = None
    remind: Ttl | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None = None
    per: Ttl | None = None


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` in any `per` seconds."""

    limit: Limit
    per: Ttl = 3600.0


class AlertsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How alerts are received, suppressed and published. Durations are seconds."""

    publishers: tuple[PublisherSettings, ...] = (LogSettings(),)
    policies: dict[str, PolicySettings] = {}  # severity → overrides; "default" is for all others
    severity_limits: dict[str, LimitSettings] = {}  # severity → limit over all alerts of this severity together
    fingerprint_fields: tuple[str, ...] = ("name", "source", "labels")
    # Seconds: longer than a healthy receiver needs, and shorter than the usual timeout of senders (often 10).
    answer_within: Annotated[float, msgspec.Meta(ge=0.0, le=300.0)] = 5.0
    # Requests of one token per worker: many times what monitors send, and near what a worker can handle.
    request_limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5_000
    request_per: Annotated[float, msgspec.Meta(ge=0.1, le=3600.0)] = 1.0
    max_active: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000  # reservations in flight in one worker
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 8  # publishes before it becomes a dead letter
    # Seconds between attempts: the first outlast a restart, all together a receiver that is away for ten minutes.
    backoff: Annotated[tuple[Quiet, ...], msgspec.Meta(min_length=1, max_length=100)] = (1, 3, 10, 30, 60, 180, 300)
    retention: Annotated[float, msgspec.Meta(ge=3600.0, le=10 * 366 * 86_400.0)] = _MONTH  # of the history
    ack_for: Ttl = 86_400.0  # the default length of an acknowledgement: until the next day's shift
    flap_limit: Annotated[int, msgspec.Meta(ge=0, le=MOST)] = 0  # openings of one alert per flap_per; 0: no limit
    flap_per: Ttl = 3600.0
    group_by: tuple[str, ...] = ()  # alerts that are equal in these fields share a notification

    def __post_init__(self) -> None:
        _check_fields("fingerprint_fields", self.fingerprint_fields, _FIELDS)
        _check_fields("group_by", self.group_by, _GROUPING)
        if not self.fingerprint_fields:
            raise InvalidInput("fingerprint_fields: name at least one, else all alerts are the same")
        if not self.publishers:
            raise InvalidInput('publishers: name at least one, else no one is notified; type = "log" writes a line')
        table(self)
        Backoff(self.backoff)


def _check_fields(setting: str, fields: tuple[str, ...], plain: tuple[str, ...]) -> None:
    for field in fields:
        if field not in plain and not (field.startswith(_INSIDE) and field.partition(".")[2]):
            known = ", ".join((*plain, *(f"{each}<name>" for each in _INSIDE)))
            raise InvalidInput(f"{setting}: {field!r:.80} is none of {known}")


def table(settings: AlertsSettings) -> PolicyTable:
    """The policies of all severities: the library's defaults with the overrides; InvalidInput if they are invalid."""
    usual = PolicyTable()
    others = _merged(usual.default, settings.policies.get(DEFAULT, PolicySettings()))
    named = {severity: usual[severity] for severity in USUAL}
    for severity, policy in settings.policies.items():
        if severity != DEFAULT:
            named[severity] = _merged(named.get(severity.casefold(), others), policy)
    return PolicyTable(named, default=others)


def _merged(usual: ReservationPolicy, given: PolicySettings) -> ReservationPolicy:
    fields = {name: getattr(given, name) for name in usual.terms}
    terms = usual.terms | {name: value for name, value in fields.items() if value is not None}
    return ReservationPolicy(**(terms if terms["limit"] else terms | {"limit": None, "per": None}))
