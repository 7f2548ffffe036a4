"""Solely makes work that must happen once happen once: across tasks, threads, processes, hosts and stores."""

from .cache import Cache
from .client import AsyncClient, Client
from .errors import (
    BreakerOpen,
    Busy,
    ClientClosed,
    DataError,
    DataUnavailable,
    InvalidInput,
    LeaseLost,
    Limited,
    Mismatch,
    MissingExtra,
    NameReserved,
    NotKept,
    Refused,
    ReservationMismatch,
    SolelyError,
    StaleFence,
    StoreDenied,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    TimedOut,
    UnknownReservation,
    UnknownScheme,
    Unreadable,
    WorkFailed,
)
from .events import Event, Hook
from .faces.breakers import AsyncSharedBreaker, SharedBreaker
from .faces.limits import Admission, AsyncAdmission
from .fingerprint import Fingerprint, fingerprint
from .flows.deadletter import Letter
from .flows.explain import Explanation
from .flows.queue import ItemInfo
from .flows.replay import LetterOutcome
from .handles.claim import AsyncClaim, Claim
from .handles.claimface import ClaimOutcome, Publication
from .handles.deadletter import AsyncDeadLetters, DeadLetters
from .handles.handout import LetterInHand
from .handles.item import AsyncItem, Item
from .handles.lease import AsyncLease, AsyncLeaseSet, Lease, LeaseSet
from .handles.lettering import LetterReplay
from .handles.queue import AsyncQueue, Queue
from .handles.reservation import AsyncReservation, Reservation, ReservationInfo
from .handles.watermark import AsyncWatermark, Watermark
from .model import Entry, Finding, Released, State
from .outcomes import RELEASE, Failing, Park, Policy, Replay, RetryAfter
from .policies import PolicyTable, ReservationPolicy

__version__ = "0.1.0"

__all__ = [
    "RELEASE",
    "Admission",
    "AsyncAdmission",
    "AsyncClaim",
    "AsyncClient",
    "AsyncDeadLetters",
    "AsyncItem",
    "AsyncLease",
    "AsyncLeaseSet",
    "AsyncQueue",
    "AsyncReservation",
    "AsyncSharedBreaker",
    "AsyncWatermark",
    "BreakerOpen",
    "Busy",
    "Cache",
    "Claim",
    "ClaimOutcome",
    "Client",
    "ClientClosed",
    "DataError",
    "DataUnavailable",
    "DeadLetters",
    "Entry",
    "Event",
    "Explanation",
    "Failing",
    "Finding",
    "Fingerprint",
    "Hook",
    "InvalidInput",
    "Item",
    "ItemInfo",
    "Lease",
    "LeaseLost",
    "LeaseSet",
    "Letter",
    "LetterInHand",
    "LetterOutcome",
    "LetterReplay",
    "Limited",
    "Mismatch",
    "MissingExtra",
    "NameReserved",
    "NotKept",
    "Park",
    "Policy",
    "PolicyTable",
    "Publication",
    "Queue",
    "Refused",
    "Released",
    "Replay",
    "Reservation",
    "ReservationInfo",
    "ReservationMismatch",
    "ReservationPolicy",
    "RetryAfter",
    "SharedBreaker",
    "SolelyError",
    "StaleFence",
    "State",
    "StoreDenied",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreMisconfigured",
    "StoreUnavailable",
    "TimedOut",
    "UnknownReservation",
    "UnknownScheme",
    "Unreadable",
    "Watermark",
    "WorkFailed",
    "fingerprint",
]
