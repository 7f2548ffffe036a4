"""For tests: a clock to move by hand, a proxy that breaks connections, the contract of stores, the simulator.

Names are loaded when first used: the contract needs pytest, the state machine needs hypothesis, the rest needs nothing.
`memory://` is the twin of every store: `Client("memory://", clock=ManualClock())`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import ManualClock as ManualClock
    from .contract import AsyncStoreContract as AsyncStoreContract
    from .contract import StoreContract as StoreContract
    from .machine import run_machine as run_machine
    from .proxy import FaultProxy as FaultProxy
    from .simulator import simulate as simulate
    from .simulator import simulate_claims as simulate_claims
    from .simulator import simulate_reservations as simulate_reservations

_HOMES = {
    "ManualClock": "clock",
    "FaultProxy": "proxy",
    "StoreContract": "contract",
    "AsyncStoreContract": "contract",
    "run_machine": "machine",
    "simulate": "simulator",
    "simulate_claims": "simulator",
    "simulate_reservations": "simulator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"solely.testing has no {name!r}; it has {', '.join(_HOMES)}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
