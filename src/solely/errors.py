"""All errors of Solely.

    SolelyError
    ├── InvalidInput (ValueError)      an invalid key, ttl, wait, value or option: nothing was sent
    │   └── UnknownScheme              no store supports the scheme of this URL
    ├── MissingExtra (ImportError)     an optional dependency is not installed; the text has the pip command
    ├── Refused                        a normal "no", raised where the caller wants its block guarded
    │   ├── Busy                       another owner holds the key; says who and for how long
    │   ├── Mismatch                   the key was claimed with another fingerprint: another payload
    │   ├── TimedOut                   a claim was neither won nor finished within the wait; says who holds it
    │   ├── NotKept                    the work was done once; its result was too large or not serializable
    │   ├── BreakerOpen                the circuit breaker is open; says for how long
    │   ├── UnknownReservation         the reservation id is unknown: it was released, or expired
    │   ├── ReservationMismatch        another reservation has taken the key since this id was issued
    │   └── Limited                    over the limit; says when the next hit is allowed
    ├── WorkFailed                     the work of a claim failed for good and is not run again; says how it failed
    ├── LeaseLost                      the lease ended while its holder relied on it
    ├── StaleFence                     a guarded resource has seen a later holder: nothing was written
    ├── ClientClosed                   the client was closed
    ├── DataError                      the SQL database of applications returned an error
    │   └── DataUnavailable            it is unreachable or busy; also a StoreUnavailable: a retry may succeed
    └── StoreError                     the store returned an error, or no answer
        ├── StoreUnavailable           no answer: nothing was granted, and the op may or may not have been performed
        │   └── Unanswered             one try was sent and not answered (drivers retry it under the same owner)
        ├── StoreFull                  the store is full, and nothing in it may be evicted
        ├── StoreMisconfigured         a setting of the store breaks a guarantee; the text has the remedy
        │   └── StoreDenied            the store refuses this user, or this operation: login or privilege
        │       └── NameReserved       the name belongs to an application of the service, which alone may write it
        └── StoreFailed                the store answered with its own error
            └── Unreadable             a record holds bytes that Solely cannot read; an admin can clear it

Every error carries `key` where there is one, and, where known, `holder` (who) and `left` (seconds).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TypeVar

E = TypeVar("E", bound="SolelyError")
X = TypeVar("X", bound=Exception)


class SolelyError(Exception):
    """The base class of every error that Solely raises."""

    def __init__(self, message: str, *, key: str = "", holder: str = "", left: float | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.holder = holder
        self.left = left


class InvalidInput(SolelyError, ValueError):
    """An argument is invalid; nothing was sent to any store."""


class UnknownScheme(InvalidInput):
    """No store supports the scheme of this URL."""


class MissingExtra(SolelyError, ImportError):
    """An optional dependency is missing; the text names the command that installs it."""


def missing_extra(what: str, module: str | None, extra: str) -> MissingExtra:
    """The error for a module that only an extra installs. The command installs into the environment of this process,
    which need not be the one that a bare `pip` belongs to."""
    command = f"{shlex.quote(sys.executable or 'python')} -m pip install 'solely[{extra}]'"
    return MissingExtra(f"{what} needs {module}; install it with: {command}")


class Refused(SolelyError):
    """A normal "no": nothing failed, but the caller did not get what it asked for."""


class Busy(Refused):
    """Another owner holds the key, and the wait is over."""


class Mismatch(Refused):
    """The key was claimed with another fingerprint: the same key must come with the same payload."""


class TimedOut(Refused):
    """A claim was neither won nor finished within its wait."""


class NotKept(Refused):
    """The work was done once and is not run again; its result was not kept."""


class BreakerOpen(Refused):
    """The circuit breaker is open: the call was not made."""


class UnknownReservation(Refused):
    """The reservation id is unknown: it was released or cleared, or its hold expired long ago.

    `how` is expired, cleared or resumed; "" if the store does not remember how it ended.
    """

    how = ""


class ReservationMismatch(Refused):
    """Another reservation has the key (fence `expected`) than the one of this id (fence `got`): both may send."""

    def __init__(self, message: str, *, key: str = "", expected: int = 0, got: int = 0) -> None:
        super().__init__(message, key=key)
        self.expected = expected
        self.got = got


class Limited(Refused):
    """Over the limit: the next hit is allowed in `left` seconds."""


class WorkFailed(SolelyError):
    """The work of a claim failed, and that is its outcome: `kind` is the class of the error, `text` its message."""

    def __init__(self, message: str, *, key: str = "", kind: str = "", text: str = "") -> None:
        super().__init__(message, key=key)
        self.kind = kind
        self.text = text


class LeaseLost(SolelyError):
    """The lease ended (expired, cleared, resumed by another, lost by its store, or by max_hold) while its holder
    relied on it."""


class StaleFence(SolelyError):
    """A guarded resource has seen a later holder of `key` than this one: `stored` is greater than `offered`."""

    def __init__(self, message: str, *, key: str = "", offered: int = 0, stored: int = 0) -> None:
        super().__init__(message, key=key)
        self.offered = offered
        self.stored = stored


class ClientClosed(SolelyError):
    """The client was closed; open a new one."""


class StoreError(SolelyError):
    """The store returned an error, or no answer."""


class StoreUnavailable(StoreError):
    """The store did not answer. Nothing was granted; whether the op was performed is unknown."""


class Unanswered(StoreUnavailable):
    """One try was sent, or may have been, and was not answered."""


class StoreFull(StoreError):
    """The store is full, and nothing in it may be evicted."""


class StoreMisconfigured(StoreError):
    """A setting of the store breaks a guarantee."""


class StoreDenied(StoreMisconfigured):
    """The store refuses this user, or this operation."""


class NameReserved(StoreDenied):
    """The name belongs to an application of the service: only that application may write it. Nothing was sent."""


class StoreFailed(StoreError):
    """The store answered with its own error."""


class Unreadable(StoreFailed):
    """A record holds bytes that Solely cannot read: a newer version or another program wrote them."""


class DataError(SolelyError):
    """The SQL database of applications returned an error: the statement is invalid, or violates a constraint."""


class DataUnavailable(DataError, StoreUnavailable):
    """The SQL database of applications is unreachable or busy. The statement may have run; a retry may succeed."""


class Interrupted(BaseException):
    """Thrown by a driver into a flow: the caller was cancelled, or no answer came.

    The flow may yield compensating ops and must re-raise it; the driver then raises `cause`. `unanswered`: a try may
    still be in flight, so a compensating Release must revoke its owner. Callers never see this error.
    """

    def __init__(self, cause: BaseException, *, unanswered: bool) -> None:
        super().__init__(repr(cause))
        self.cause = cause
        self.unanswered = unanswered


# What ends a flow before its time. A signal handler may raise inside the flow's own code, where the driver cannot turn
# that into Interrupted: a flow that undoes catches all of these. Not GeneratorExit: nobody would perform the undo.
INTERRUPTIONS = (Interrupted, KeyboardInterrupt, SystemExit, Exception)


def is_unanswered(why: BaseException) -> bool:
    """True if a try may still be in flight after this interruption."""
    return not isinstance(why, Interrupted) or why.unanswered


def not_ours(error: Exception) -> str:
    """Why stored bytes are unreadable, as a phrase for an error text."""
    return f"a newer version or another program wrote it ({type(error).__name__}: {error!s:.200})"


def first_error(kind: type[E], replies: Sequence[object]) -> E | None:
    """The first error of this kind among the replies, or None; fast for a thousand replies without one."""
    if not any(issubclass(each, kind) for each in set(map(type, replies))):
        return None
    return next(reply for reply in replies if isinstance(reply, kind))


def copied(error: X) -> X:
    """The same error for one more caller, so that their tracebacks do not mix."""
    if not isinstance(error, StoreError):
        return error
    copy = type(error)(str(error), key=error.key, holder=error.holder, left=error.left)
    copy.__cause__ = error.__cause__
    return copy
