"""Solely makes work that must happen once happen once: across tasks, threads, processes, hosts and stores."""

from .breakers.handle import AsyncSharedBreaker, SharedBreaker
from .cache import Cache
from .claims.claim import ClaimOutcome, Publication
from .claims.fingerprint import Fingerprint, fingerprint
from .claims.handle import AsyncClaim, Claim
from .claims.listing import ClaimInfo
from .claims.policy import RELEASE, Failing, Park, Policy, Replay, RetryAfter
from .client import AsyncClient, Client
from .credentials import Login
from .dead_letters.calls import LetterReplay
from .dead_letters.flow import Letter
from .dead_letters.hand_over import LetterInHand
from .dead_letters.handle import AsyncDeadLetters, DeadLetters
from .dead_letters.replay import LetterOutcome
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
from .explanations.flow import Explanation
from .leases.lease import AsyncLease, Lease
from .limits.flow import LimitInfo
from .limits.handle import Admission, AsyncAdmission
from .locks.handle import AsyncLeaseSet, LeaseSet, LockInfo
from .marks.calls import MarkInfo
from .model import Entry, Finding, Released, State
from .queues.flow import ItemInfo
from .queues.handle import AsyncQueue, Queue
from .queues.item import AsyncItem, Item
from .queues.performing import PermanentFailure, Postpone, Retry
from .queues.worker import QueueWorker, WorkerHealth
from .reservations.handle import AsyncReservation, Reservation, ReservationInfo
from .reservations.policies import PolicyTable, ReservationPolicy
from .schedules.calls import Tick
from .schedules.handle import AsyncSchedule, Schedule
from .schedules.listing import ScheduleInfo
from .watermarks.flow import WatermarkInfo
from .watermarks.handle import AsyncWatermark, Watermark

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
    "AsyncSchedule",
    "AsyncSharedBreaker",
    "AsyncWatermark",
    "BreakerOpen",
    "Busy",
    "Cache",
    "Claim",
    "ClaimInfo",
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
    "LimitInfo",
    "Limited",
    "LockInfo",
    "Login",
    "MarkInfo",
    "Mismatch",
    "MissingExtra",
    "NameReserved",
    "NotKept",
    "Park",
    "PermanentFailure",
    "Policy",
    "PolicyTable",
    "Postpone",
    "Publication",
    "Queue",
    "QueueWorker",
    "Refused",
    "Released",
    "Replay",
    "Reservation",
    "ReservationInfo",
    "ReservationMismatch",
    "ReservationPolicy",
    "Retry",
    "RetryAfter",
    "Schedule",
    "ScheduleInfo",
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
    "Tick",
    "TimedOut",
    "UnknownReservation",
    "UnknownScheme",
    "Unreadable",
    "Watermark",
    "WatermarkInfo",
    "WorkFailed",
    "WorkerHealth",
    "fingerprint",
]
