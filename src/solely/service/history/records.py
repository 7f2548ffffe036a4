"""The records of the history, which a client of the API shares with the service."""

from __future__ import annotations

from typing import Any

import msgspec


class HistoryEvent(msgspec.Struct, frozen=True):
    """Something that happened to a key: `times` times from `at` to `last` (wall clock, in seconds), through this
    service. `who` is the caller, or the service itself; `facts` depend on the event."""

    id: str
    at: float
    kind: str
    key: str
    event: str
    who: str
    fence: int
    times: int
    last: float
    facts: dict[str, Any]


class KeyWaiter(msgspec.Struct, frozen=True):
    """A caller that waits for the key through this service."""

    who: str
    since: float
