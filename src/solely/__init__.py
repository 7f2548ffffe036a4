"""Solely makes work that must happen once happen once: across tasks, threads, processes, hosts and stores."""

from .cache import Cache
from .client import AsyncClient, Client
from .errors import (
    Busy,
    ClientClosed,
    InvalidInput,
    LeaseLost,
    MissingExtra,
    Refused,
    SolelyError,
    StaleFence,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    UnknownScheme,
)
from .events import Event, Hook
from .lease import AsyncLease, AsyncLeaseSet, Lease, LeaseSet
from .model import Entry, Finding, Released, State

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "AsyncLeaseSet",
    "Busy",
    "Cache",
    "Client",
    "ClientClosed",
    "Entry",
    "Event",
    "Finding",
    "Hook",
    "InvalidInput",
    "Lease",
    "LeaseLost",
    "LeaseSet",
    "MissingExtra",
    "Refused",
    "Released",
    "SolelyError",
    "StaleFence",
    "State",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreMisconfigured",
    "StoreUnavailable",
    "UnknownScheme",
]
