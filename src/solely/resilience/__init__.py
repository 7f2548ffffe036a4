"""Resilience: backoff, retry and circuit breaker, without a store.

`Breaker` belongs to one process; `once.breaker(name)` is shared by all processes.
"""

from .backoff import HELD, RETRY, Backoff
from .breaker import Breaker
from .circuit import Circuit
from .retry import retry

__all__ = ["HELD", "RETRY", "Backoff", "Breaker", "Circuit", "retry"]
