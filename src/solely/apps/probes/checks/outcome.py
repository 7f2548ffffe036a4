"""The outcome of one check."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ....kit import PeerTls, Response, Timings

# The phases by the names of blackbox_exporter, in the order of `Timings`.
PHASES = ("resolve", "connect", "tls", "processing", "transfer")


class DnsSections(NamedTuple):
    """The numbers of records in a reply of a name server."""

    answer: int = 0
    authority: int = 0
    additional: int = 0


class Outcome(NamedTuple):
    """What a check found. `error` is "" if all expectations were met; `failed_by_pattern` if a pattern was not;
    `refused` if the guard did not permit the address, so that nothing was sent. `address` is that of the peer, "" if it
    is unknown. Of HTTP: `length` counts the bytes of the body that arrived, `content_length` is what was announced, -1
    if nothing was. Of DNS: `sections` is None if there was no reply, `serial` if the zone's was not asked for."""

    error: str = ""
    status: int | None = None
    phases: Mapping[str, float] = MappingProxyType({})
    steps: Mapping[str, float] = MappingProxyType({})
    certificate_expires: float | None = None
    address: str = ""
    length: int | None = None
    failed_by_pattern: bool = False
    refused: bool = False
    tls: PeerTls | None = None
    version: str = ""
    content_length: int = 0
    redirects: int = 0
    last_modified: float | None = None
    sections: DnsSections | None = None
    serial: int | None = None


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
        length=response.received,
        failed_by_pattern=failed_by_pattern,
        tls=response.tls,
        version=response.version,
        content_length=response.content_length,
        redirects=response.redirects,
        last_modified=None if response.last_modified is None else response.last_modified.timestamp(),
    )
