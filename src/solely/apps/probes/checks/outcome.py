"""The outcome of one check."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ....kit import Response, Timings

# The phases by the names of blackbox_exporter, in the order of `Timings`.
PHASES = ("resolve", "connect", "tls", "processing", "transfer")


class Outcome(NamedTuple):
    """What a check found. `error` is "" if all expectations were met; `failed_by_pattern` if a pattern was not."""

    error: str = ""
    status: int | None = None
    phases: Mapping[str, float] = MappingProxyType({})
    steps: Mapping[str, float] = MappingProxyType({})
    certificate_expires: float | None = None
    address: str = ""
    length: int | None = None
    failed_by_pattern: bool = False


def phases_of(timings: Timings) -> dict[str, float]:
    """Seconds by phase."""
    return dict(zip(PHASES, timings, strict=True))


def outcome_of(response: Response, error: str, failed_by_pattern: bool = False) -> Outcome:
    """The outcome of a check that ended with this response."""
    expires = response.certificate_expires
    return Outcome(
        error=error,
        status=response.status,
        phases=phases_of(response.timings),
        certificate_expires=None if expires is None else expires.timestamp(),
        address=response.address,
        length=len(response.body),
        failed_by_pattern=failed_by_pattern,
    )
