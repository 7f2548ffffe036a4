"""Exit codes."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

from ..errors import (
    BreakerOpen,
    Busy,
    InvalidInput,
    LeaseLost,
    Limited,
    StoreDenied,
    StoreUnavailable,
    TimedOut,
    UnknownReservation,
)

INTERRUPTED = 130  # 128 + SIGINT, as in shells: ^C
UNREAD = 141  # 128 + SIGPIPE, as in shells: the reader of our output has closed the pipe


class Exit(IntEnum):
    """The exit codes of our commands. `run` and `once` pass on the exit code of the command that they ran."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4  # by the store, or by the service
    BUSY = 5  # another caller holds it, or it was not ready in time
    LOST = 6  # the lease was lost while the command ran, so the command was ended
    UNAVAILABLE = 75  # the store is unreachable; EX_TEMPFAIL of sysexits: the same call may work later


_CODES: dict[tuple[type[BaseException], ...], Exit] = {
    (StoreUnavailable,): Exit.UNAVAILABLE,
    (StoreDenied, PermissionError): Exit.DENIED,
    (UnknownReservation,): Exit.NOT_FOUND,
    (LeaseLost,): Exit.LOST,
    (Busy, TimedOut, Limited, BreakerOpen): Exit.BUSY,
    (InvalidInput,): Exit.USAGE,
}


def code_of(error: BaseException) -> Exit:
    """The exit code for this error."""
    return next((code for kinds, code in _CODES.items() if isinstance(error, kinds)), Exit.ERROR)


def leave(code: int) -> NoReturn:
    """Ends the command."""
    raise SystemExit(int(code))
