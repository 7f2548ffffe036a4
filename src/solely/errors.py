"""All errors of Solely.

    SolelyError
    ├── InvalidInput (ValueError)      a key, ttl, wait, value or option that cannot be: nothing was sent
    │   └── UnknownScheme              a store URL whose scheme no store serves
    ├── MissingExtra (ImportError)     an optional dependency is not installed; the text says how to install it
    ├── Refused                        a normal "no", raised where the caller asked to have its body guarded
    │   ├── Busy                       somebody else holds the key; says who and for how long
    │   ├── Mismatch                   the key was claimed with another fingerprint: another payload
    │   ├── TimedOut                   a claim was neither won nor finished within the wait; says by whom it is held
    │   ├── NotKept                    the work was done once, and its result was too large or too fluid to be kept
    │   ├── BreakerOpen                the circuit breaker lets nothing through; says for how long
    │   ├── UnknownReservation         no reservation has this id, or no longer: it was released, or ran out
    │   ├── ReservationMismatch        another reservation has taken the key since this id was given
    │   └── Limited                    over the limit; says when the next is allowed
    ├── WorkFailed                     the work of a claim failed for good and is not run again; says how it failed
    ├── LeaseLost                      the lease ended while its holder believed to hold it
    ├── StaleFence                     a guarded resource has seen a later holder: nothing was written
    ├── ClientClosed                   the client was closed
    ├── DataError                      the SQL database of applications could not do what was asked
    │   └── DataUnavailable            no answer, or not now; also a StoreUnavailable: the same call may work later
    └── StoreError                     the store could not do what was asked
        ├── StoreUnavailable           no answer: nothing was granted, and what was asked may or may not have happened
        │   └── Unanswered             one try was sent and no answer came (drivers repeat it under the same owner)
        ├── StoreFull                  the store is full of what may not be evicted
        ├── StoreMisconfigured         a setting of the store breaks a promise; the text says which and what to do
        │   └── StoreDenied            the store does not let this user in, or not do this: login or privilege
        │       └── NameReserved       the name belongs to an application of the service, which alone may write it
        └── StoreFailed                the store answered with an error of its own
            └── Unreadable             a record holds bytes that Solely cannot read; an admin can clear it

Every error carries `key` where there is one, and, where known, `holder` (who) and `left` (seconds).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TypeVar

E = TypeVar("E", bound="SolelyError")


class SolelyError(Exception):
    """The root: catches everything that Solely raises on purpose."""

    def __init__(self, message: str, *, key: str = "", holder: str = "", left: float | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.holder = holder
        self.left = left


class InvalidInput(SolelyError, ValueError):
    """The input cannot be; nothing was sent to any store."""


class UnknownScheme(InvalidInput):
    """No store serves the scheme of this URL."""


class MissingExtra(SolelyError, ImportError):
    """An optional dependency is missing; the text names the command that installs it."""


def missing_extra(what: str, module: str | None, extra: str) -> MissingExtra:
    """The error for a module that only an extra installs. The command installs into the environment of this process,
    which need not be the one that a bare `pip` belongs to."""
    command = f"{shlex.quote(sys.executable or 'python')} -m pip install 'solely[{extra}]'"
    return MissingExtra(f"{what} needs {module}; install it with: {command}")


class Refused(SolelyError):
    """A normal "no"."""


class Busy(Refused):
    """Somebody else holds the key and the wait is over."""


class Mismatch(Refused):
    """The key was claimed with another fingerprint: the same key must come with the same payload."""


class TimedOut(Refused):
    """A claim was neither won nor finished within its wait."""


class NotKept(Refused):
    """The work was done once and is not done again; its result was not kept."""


class BreakerOpen(Refused):
    """The circuit breaker is open: nothing was tried."""


class UnknownReservation(Refused):
    """No reservation has this id, or no longer: it was released or cleared, or its hold ran out long ago.

    `how` it ended, as far as that is remembered: expired, cleared, or "".
    """

    how = ""


class ReservationMismatch(Refused):
    """Another reservation has the key (under the fence `expected`) than the id's (`got`): it may be sent twice."""

    def __init__(self, message: str, *, key: str = "", expected: int = 0, got: int = 0) -> None:
        super().__init__(message, key=key)
        self.expected = expected
        self.got = got


class Limited(Refused):
    """Over the limit: `left` says after how many seconds the next is allowed."""


class WorkFailed(SolelyError):
    """The work of a claim failed, and that outcome is kept: `kind` names the class of its error, `text` its message."""

    def __init__(self, message: str, *, key: str = "", kind: str = "", text: str = "") -> None:
        super().__init__(message, key=key)
        self.kind = kind
        self.text = text


class LeaseLost(SolelyError):
    """The lease ended (expired, cleared, lost by its store, bounded by max_hold) while its holder believed in it."""


class StaleFence(SolelyError):
    """A guarded resource has seen a later holder of `key` than this one: `stored` is greater than `offered`."""

    def __init__(self, message: str, *, key: str = "", offered: int = 0, stored: int = 0) -> None:
        super().__init__(message, key=key)
        self.offered = offered
        self.stored = stored


class ClientClosed(SolelyError):
    """The client was closed; open a new one."""


class StoreError(SolelyError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store did not answer. Nothing was granted; whether the op was performed is unknown."""


class Unanswered(StoreUnavailable):
    """One try was (or may have been) sent and no answer came."""


class StoreFull(StoreError):
    """The store is full of what may not be evicted."""


class StoreMisconfigured(StoreError):
    """A setting of the store breaks a promise."""


class StoreDenied(StoreMisconfigured):
    """The store does not let this user in, or not do this."""


class NameReserved(StoreDenied):
    """The name belongs to an application of the service: only that application may write it. Nothing was sent."""


class StoreFailed(StoreError):
    """The store answered with an error of its own."""


class Unreadable(StoreFailed):
    """A record holds bytes that Solely cannot read: a newer version wrote them, or something else did."""


class DataError(SolelyError):
    """The SQL database of applications could not do what was asked: the statement is wrong, or does not fit."""


class DataUnavailable(DataError, StoreUnavailable):
    """The SQL database of applications did not answer, or cannot now: it may work later, or may have been done."""


class Interrupted(BaseException):
    """Thrown by a driver into a flow: the caller was cancelled, or an answer never came.

    The flow may yield compensating ops and lets this pass; the driver then raises `cause`. `unanswered` says that
    a try may still be under way, so that a compensating Release must revoke. Never reaches a user.
    """

    def __init__(self, cause: BaseException, *, unanswered: bool) -> None:
        super().__init__(repr(cause))
        self.cause = cause
        self.unanswered = unanswered


def not_ours(error: Exception) -> str:
    """Why bytes cannot be read, in words."""
    return f"a newer version wrote it, or something else did ({type(error).__name__}: {error!s:.200})"


def first_error(kind: type[E], replies: Sequence[object]) -> E | None:
    """The first error of this kind among the replies, or None; a thousand replies without one are looked at quickly."""
    if not any(issubclass(each, kind) for each in set(map(type, replies))):
        return None
    return next(reply for reply in replies if isinstance(reply, kind))
