"""Solely makes work that must happen once happen once: across tasks, threads, processes, hosts and stores."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
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
    from .resilience import RETRY, Backoff, Breaker, Circuit
    from .schedules.calls import Tick
    from .schedules.handle import AsyncSchedule, Schedule
    from .schedules.listing import ScheduleInfo
    from .watermarks.flow import WatermarkInfo
    from .watermarks.handle import AsyncWatermark, Watermark

# module → its public names. A name is imported at its first use, so that a program pays only for what it uses. Type
# checkers read the imports above; tests/test_exports.py keeps both the same.
_EXPORTS: dict[str, tuple[str, ...]] = {
    "breakers.handle": ("AsyncSharedBreaker", "SharedBreaker"),
    "cache": ("Cache",),
    "claims.claim": ("ClaimOutcome", "Publication"),
    "claims.fingerprint": ("Fingerprint", "fingerprint"),
    "claims.handle": ("AsyncClaim", "Claim"),
    "claims.listing": ("ClaimInfo",),
    "claims.policy": ("RELEASE", "Failing", "Park", "Policy", "Replay", "RetryAfter"),
    "client": ("AsyncClient", "Client"),
    "credentials": ("Login",),
    "dead_letters.calls": ("LetterReplay",),
    "dead_letters.flow": ("Letter",),
    "dead_letters.hand_over": ("LetterInHand",),
    "dead_letters.handle": ("AsyncDeadLetters", "DeadLetters"),
    "dead_letters.replay": ("LetterOutcome",),
    "errors": (
        "BreakerOpen",
        "Busy",
        "ClientClosed",
        "DataError",
        "DataUnavailable",
        "InvalidInput",
        "LeaseLost",
        "Limited",
        "Mismatch",
        "MissingExtra",
        "NameReserved",
        "NotKept",
        "Refused",
        "ReservationMismatch",
        "SolelyError",
        "StaleFence",
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
        "WorkFailed",
    ),
    "events": ("Event", "Hook"),
    "explanations.flow": ("Explanation",),
    "leases.lease": ("AsyncLease", "Lease"),
    "limits.flow": ("LimitInfo",),
    "limits.handle": ("Admission", "AsyncAdmission"),
    "locks.handle": ("AsyncLeaseSet", "LeaseSet", "LockInfo"),
    "marks.calls": ("MarkInfo",),
    "model": ("Entry", "Finding", "Released", "State"),
    "queues.flow": ("ItemInfo",),
    "queues.handle": ("AsyncQueue", "Queue"),
    "queues.item": ("AsyncItem", "Item"),
    "queues.performing": ("PermanentFailure", "Postpone", "Retry"),
    "queues.worker": ("QueueWorker", "WorkerHealth"),
    "reservations.handle": ("AsyncReservation", "Reservation", "ReservationInfo"),
    "reservations.policies": ("PolicyTable", "ReservationPolicy"),
    "resilience": ("RETRY", "Backoff", "Breaker", "Circuit"),
    "schedules.calls": ("Tick",),
    "schedules.handle": ("AsyncSchedule", "Schedule"),
    "schedules.listing": ("ScheduleInfo",),
    "watermarks.flow": ("WatermarkInfo",),
    "watermarks.handle": ("AsyncWatermark", "Watermark"),
}

__all__ = [
    "RELEASE",
    "RETRY",
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
    "Backoff",
    "Breaker",
    "BreakerOpen",
    "Busy",
    "Cache",
    "Circuit",
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


if not TYPE_CHECKING:  # else a type checker would accept any name

    def __getattr__(name: str) -> object:
        module = next((module for module, names in _EXPORTS.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f".{module}", __name__), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
