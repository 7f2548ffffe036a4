"""What an error of the server means: which of our errors it is, and what to do about it."""

from __future__ import annotations

from ...errors import StoreDenied, StoreError, StoreFailed, StoreFull, StoreMisconfigured, StoreUnavailable
from .. import NotPrimary


class KeyBusy(StoreUnavailable):
    """Another transaction decides on this key and has not ended; nothing was performed."""


class MustRepeat(StoreUnavailable):
    """The transaction was undone, or cannot go on; nothing was performed: repeat the whole transaction."""


class OutOfLocks(StoreUnavailable):
    """The server has no room for the locks of this batch; nothing was performed: smaller batches may succeed."""


class PoolerInBetween(StoreMisconfigured):
    """A pooler that lends connections per transaction is taken for a server; nothing was performed."""


class SchemaGone(StoreMisconfigured):
    """A table or function of the store is missing; nothing was performed."""


class Stale(StoreUnavailable):
    """What this connection prepared or knew no longer fits the server; nothing was performed: it must be dropped."""


_MIGRATE = "the tables or functions of this store are missing: open it with migrate=auto, or call migrate(url)"
_PRIVILEGES = (
    "the database user lacks a privilege: it needs USAGE and CREATE on the schema to migrate, and else USAGE on "
    "the schema, SELECT and UPDATE on the sequence, and SELECT, INSERT, UPDATE, DELETE on the tables"
)
_STANDBY = "this server cannot write: it is a replica instead of the primary, or read-only; give the primary's address"
_REPEAT = "the transaction met another one and was undone: repeat it as a whole"
_POOLED = (
    "a pooler lends another connection of the server to each transaction: remove pgbouncer=false from the store's URL, "
    "and open your own connections, those for within(), with prepare_threshold=None"
)
_ENDED = "the server ended this connection, and undid its transaction: repeat it as a whole, on a new connection"

_OPTIONS = (
    "a pooler refuses settings of a session: remove pgbouncer=false and options from the URL, or let the pooler ignore "
    "them (ignore_startup_parameters = options)"
)
_PER_STATEMENT = "statement pooling mode"  # PgBouncer's words as it ends a connection that has begun a transaction

# SQLSTATE, or its first two characters for all others of a class → (our error, what it means and what to do).
_MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "25006": (NotPrimary, _STANDBY),
    "53100": (StoreFull, "the server's disk is full: nothing new is taken; make room on it"),
    "53200": (OutOfLocks, "the server is out of memory for locks; raise its max_locks_per_transaction"),
    "53300": (StoreUnavailable, "the server has no connection left; raise max_connections or use a pooler"),
    "42P01": (SchemaGone, _MIGRATE),
    "42883": (SchemaGone, _MIGRATE),
    "42704": (SchemaGone, _MIGRATE),
    "3F000": (SchemaGone, _MIGRATE),
    "42501": (StoreDenied, _PRIVILEGES),
    "57014": (StoreUnavailable, "the server broke the statement off: it took longer than the timeout"),
    "55P03": (KeyBusy, "another transaction that has not ended decides on this key"),
    "40": (MustRepeat, _REPEAT),
    "25P02": (MustRepeat, "an earlier statement of this transaction failed: roll it back, and repeat it as a whole"),
    "25P03": (MustRepeat, _ENDED),
    "25P04": (MustRepeat, _ENDED),
    "08": (MustRepeat, _ENDED),
    "57": (MustRepeat, _ENDED),
    "26000": (PoolerInBetween, _POOLED),
    "42P05": (PoolerInBetween, _POOLED),
    "0A000": (Stale, "the schema was changed while this connection was open"),
    "SL001": (Stale, "the server was started anew, or another one took its place, while this connection was open"),
    "57P03": (StoreUnavailable, "the server is starting or stopping"),
}

# libpq reports why a connection failed as text only; these are the server's words, in English.
_REFUSALS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("unsupported startup parameter", PoolerInBetween, _OPTIONS),
    ("password authentication failed", StoreDenied, "the user name or the password is wrong"),
    ("no password supplied", StoreDenied, "the server wants a password; give postgresql://user:password@host"),
    ("no pg_hba.conf entry", StoreDenied, "the server's pg_hba.conf does not let this user in from here"),
    ("authentication failed", StoreDenied, "the server refuses the login"),
    ("does not exist", StoreMisconfigured, "there is no such database or user"),
    ("permission denied for database", StoreDenied, "this user may not connect to this database"),
    ("too many clients", StoreUnavailable, "the server has no connection left"),
    ("too many connections", StoreUnavailable, "the server has no connection left"),
    ("connection slots are reserved", StoreUnavailable, "the server has no connection left"),
    ("read-only", NotPrimary, _STANDBY),
    ("hot standby", NotPrimary, _STANDBY),
)


def fault(sqlstate: str, text: str, key: str = "") -> StoreError:
    """The error of the server as one of ours, with its cause and what to do. Not raised."""
    unknown = (StoreFailed, "the server answered with an error")
    kind, meaning = _MEANINGS.get(sqlstate) or _MEANINGS.get(sqlstate[:2]) or unknown
    return kind(f"{meaning} ({text.strip()}, SQLSTATE {sqlstate})", key=key)


def ended(sqlstate: str, text: str) -> StoreError:
    """The last error of a server, or a pooler, that ended a connection which was in a transaction. Not raised."""
    return MustRepeat(f"{_ENDED} ({text.strip()}, SQLSTATE {sqlstate})")


def not_migrated(address: str, text: str) -> StoreError:
    """Why the connection on which the schema was migrated was lost: nothing was changed. Not raised."""
    if _PER_STATEMENT in text:
        remedy = "let the pooler lend them per transaction (pool_mode = transaction), or give the server's own address"
        return PoolerInBetween(f"{address}: a pooler lends connections per statement: {remedy} ({text})")
    return StoreUnavailable(f"{address} did not answer while its schema was migrated: {text}")


def refused(address: str, text: str) -> StoreError:
    """Why there is no connection: nothing was sent. Not raised."""
    words = " ".join(text.split())
    for part, kind, meaning in _REFUSALS:
        if part in words:
            return kind(f"{address}: {meaning} ({words})")
    return StoreUnavailable(f"{address} cannot be reached: {words}")
