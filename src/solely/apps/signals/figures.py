"""The metrics of the service half. Houses and games are no labels: anybody who posts could invent more."""

from __future__ import annotations

from ...kit import LATENCY, Figure

GENERATED = Figure("solely_signals_generated", "Signals that were written")
DEDUPLICATED = Figure("solely_signals_deduplicated", "Signals that the window had already")
LOCK_ACQUIRED = Figure("solely_signals_lock_acquired", "Locks of groups that were acquired")
LOCK_CONTENTION = Figure("solely_signals_lock_contention", "Groups that were skipped since another process had them")
DEAD_LETTERED = Figure("solely_signals_dead_lettered", "Signals parked as dead letters")
UNPROTECTED = Figure("solely_signals_unprotected", "Groups written by the old path, by reason", ("reason",))
REFUSED = Figure("solely_signals_refused", "Groups refused since the store was unreachable")
SECONDS = Figure("solely_signals_latency_seconds", "Time to handle a group, with its lock", (), LATENCY)
BREAKER = Figure("solely_signals_breaker_open", "Workers whose breaker is not closed", kind="gauge")

FIGURES = tuple(each for each in globals().values() if isinstance(each, Figure))
