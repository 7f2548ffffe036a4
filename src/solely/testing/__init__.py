"""For tests: a manual clock, a proxy that breaks connections, the contract suite for stores, the simulator.

Names are imported on first use: the contract needs pytest, the state machine needs hypothesis, the rest needs nothing.
`memory://` behaves as every other store does: `Client("memory://", clock=ManualClock())`.
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
    from .simulator import simulate_queues as simulate_queues
    from .simulator import simulate_reservations as simulate_reservations
    from .simulator import simulate_schedules as simulate_schedules

_MODULES = {
    "ManualClock": "clock",
    "FaultProxy": "proxy",
    "StoreContract": "contract",
    "AsyncStoreContract": "contract",
    "run_machine": "machine",
    "simulate": "simulator",
    "simulate_claims": "simulator",
    "simulate_queues": "simulator",
    "simulate_reservations": "simulator",
    "simulate_schedules": "simulator",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"solely.testing has no {name!r}; it has {', '.join(_MODULES)}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
