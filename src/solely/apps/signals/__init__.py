"""Signals: each signal of a (house, game) group is generated once, however many processes poll the same data.

The library half wraps an existing generator and needs no service: `IdempotentSignalGenerator` for threads,
`AsyncIdempotentSignalGenerator` for asyncio, `MongoSignals` for signals in MongoDB, `roll_back` to return to the old
path. `app` is the service half. From the bottom up: model, steps and places, metrics, deciding, generator, mongo and
rollback; then settings, table, runtime, api and pages, app. `acts` has the words of the API, the pages and `cli`.
"""

from .generator import AsyncIdempotentSignalGenerator, IdempotentSignalGenerator
from .metrics import SignalAlert, SignalMetrics
from .model import GroupResult, SignalGroup, SignalOptions
from .mongo import AsyncMongoSignals, MongoSignals
from .rollback import RolledBack, roll_back

__all__ = [
    "AsyncIdempotentSignalGenerator",
    "AsyncMongoSignals",
    "GroupResult",
    "IdempotentSignalGenerator",
    "MongoSignals",
    "RolledBack",
    "SignalAlert",
    "SignalGroup",
    "SignalMetrics",
    "SignalOptions",
    "roll_back",
]
