"""A deterministic simulator: the real flows and the real memory store, on a virtual clock, under every fault.

`simulate(seed)` runs about 200 ops of a few clients against one store and answers with the history; `invariant` in it
names the first promise that was broken, or is empty. The same seed gives the same history.
"""

from .history import History
from .locks import simulate

__all__ = ["History", "simulate"]
