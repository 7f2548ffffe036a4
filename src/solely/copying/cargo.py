"""One entry on its way: which ops bring it into the target, and what the answers say. Pure, no I/O.

    mark        Mark
    result      Acquire, then Finish
    watermark   Read (is something there that must stay?), then Advance
    queue item  Push

The owner of a result's hold is derived from the entry, not drawn: a copy that was killed between Acquire and Finish
left a hold, and the next run goes on with it at once instead of finding the key held by a stranger.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..errors import StoreError
from ..model import Entry, Gone, State
from ..ops import Acquire, Advance, Finish, Mark, Op, Push, Read
from ..owner import fresh_owner
from .report import Fate

HOLD = 30.0  # seconds that a result may take from Acquire to Finish: a batch takes milliseconds, a restart some seconds
LEAST = 0.001  # seconds: what ran out while a try was repeated is sent with the least time that every store can keep
FOREVER = float("inf")


class Cargo(NamedTuple):
    """An entry, and the local moment at which its time is over (for an item: from which it may be taken)."""

    entry: Entry
    ends: float
    owner: str

    def left(self, now: float) -> float:
        return max(LEAST, self.ends - now)


def is_item(entry: Entry) -> bool:
    """True if this is a queue item: it has a payload before anybody finished it."""
    return entry.value is not None and entry.state is not State.DONE


def stays(entry: Entry) -> bool:
    """True if the entry belongs to somebody at the source: held, an item that was taken, or closed for a moment."""
    return entry.state is State.HELD or not (is_item(entry) or entry.state is State.DONE)


def load(entry: Entry, read_at: float) -> Cargo:
    """The entry as cargo; its time is counted from before it was asked for, so that it is never lengthened."""
    is_result = entry.state is State.DONE and entry.value is not None and entry.left != FOREVER
    return Cargo(entry, read_at + entry.left, _derived_owner(entry) if is_result else fresh_owner())


def _derived_owner(entry: Entry) -> str:
    return blake2b(f"solely copy {entry.fence} {entry.key}".encode(), digest_size=16).hexdigest()


def is_over(cargo: Cargo, now: float) -> bool:
    """True if its time ran out since it was read."""
    return not is_item(cargo.entry) and cargo.ends <= now


def look(cargo: Cargo, now: float) -> Op:
    """Asks only what is there: all that a dry run does."""
    return Read(cargo.entry.key)


def first(cargo: Cargo, now: float) -> Op:
    """The op that brings the entry, or makes sure that it may be brought."""
    entry = cargo.entry
    if is_item(entry):
        queue, _, id = entry.name.partition("/")
        delay = max(0.0, cargo.ends - now) if entry.state is State.CLOSED else 0.0
        return Push(unquote(queue), id, entry.value or b"", delay)
    if entry.value is None:
        return Mark(entry.key, cargo.owner, cargo.left(now))
    if entry.left == FOREVER:
        return Read(entry.key)
    return Acquire(entry.key, cargo.owner, HOLD, info=entry.info, fingerprint=entry.fingerprint)


def second(cargo: Cargo, now: float) -> Op:
    """The op that brings what `first` has prepared."""
    entry = cargo.entry
    if entry.left == FOREVER:
        return Advance(entry.key, entry.value or b"")
    return Finish(entry.key, cargo.owner, entry.value or b"", cargo.left(now))


def after_first(cargo: Cargo, reply: Any) -> Fate | str | None:
    """The fate of the entry, or the reason why it failed, or None if `second` must follow."""
    if isinstance(reply, StoreError):
        return str(reply)
    if isinstance(reply, bool):  # of Mark or Push
        return Fate.COPIED if reply else Fate.KEPT
    there: Entry = reply
    if cargo.entry.left == FOREVER:
        return Fate.KEPT if _outranks(there, cargo.entry) else None
    if there.state is State.DONE:
        return Fate.KEPT
    if there.owner == cargo.owner or there.gone == Gone.EXPIRED:  # ours, or ours of a killed run: Finish is accepted
        return None
    return Fate.KEPT if there.state is State.HELD else _not_free(there)


def after_second(cargo: Cargo, reply: Any) -> Fate | str:
    """The fate of the entry, or the reason why it failed."""
    if isinstance(reply, StoreError):
        return str(reply)
    there: Entry = reply
    if cargo.entry.left == FOREVER:
        return Fate.COPIED if there.value == cargo.entry.value else Fate.KEPT
    if there.owner == cargo.owner and there.state is State.DONE:
        return Fate.COPIED
    return Fate.KEPT if there.state in (State.HELD, State.DONE) else _not_free(there)


def after_look(cargo: Cargo, reply: Any) -> Fate | str:
    """What would become of the entry."""
    if isinstance(reply, StoreError):
        return str(reply)
    there: Entry = reply
    if is_item(cargo.entry):
        return Fate.KEPT if is_item(there) else Fate.COPIED
    if cargo.entry.left == FOREVER:
        return Fate.KEPT if _outranks(there, cargo.entry) else Fate.COPIED
    if there.state is State.CLOSED and cargo.entry.value is not None:
        return _not_free(there)
    return Fate.KEPT if there.state in (State.HELD, State.DONE) else Fate.COPIED


def _outranks(there: Entry, watermark: Entry) -> bool:
    """True if what is there must stay: an equal or greater watermark, or no watermark at all but something live."""
    if there.state is State.DONE and there.left == FOREVER:
        return (there.value or b"") >= (watermark.value or b"")
    return there.state in (State.HELD, State.DONE)


def _not_free(there: Entry) -> str:
    why = f"{there.gone} while it was copied" if there.gone else f"{there.state} for {there.left:.1f} s more"
    return f"at the target its key is {why}; run the copy again"
