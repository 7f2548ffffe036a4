"""What a command says while it waits: for a key that another caller holds, or for an item of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from ..errors import StoreError
from ..holder import describe
from ..model import Entry, State
from ..ops import Read
from ..rules import duration_text, stored_key
from ..stores import Store
from .progress import AFTER, showing


@contextmanager
def waiting_for_key(store: Store, kind: str, key: str, wait: float) -> Iterator[None]:
    """Says who holds the key, for how long, and when the command gives up; nothing if the wait is short."""
    ends = monotonic() + wait

    def state() -> str:
        try:
            (entry,) = store.perform([Read(stored_key(kind, key))])
        except StoreError:  # the call that waits reports it
            return ""
        if not isinstance(entry, Entry) or entry.state is not State.HELD:
            return ""
        who = describe(entry.info) or "another caller"
        return f"waiting for {key!r}, held by {who}, {entry.left:.0f} s left; gives up in {_rest(ends)}"

    if wait <= AFTER:
        yield
    else:
        with showing(state):
            yield


@contextmanager
def waiting_for_item(queue: str, wait: float) -> Iterator[None]:
    """Says that the queue is empty, and when the command gives up."""
    ends = monotonic() + wait
    if wait <= AFTER:
        yield
    else:
        with showing(lambda: f"waiting for an item in {queue!r}; gives up in {_rest(ends)}"):
            yield


def _rest(ends: float) -> str:
    return duration_text(max(0.0, round(ends - monotonic())))
