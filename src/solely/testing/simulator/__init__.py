"""A deterministic simulator: the real flows and the real memory store, on a virtual clock, with injected faults.

`simulate(seed)` runs about 200 ops of a few clients with locks and marks against one store and returns the history;
its `invariant` names the first promise that was broken, or is empty. `simulate_claims` does the same with claims,
`simulate_reservations` with reservations, limits and a shared breaker, `simulate_queues` with queues,
`simulate_schedules` with schedules. The same seed gives the same history.
"""

from .claims import simulate_claims
from .history import History
from .locks import simulate
from .queues import simulate_queues
from .reservations import simulate_reservations
from .schedules import simulate_schedules

__all__ = [
    "History",
    "simulate",
    "simulate_claims",
    "simulate_queues",
    "simulate_reservations",
    "simulate_schedules",
]
