"""Resilience: pauses between tries, trying again, and knowing when to stop. None of it needs a store.

The breaker that all processes share is `once.breaker(name)`; `Breaker` here is the one of this process.
"""

from .backoff import HELD, RETRY, Backoff
from .breaker import Breaker
from .circuit import Circuit
from .retry import retry

__all__ = ["HELD", "RETRY", "Backoff", "Breaker", "Circuit", "retry"]
