"""Problem documents (RFC 9457): every way to be refused, its status, and what to do about it. The policy page lists
them, and `type` leads there."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from .. import errors

POLICY_PATH = "/policy"
AGAIN = (
    1  # seconds after which to come again where nothing better is known: a restart or a failover is often that short
)
FULL_AGAIN = 10  # seconds after which to come to a full store again: leases expire by then, and somebody may make room
LATEST = 60  # seconds: who waits longer than that learns nothing new by asking once a minute


class Kind(NamedTuple):
    """One way to be refused; its name is the anchor on the policy page."""

    name: str
    status: int
    title: str
    advice: str


INVALID = Kind("invalid", 400, "The request cannot be", "Nothing was done. `detail` says what to change.")
NOT_JSON = Kind("content-type", 415, "The body is of another kind", "Send the body with the Content-Type given.")
TOO_LARGE = Kind("too-large", 413, "The body is too large", "Nothing was done. Send less at a time.")
HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "The headers are too large", "Nothing was done. Send fewer.")
TOO_SLOW = Kind("too-slow", 408, "The request took too long to arrive", "Nothing was done. Send it again, faster.")
UNKNOWN_HOST = Kind("unknown-host", 421, "This host is not served here", "Add the name to allowed_hosts.")
OTHER_ORIGIN = Kind("other-origin", 403, "Pages of other sites may not call", "Call from a page of the same host.")
NO_TOKEN = Kind("no-token", 401, "Who asks is unknown", "Send `Authorization: Bearer …` with a token that is valid.")
SCOPE = Kind("scope", 403, "The token may not do this", "Use a token with the scope that `detail` names.")
RESERVED_NAME = Kind(
    "reserved-name",
    403,
    "The name belongs to an application",
    "Nothing was done. Use a name that does not begin with `~`; admins clear what applications keep by its stored key.",
)
CSRF = Kind("csrf", 403, "The form is not from here", "Load the page again, and send its form.")
NOT_FOUND = Kind("not-found", 404, "There is nothing here", "Look at /openapi.json for what there is.")
METHOD = Kind("method", 405, "Not with this method", "`Allow` names the methods.")
BUSY = Kind("busy", 409, "Somebody else holds the key", "Wait longer, or come again after Retry-After seconds.")
RUNNING = Kind("running", 409, "It is being done by another", "Its result is not there yet: come again.")
MISMATCH = Kind("mismatch", 422, "The key came with another payload", "A new payload needs a new key.")
LOST = Kind("lost", 410, "The lease is over", "Stop what it protected: another may hold the key now.")
NOT_KEPT = Kind("not-kept", 410, "The result was not kept", "It was done once, and is not done again.")
LIMITED = Kind("limited", 429, "Over the limit", "Come again after Retry-After seconds.")
TOO_MANY = Kind("too-many", 429, "This client has too much under way", "Let go of something first.")
UNREADABLE = Kind(
    "unreadable",
    409,
    "The record cannot be read",
    "A newer version wrote it, or something else did. An admin can look at it among the entries, and clear it.",
)
OVERTAKEN = Kind("overtaken", 409, "Another has taken the key since", "`detail` says who is ahead.")
UNKNOWN = Kind("unknown", 404, "It is not there, or no longer", "It was released, cleared, or ran out.")
WORK_FAILED = Kind("work-failed", 424, "The work failed for good", "It is not run again. `detail` says how it failed.")
STALE = Kind("stale", 412, "A later holder was seen", "Nothing was written. Stop: the lease is another's.")
AWAY = Kind(
    "store-away", 503, "The store does not answer", "Nothing was granted. Come again after Retry-After seconds."
)
CROWDED = Kind(
    "crowded",
    503,
    "Too many pages and lists are being read",
    "Nothing was changed. Come again after Retry-After seconds.",
)
DATA_AWAY = Kind(
    "data-away",
    503,
    "The database of applications does not answer",
    "What was asked was not done, or is not known to be. Come again after Retry-After seconds.",
)
FULL = Kind(
    "store-full",
    507,
    "The store is full",
    "Nothing may be evicted: give it more room. Come again after Retry-After seconds.",
)
STORE_FAILED = Kind("store-failed", 502, "The store failed", "The service's log says how.")
TOO_MANY_CONNECTIONS = Kind(
    "too-many-connections",
    503,
    "Too many connections are open",
    "Nothing was done. Reuse a connection, or come again after Retry-After seconds.",
)
STOPPING = Kind("stopping", 503, "The service is stopping", "Nothing was granted. Ask another instance, or come again.")
BROKEN = Kind("broken", 500, "The service failed", "This is a bug. The service's log says more.")

KINDS = tuple(kind for kind in globals().values() if isinstance(kind, Kind))

# The first class that an error is an instance of says what it is told as. What a store's own error says is for the log
# only: it may name hosts and versions. Of these two kinds, the text is ours.
OF_ERRORS: tuple[tuple[type[errors.SolelyError], Kind], ...] = (
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


_OURS = (RESERVED_NAME, UNREADABLE)


class ProblemDocument(msgspec.Struct, omit_defaults=True):
    """What a refusal says. `key`, `holder`, `left` and `retry_after` (seconds) are there where they are known."""

    type: str
    title: str
    status: int
    detail: str
    key: str = ""
    holder: str = ""
    left: float | None = None
    retry_after: int | None = None


_AGAIN = {503: AGAIN, 507: FULL_AGAIN}  # statuses that may pass → seconds, where nothing better is known


class Problem(Exception):
    """A refusal on its way to the caller."""

    def __init__(
        self, kind: Kind, detail: str = "", *, again: float | None = None, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(detail or kind.advice)
        self.kind = kind
        self.document = ProblemDocument(f"{POLICY_PATH}#{kind.name}", kind.title, kind.status, detail or kind.advice)
        self.headers = headers
        if again is None:
            again = _AGAIN.get(kind.status)
        if again is not None:
            seconds = math.ceil(min(LATEST, max(AGAIN, again)))  # bounded first: what is for ever is infinite
            self.document.retry_after = seconds
            self.headers = (*headers, (b"retry-after", b"%d" % seconds))


def problem_of(error: errors.SolelyError) -> Problem:
    """The problem that a library's error is told as."""
    kind = next((kind for known, kind in OF_ERRORS if isinstance(error, known)), BROKEN)
    stores = isinstance(error, errors.StoreError | errors.ClientClosed) and kind not in _OURS
    secret = kind is BROKEN or stores
    waits = isinstance(error, errors.Busy | errors.TimedOut | errors.Limited | errors.BreakerOpen)
    problem = Problem(kind, "" if secret else str(error), again=(error.left or AGAIN) if waits else None)
    problem.document.key = error.key
    problem.document.holder = error.holder
    problem.document.left = error.left if error.left is not None and math.isfinite(error.left) else None
    return problem
