"""The settings of the task-trigger API: the section [triggers]. Invalid settings raise `InvalidInput` when read."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import msgspec

from ... import InvalidInput
from ...kit import Ttl

EnvironmentName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z")]
THRESHOLD = "TRIGGER_MOLLIFIER_TRIP_THRESHOLD"  # the variable of trigger.dev's own deployment, which is read as well
_MONTH = 30 * 86_400.0


def _threshold() -> int:
    """100, or what the variable says: more triggers than that in a window are a burst, and not yet a busy second."""
    given = os.environ.get(THRESHOLD, "100")
    if not given.isdecimal() or not 1 <= int(given) <= 10_000:
        raise InvalidInput(f"{THRESHOLD}={given!r:.40} is not a number from 1 to 10000")
    return int(given)


class TriggersSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How triggers are accepted, buffered and stored, and how runs are handed to workers. Durations are seconds."""

    environment: EnvironmentName = "default"  # of all tokens that `environments` does not name
    environments: dict[str, EnvironmentName] = {}  # name of a token → its environment
    # -- keys
    key_ttl: Ttl = _MONTH  # how long a key protects its run, unless the trigger says otherwise
    on_mismatch: Literal["answer", "refuse"] = "answer"  # a key that comes with another payload; refuse: 422
    claim: bool = True  # off: only the constraint and the buffer keep a key to one run, each on its own side
    claim_ttl: Ttl = 30.0  # longer than an insert and a publish take, and soon enough after a crash
    claim_wait: Annotated[float, msgspec.Meta(ge=0.0, le=300.0)] = 5.0  # what callers tolerate before they retry
    # A key whose claim cannot be made: proceed under the constraint alone, or refuse with 503 until the store is back.
    on_outage: Literal["proceed", "refuse"] = "proceed"
    # -- bursts
    gate: Literal["on", "shadow", "off"] = "on"  # shadow: counts what it would divert, and diverts nothing
    trip_threshold: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = msgspec.field(default_factory=_threshold)
    trip_window: Ttl = 0.2  # of the threshold: short, so that the gate trips early in a burst
    trip_hold: Ttl = 0.5  # a burst that pauses for less stays diverted
    buffer: Literal["store", "sql"] = "store"  # sql: a queue in `data_url`, which survives the loss of the store
    drain_at_once: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 64  # runs that one worker moves to SQL together
    drain_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3  # then a run that SQL refuses is stored as FAILED
    # -- runs
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3  # of a run, unless its trigger says otherwise
    lease_ttl: Ttl = 60.0  # of a run that a worker took; its heartbeat extends it
    retry_first: Ttl = 1.0  # seconds before the second attempt; each further pause is twice as long: a restart is short
    retry_most: Ttl = 300.0  # the longest of these pauses: an outage that lasts is tried every five minutes
    retention: Annotated[float, msgspec.Meta(ge=3600.0, le=10 * 366 * 86_400.0)] = _MONTH  # of finished runs
