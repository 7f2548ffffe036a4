"""Hosts: what is held by one that has died is released at once, instead of when its time is up."""

from __future__ import annotations

from .acts import Act, Field

RELEASE = Act(
    name="hosts.release",
    title="Release all of a host",
    summary="Release all that a host holds: its locks, running claims and reservations that are being sent",
    nothing="This host holds nothing.",
    again="Releases what the host has acquired since.",
    api="/v1/hosts/release",
    page="/locks/release-host",
    means="Use this if the host has died. A holder that still runs notices at its next renewal and must stop; until "
    "then, only the fence blocks its writes. The next waiter of each key gets it.",
    fields=(Field("host"),),
    changed="released",
)
