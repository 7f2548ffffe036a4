"""What an error of the server means: which of our errors it is, and what to do about it."""

from __future__ import annotations

from ...errors import StoreDenied, StoreError, StoreFailed, StoreFull, StoreUnavailable, Unanswered
from .. import NotPrimary


class Elsewhere(StoreUnavailable):
    """The slot is served by another node of the cluster: nothing was performed here."""

    def __init__(self, message: str, *, key: str, address: str, asking: bool) -> None:
        super().__init__(message, key=key)
        self.address = address
        self.asking = asking


_HALF_MOVED = (Unanswered, "a part of the slot's keys has been moved to another node, in the middle of an op")

# First word of the server's error → (our error, what it means and what to do).
_MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "OOM": (
        StoreFull,
        "the server has reached maxmemory: nothing new is taken, releases work; raise maxmemory or clear old entries",
    ),
    "READONLY": (NotPrimary, "this server is a replica; give the address of the primary, or use redis+sentinel://"),
    "MASTERDOWN": (NotPrimary, "this server is a replica that has lost its primary"),
    "LOADING": (NotPrimary, "the server is starting and still loads its data"),
    "CLUSTERDOWN": (NotPrimary, "the cluster does not serve all its slots now"),
    "TRYAGAIN": (StoreUnavailable, "the slot is being moved to another node just now"),
    "Script": _HALF_MOVED,  # "attempted to access a non local key": Redis, Valkey 8
    "Attempted": _HALF_MOVED,  # the same from Valkey 9
    "BUSY": (StoreUnavailable, "the server is busy with a script of somebody else"),
    "NOREPLICAS": (StoreUnavailable, "fewer replicas are connected than min-replicas-to-write demands"),
    "MISCONF": (StoreUnavailable, "the server cannot write to its disk and therefore refuses writes; see its log"),
    "max": (StoreUnavailable, "all connections that maxclients allows are used; raise it, or close some"),
    "NOAUTH": (StoreDenied, "the server wants a password; give redis://user:password@host"),
    "WRONGPASS": (StoreDenied, "the user name or the password is wrong, or the user is disabled"),
    "NOPERM": (
        StoreDenied,
        "the ACL of this user forbids it; it needs ~<prefix>* &<prefix>* +@all -@admin -@dangerous +info",
    ),
    "WRONGTYPE": (StoreFailed, "a key of ours holds something else; give another ?namespace="),
}


def fault(error: Exception | str, key: str = "") -> StoreError:
    """The error of the server as one of ours, with its cause and what to do. Not raised."""
    text = str(error).removeprefix("ERR ")
    word = text.partition(" ")[0]
    if word in ("MOVED", "ASK"):
        address = text.rpartition(" ")[2]
        return Elsewhere(f"slot served by {address}", key=key, address=address, asking=word == "ASK")
    kind, meaning = _MEANINGS.get(word, (StoreFailed, "the server answered with an error"))
    return kind(f"{meaning} ({text})", key=key)
