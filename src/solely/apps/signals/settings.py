"""The settings of the service half: the section [signals]."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...kit import Ttl
from .model import LEAST, OnOutage, SignalOptions

_DAY = 86_400.0
Duration = Annotated[float, msgspec.Meta(ge=LEAST, le=366 * _DAY)]


class SignalsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How signals that are posted are written once. Durations are seconds."""

    use_idempotent_signals: bool = True  # off: all that is posted is written, as before; see also `solely signals off`
    ttl: Duration = SignalOptions.ttl
    window: Duration = SignalOptions.window
    cache_size: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = SignalOptions.cache_size
    on_outage: OnOutage = "refuse"  # or unprotected: while the store is unreachable, the old path, counted
    breaker_failures: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 5  # within a minute, until the breaker opens
    breaker_cooldown: Ttl = 30.0  # until one trial is let through
    # Of signals that were acknowledged, and of the sums per minute.
    retention: Annotated[float, msgspec.Meta(ge=3600.0, le=3660 * _DAY)] = 30 * _DAY
