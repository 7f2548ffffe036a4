"""Problem documents (RFC 9457): every error response, its status, and what to do about it. The policy page lists them,
and `type` links to it."""

from __future__ import annotations

import math

import msgspec

from .. import errors
from ..integrations.idempotency import ProblemKind

POLICY_PATH = "/policy"
AGAIN = 1  # seconds of Retry-After where nothing better is known: a restart or a failover often takes no longer
FULL_AGAIN = 10  # seconds of Retry-After for a full store: leases expire by then, and somebody may free space
# Seconds of Retry-After at most, except for a limit: a holder may release the key any time, so one retry per minute is
# worth its small cost, even if the hold lasts longer; a limit allows nothing before its time.
LATEST = 60


INVALID = ProblemKind("invalid", 400, "Invalid request", "Nothing was done. `detail` says what to change.")
NOT_JSON = ProblemKind(
    "content-type", 415, "Unsupported media type", "Send the body with the Content-Type that `detail` names."
)
TOO_LARGE = ProblemKind("too-large", 413, "Request body too large", "Nothing was done. Send less at a time.")
HEADERS_TOO_LARGE = ProblemKind(
    "headers-too-large", 431, "Request headers too large", "Nothing was done. Send fewer or shorter headers."
)
TOO_SLOW = ProblemKind(
    "too-slow", 408, "Request timeout", "The request took too long to arrive. Nothing was done. Send it again, faster."
)
UNKNOWN_HOST = ProblemKind(
    "unknown-host",
    421,
    "Unknown host",
    "The service does not know the name in the Host header: add it to allowed_hosts.",
)
OTHER_ORIGIN = ProblemKind(
    "other-origin", 403, "Cross-origin request not permitted", "Call from a page of the same host."
)
NO_TOKEN = ProblemKind("no-token", 401, "Authentication required", "Send `Authorization: Bearer …` with a valid token.")
SCOPE = ProblemKind("scope", 403, "Not permitted", "Use a token with the scope that `detail` names.")
RESERVED_NAME = ProblemKind(
    "reserved-name",
    403,
    "The name is reserved for an application",
    "Nothing was done. Use a name that does not begin with `~`; admins clear such entries by their stored key.",
)
CSRF = ProblemKind("csrf", 403, "Invalid CSRF token", "Load the page again, and submit its form.")
NOT_FOUND = ProblemKind("not-found", 404, "Not found", "/openapi.json lists all paths.")
METHOD = ProblemKind("method", 405, "Method not allowed", "The header `Allow` names the methods.")
BUSY = ProblemKind("busy", 409, "Somebody else holds the key", "Wait longer, or retry after Retry-After seconds.")
RUNNING = ProblemKind("running", 409, "The work is in progress elsewhere", "Its result is not available yet: retry.")
MISMATCH = ProblemKind("mismatch", 422, "The key was used with another payload", "A new payload needs a new key.")
LOST = ProblemKind(
    "lost", 410, "The lease has expired", "Stop the work that it protected: somebody else may hold the key now."
)
NOT_KEPT = ProblemKind("not-kept", 410, "The result was not kept", "The work was done once, and is not done again.")
LIMITED = ProblemKind("limited", 429, "Over the limit", "Retry after Retry-After seconds.")
TOO_MANY = ProblemKind(
    "too-many", 429, "This client has too many leases or requests in flight", "Release something first."
)
UNREADABLE = ProblemKind(
    "unreadable",
    409,
    "The record is unreadable",
    "A newer version or another program wrote it. An admin can find it among the entries, and clear it.",
)
OVERTAKEN = ProblemKind("overtaken", 409, "Somebody else has taken the key since", "`detail` says who.")
UNKNOWN = ProblemKind("unknown", 404, "Unknown, or no longer there", "It was released or cleared, or has expired.")
WORK_FAILED = ProblemKind(
    "work-failed", 424, "The work failed permanently", "It is not run again. `detail` names the error."
)
STALE = ProblemKind(
    "stale",
    412,
    "Stale fence",
    "A later holder has written already. Nothing was written. Stop: somebody else holds the lease.",
)
AWAY = ProblemKind(
    "store-away", 503, "The store is unavailable", "Nothing was granted. Retry after Retry-After seconds."
)
CROWDED = ProblemKind(
    "crowded",
    503,
    "Too many pages and lists are being read",
    "Nothing was changed. Retry after Retry-After seconds.",
)
BODIES_FULL = ProblemKind(
    "bodies-full",
    503,
    "Too many large bodies are being read",
    "Nothing was done. Retry after Retry-After seconds; small bodies are read all the same.",
)
DATA_AWAY = ProblemKind(
    "data-away",
    503,
    "The database of applications is unavailable",
    "The request was not performed, or its outcome is unknown. Retry after Retry-After seconds.",
)
FULL = ProblemKind(
    "store-full",
    507,
    "The store is full",
    "Nothing may be evicted: give it more space. Retry after Retry-After seconds.",
)
STORE_FAILED = ProblemKind("store-failed", 502, "The store failed", "The service's log names the error.")
TOO_MANY_CONNECTIONS = ProblemKind(
    "too-many-connections",
    503,
    "Too many connections are open",
    "Nothing was done. Reuse a connection, or retry after Retry-After seconds.",
)
STOPPING = ProblemKind(
    "stopping", 503, "The service is stopping", "Nothing was granted. Use another instance, or retry."
)
BROKEN = ProblemKind("broken", 500, "Internal error", "This is a bug. The service's log has the details.")

