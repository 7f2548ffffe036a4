"""Policies: the terms of reservations, as data, per severity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import InvalidInput
from ..ops import MAX_LIMIT
from ..rules import MAX_TTL, Seconds, checked_limit, seconds, stored_key, ttl_seconds
from .flow import ReservationTerms

Group = tuple[str, int, Seconds]  # name, limit, per


def checked_terms(
    hold: Seconds, quiet: Seconds, limit: int | None, per: Seconds | None, group: Group | None, most: int
) -> ReservationTerms:
    """The checked terms of a reservation; raises InvalidInput before anything is sent. `most`: the store's maximum."""
    try:
        return _known_terms(hold, quiet, limit, per, group, most)
    except TypeError:  # unhashable, so neither a duration nor a limit: the check raises InvalidInput
        return _check_terms(hold, quiet, limit, per, group, most)


def _check_terms(
    hold: Seconds, quiet: Seconds, limit: int | None, per: Seconds | None, group: Any, most: int
) -> ReservationTerms:
    if (limit is None) != (per is None):
        raise InvalidInput(f"limit={limit!r} and per={per!r}: give both (`limit` in `per` seconds) or neither")
    own = (checked_limit(limit, most), ttl_seconds(per, "per")) if limit is not None and per is not None else None
    shared = None
    if group is not None:
        if not isinstance(group, tuple) or len(group) != 3:
            raise InvalidInput(f"group must be a tuple (name, limit, per), not {group!r:.80}")
        name, group_limit, group_per = group
        shared = stored_key("group", name), checked_limit(group_limit, most), ttl_seconds(group_per, "per")
    return ReservationTerms(ttl_seconds(hold, "hold"), seconds("quiet", quiet, least=0.0, most=MAX_TTL), own, shared)


_known_terms = lru_cache(maxsize=256, typed=True)(_check_terms)  # a program uses few distinct terms


@dataclass(frozen=True, slots=True)
class ReservationPolicy:
    """The terms of all reservations of one severity; raises InvalidInput if they are invalid."""

    hold: Seconds = 30.0
    quiet: Seconds = 300.0
    limit: int | None = None
    per: Seconds | None = None

    def __post_init__(self) -> None:
        checked_terms(self.hold, self.quiet, self.limit, self.per, None, MAX_LIMIT)

    @property
    def terms(self) -> dict[str, Any]:
        """The terms as arguments: `once.reserve(key, **policy.terms)`."""
        return {"hold": self.hold, "quiet": self.quiet, "limit": self.limit, "per": self.per}


_HOUR = 3_600.0  # seconds: the window of the limits, since people count messages by the hour
_OTHERS = ReservationPolicy(hold=30.0, quiet=1_800.0, limit=5, per=_HOUR)  # not urgent: at most twice an hour
_SEVERITIES = {
    # A sender that died must not delay critical messages for long: 10 s cover a publish with its retries.
    "critical": ReservationPolicy(hold=10.0, quiet=300.0, limit=20, per=_HOUR),
    # May use slow channels; a retry after a minute is soon enough.
    "warning": ReservationPolicy(hold=60.0, quiet=900.0, limit=10, per=_HOUR),
}


class PolicyTable:
    """Policies by severity, case-insensitive; other severities have the default. Without arguments: critical, warning,
    and a default for all others."""

    def __init__(
        self,
        policies: Mapping[str, ReservationPolicy | Mapping[str, Any]] | None = None,
        *,
        default: ReservationPolicy = _OTHERS,
    ) -> None:
        given = _SEVERITIES if policies is None else policies
        self.default = default
        self._policies = {severity.casefold(): _policy(severity, policy) for severity, policy in given.items()}

    def __getitem__(self, severity: str) -> ReservationPolicy:
        return self._policies.get(severity.casefold(), self.default)


def _policy(severity: str, policy: ReservationPolicy | Mapping[str, Any]) -> ReservationPolicy:
    if isinstance(policy, ReservationPolicy):
        return policy
    try:
        return ReservationPolicy(**policy)
    except TypeError:
        raise InvalidInput(f"policy of {severity!r}: give hold, quiet, limit and per, not {policy!r:.80}") from None
