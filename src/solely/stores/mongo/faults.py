"""What pymongo's errors mean to a caller: each becomes a StoreError that names the cause and what to do.

The line that matters runs between "nothing was performed" (StoreUnavailable) and "it may have been" (Unanswered).
"""

from __future__ import annotations

import socket
from typing import Any

from bson.errors import BSONError
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
)

from ...errors import (
    ClientClosed,
    SolelyError,
    StoreDenied,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    Unanswered,
)


class KeyRace(StoreUnavailable):
    """Another made the document of this key at the same instant: nothing was performed, so it is tried again."""


NO_CHANGE_STREAMS = 40573  # of a standalone server
DENIED = 18  # the login is wrong

_CAUSES: dict[int, tuple[type[StoreError], str]] = {
    13: (StoreDenied, "does not allow this user to write here; grant the role readWrite on the database"),
    DENIED: (StoreDenied, "refuses the login; check user, password and authSource"),
    20: (StoreMisconfigured, "has no transactions, because it stands alone; make it a replica set"),
    50: (Unanswered, "needed longer than the timeout, perhaps behind a transaction that is open on this key"),
    64: (Unanswered, "has written it, but a majority has not confirmed it within the timeout"),
    91: (Unanswered, "is shutting down"),
    100: (StoreMisconfigured, "has not enough members for the write concern; nothing can be confirmed"),
    112: (StoreUnavailable, "met another write on the same key; nothing was performed"),
    189: (Unanswered, "is no longer the primary"),
    10107: (StoreUnavailable, "is not the primary; nothing was performed"),
    10334: (StoreFailed, "cannot keep a document larger than 16 MiB"),
    11600: (Unanswered, "is shutting down"),
    11602: (Unanswered, "is no longer the primary"),
    11000: (KeyRace, "met another write that made the same key; nothing was performed"),
    13388: (StoreUnavailable, "has moved the collection to another shard; nothing was performed"),
    13435: (StoreUnavailable, "is not the primary; nothing was performed"),
    14031: (StoreFull, "cannot grow: the disk is full; make room"),
    17419: (StoreFailed, "cannot keep a document larger than 16 MiB"),
    17420: (StoreFailed, "cannot keep a document larger than 16 MiB"),
}
ABORTED = "TransientTransactionError"  # pymongo's label of errors after which a transaction is to be run again


ANY_FAULT = (PyMongoError, BSONError)  # the second: it could not even be sent


def explain(server: str, error: PyMongoError | BSONError) -> SolelyError:
    """Our error for this one of pymongo. Not raised."""
    if isinstance(error, OperationFailure) or getattr(error, "code", None) in _CAUSES:
        return answered(server, getattr(error, "code", None), str(getattr(error, "details", None) or error))
    if isinstance(error, ServerSelectionTimeoutError) and "AuthenticationFailed" in str(error):
        return answered(
            server, DENIED, _short(error)
        )  # pymongo does not retry a server that refused the login for a while
    if isinstance(error, ServerSelectionTimeoutError | WaitQueueTimeoutError) or _never_connected(error):
        return StoreUnavailable(f"{server} cannot be reached: {_short(error)}")
    if isinstance(error, AutoReconnect | ConnectionFailure):
        details = getattr(error, "details", None)
        if isinstance(details, dict) and details.get("code") in _CAUSES:
            return answered(server, details["code"], str(details.get("errmsg", error)))
        return Unanswered(f"{server} gave no answer: {_short(error)}")
    if isinstance(error, DocumentTooLarge):
        return StoreFailed(f"{server} cannot keep a document larger than 16 MiB")
    if isinstance(error, ConfigurationError):
        return StoreMisconfigured(f"{server} cannot be used: {_short(error)}")
    if isinstance(error, InvalidOperation) and "close" in str(error).lower():
        return ClientClosed("the client was closed; open a new one")
    return StoreFailed(f"{server}: {_short(error)}")


def answered(server: str, code: int | None, text: str) -> StoreError:
    """Our error for an error code of the server."""
    kind, cause = _CAUSES.get(code or 0, (StoreFailed, "failed"))
    return kind(f"{server} {cause} (code {code}: {text[:300]})")


def aborted(server: str, error: PyMongoError | BSONError) -> StoreError:
    """What went wrong inside a transaction: it is over, and nothing of it was performed."""
    if isinstance(error, PyMongoError) and error.has_error_label(ABORTED):
        return StoreUnavailable(f"{server}: the transaction was aborted by a conflict; run it again ({_short(error)})")
    reason = explain(server, error)
    if isinstance(reason, StoreUnavailable) or not isinstance(reason, StoreError):
        return StoreUnavailable(f"{reason}; the transaction was aborted, run it again")
    return reason


def not_confirmed(server: str, result: dict[str, Any]) -> StoreError | None:
    """Why a write that was performed on the primary is not sure to last; None if it is."""
    concern = result.get("writeConcernError")
    if concern is None:
        return None
    fault = answered(server, concern.get("code"), str(concern.get("errmsg", "")))
    return fault if isinstance(fault, StoreMisconfigured) else Unanswered(str(fault))


def _never_connected(error: Exception) -> bool:
    return isinstance(error.__cause__, ConnectionRefusedError | socket.gaierror)


def _short(error: Exception) -> str:
    return str(error).partition(", Timeout:")[0][:300]