KINDS = tuple(kind for kind in globals().values() if isinstance(kind, ProblemKind))

# An error becomes the problem of the first class that it is an instance of.
OF_ERRORS: tuple[tuple[type[errors.SolelyError], ProblemKind], ...] = (
    (errors.InvalidInput, INVALID),
    (errors.Busy, BUSY),
    (errors.Mismatch, MISMATCH),
    (errors.TimedOut, RUNNING),
    (errors.NotKept, NOT_KEPT),
    (errors.Limited, LIMITED),
    (errors.BreakerOpen, AWAY),
    (errors.UnknownReservation, UNKNOWN),
    (errors.ReservationMismatch, OVERTAKEN),
    (errors.WorkFailed, WORK_FAILED),
    (errors.LeaseLost, LOST),
    (errors.StaleFence, STALE),
    (errors.ClientClosed, STOPPING),
    (errors.DataUnavailable, DATA_AWAY),  # also a StoreUnavailable, so it comes first
    (errors.StoreUnavailable, AWAY),
    (errors.StoreFull, FULL),
    (errors.NameReserved, RESERVED_NAME),
    (errors.Unreadable, UNREADABLE),
    (errors.StoreError, STORE_FAILED),
)

# The text of a store's error is only logged, since it may name hosts and versions; but the text of these two is ours.
_OWN_TEXT = (RESERVED_NAME, UNREADABLE)


class ProblemDocument(msgspec.Struct, omit_defaults=True):
    """An error. `key`, `holder`, `left` and `retry_after` (in seconds) are given where they are known. `error` is
    `detail` once more, where clients of another program's API look for it."""

    type: str
    title: str
    status: int
    detail: str
    key: str = ""
    holder: str = ""
    left: float | None = None
    retry_after: int | None = None
    error: str = ""


_AGAIN = {503: AGAIN, 507: FULL_AGAIN}  # status → seconds of Retry-After, where nothing better is known


class Problem(Exception):
    """Raised to refuse a request; sent as a problem document. `again` is Retry-After in seconds, at most `latest`."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str = "",
        *,
        again: float | None = None,
        latest: float = LATEST,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(detail or kind.advice)
        self.kind = kind
        self.document = ProblemDocument(f"{POLICY_PATH}#{kind.name}", kind.title, kind.status, detail or kind.advice)
        self.headers = headers
        if again is None:
            again = _AGAIN.get(kind.status)
        if again is not None:
            seconds = math.ceil(min(latest, max(AGAIN, again)))  # bounded first, since it may be infinite
            self.document.retry_after = seconds
            self.headers = (*headers, (b"retry-after", b"%d" % seconds))


def problem_of(error: errors.SolelyError) -> Problem:
    """The problem that an error of the library is sent as."""
    kind = next((kind for known, kind in OF_ERRORS if isinstance(error, known)), BROKEN)
    stores = isinstance(error, errors.StoreError | errors.ClientClosed) and kind not in _OWN_TEXT
    secret = kind is BROKEN or stores
    waits = isinstance(error, errors.Busy | errors.TimedOut | errors.Limited | errors.BreakerOpen)
    left = error.left if error.left is not None and math.isfinite(error.left) else None
    latest = max(LATEST, left or 0.0) if isinstance(error, errors.Limited) else LATEST
    problem = Problem(kind, "" if secret else str(error), again=(error.left or AGAIN) if waits else None, latest=latest)
    problem.document.key = error.key
    problem.document.holder = error.holder
    problem.document.left = left
    return problem
