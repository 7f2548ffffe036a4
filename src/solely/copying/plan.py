"""Which ops copy an entry into the target, and what their replies mean. Pure functions, no I/O.

    mark        Mark
    result      Acquire, then Finish
    watermark   Read (has the target something that must stay?), then Advance
    queue item  Push

The owner of a result's hold is derived from the entry, not random: if a copy is killed between Acquire and Finish, the
next run continues its hold at once instead of finding the key held by another owner.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..errors import StoreError
from ..model import Entry, Gone, State
from ..ops import Acquire, Advance, Finish, Mark, Op, Push, Read
from ..owner import fresh_owner
from .report import CopyOutcome

HOLD = 30.0  # seconds that a result may take from Acquire to Finish: a batch takes milliseconds, a restart some seconds
LEAST = 0.001  # seconds: an entry that expired during retries is sent with the shortest time that every store can keep
FOREVER = float("inf")


class PlannedEntry(NamedTuple):
    """An entry, and the local time at which it expires (for an item: from which it can be taken)."""

    entry: Entry
    ends: float
    owner: str

    def left(self, now: float) -> float:
        return max(LEAST, self.ends - now)


def is_item(entry: Entry) -> bool:
    """True for a queue item: it has a payload without being finished."""
    return entry.value is not None and entry.state is not State.DONE


def is_held_at_source(entry: Entry) -> bool:
    """True if the entry is in use at the source: held, an item that was taken, or closed by a delay."""
    return entry.state is State.HELD or not (is_item(entry) or entry.state is State.DONE)


def planned(entry: Entry, read_at: float) -> PlannedEntry:
    """The entry with its deadline, counted from before it was read, so that it is never extended."""
    is_result = entry.state is State.DONE and entry.value is not None and entry.left != FOREVER
    return PlannedEntry(entry, read_at + entry.left, _derived_owner(entry) if is_result else fresh_owner())


def _derived_owner(entry: Entry) -> str:
    return blake2b(f"solely copy {entry.fence} {entry.key}".encode(), digest_size=16).hexdigest()


def has_expired(planned: PlannedEntry, now: float) -> bool:
    """True if it expired since it was read."""
    return not is_item(planned.entry) and planned.ends <= now


def read_op(planned: PlannedEntry, now: float) -> Op:
    """The op of a dry run, which only reads."""
    return Read(planned.entry.key)


def first_op(planned: PlannedEntry, now: float) -> Op:
    """The op that copies the entry, or checks that it can be copied."""
    entry = planned.entry
    if is_item(entry):
        queue, _, id = entry.name.partition("/")
        delay = max(0.0, planned.ends - now) if entry.state is State.CLOSED else 0.0
        return Push(unquote(queue), id, entry.value or b"", delay)
    if entry.value is None:
        return Mark(entry.key, planned.owner, planned.left(now))
    if entry.left == FOREVER:
        return Read(entry.key)
    return Acquire(entry.key, planned.owner, HOLD, info=entry.info, fingerprint=entry.fingerprint)


def second_op(planned: PlannedEntry, now: float) -> Op:
    """The op that copies what `first_op` has prepared."""
    entry = planned.entry
    if entry.left == FOREVER:
        return Advance(entry.key, entry.value or b"")
    return Finish(entry.key, planned.owner, entry.value or b"", planned.left(now))


def outcome_of_first(planned: PlannedEntry, reply: Any) -> CopyOutcome | str | None:
    """The outcome of the entry, or the reason why it failed, or None if `second_op` must follow."""
    if isinstance(reply, StoreError):
        return str(reply)
    if isinstance(reply, bool):  # of Mark or Push
        return CopyOutcome.COPIED if reply else CopyOutcome.KEPT
    there: Entry = reply
    if planned.entry.left == FOREVER:
        return CopyOutcome.KEPT if _outranks(there, planned.entry) else None
    if there.state is State.DONE:
        return CopyOutcome.KEPT
    if there.owner == planned.owner or there.gone == Gone.EXPIRED:  # ours, or ours of a killed run: Finish is accepted
        return None
    return CopyOutcome.KEPT if there.state is State.HELD else _not_free(there)


def outcome_of_second(planned: PlannedEntry, reply: Any) -> CopyOutcome | str:
    """The outcome of the entry, or the reason why it failed."""
    if isinstance(reply, StoreError):
        return str(reply)
    there: Entry = reply
    if planned.entry.left == FOREVER:
        return CopyOutcome.COPIED if there.value == planned.entry.value else CopyOutcome.KEPT
    if there.owner == planned.owner and there.state is State.DONE:
        return CopyOutcome.COPIED
    return CopyOutcome.KEPT if there.state in (State.HELD, State.DONE) else _not_free(there)


def outcome_of_dry_run(planned: PlannedEntry, reply: Any) -> CopyOutcome | str:
    """The outcome that a copy would have, or the reason why it would fail."""
    if isinstance(reply, StoreError):
        return str(reply)
    there: Entry = reply
    if is_item(planned.entry):
        return CopyOutcome.KEPT if is_item(there) else CopyOutcome.COPIED
    if planned.entry.left == FOREVER:
        return CopyOutcome.KEPT if _outranks(there, planned.entry) else CopyOutcome.COPIED
    if there.state is State.CLOSED and planned.entry.value is not None:
        return _not_free(there)
    return CopyOutcome.KEPT if there.state in (State.HELD, State.DONE) else CopyOutcome.COPIED


def _outranks(there: Entry, watermark: Entry) -> bool:
    """True if the target's entry must stay: an equal or greater watermark, or a live entry that is no watermark."""
    if there.state is State.DONE and there.left == FOREVER:
        return (there.value or b"") >= (watermark.value or b"")
    return there.state in (State.HELD, State.DONE)


def _not_free(there: Entry) -> str:
    why = f"{there.gone} while it was copied" if there.gone else f"{there.state} for {there.left:.1f} s more"
    return f"at the target its key is {why}; run the copy again"
