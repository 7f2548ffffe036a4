"""Replay: runs a dead letter again, by one caller at a time, under the dedup key of its work.

The caller holds the claim of that key (or a separate key, if the letter has none), so a process that dies loses
nothing: its hold expires and the letter remains.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from .. import values
from ..errors import Interrupted, InvalidInput, NotKept, StoreError, Unreadable, WorkFailed
from ..flow import RUN, Ask, Flow, Run, WakeAll, replies_or_raise, undo
from ..leases.hold import Hold
from ..model import DONE, Entry, item_key
from ..ops import Acquire, Clear, Finish, Mark, Read, Release
from ..rules import DAY, stored_key
from .flow import Letter, entries, failed_again, inspect, letter_of, queue_of, reads, remove

TTL = 30.0  # seconds, as a claim's; renewed while the handler runs, so a process that died blocks others that long
KEEP = DAY  # how long the success of a replay is remembered: as long as a claim's result by default


class LetterOutcome(StrEnum):
    """The outcome of a replay."""

    REPLAYED = "replayed"  # the handler ran and succeeded: the letter is removed
    SKIPPED = "skipped"  # the work had succeeded meanwhile: the handler did not run, the letter is removed
    FAILED = "failed"  # the handler ran and failed again: the letter stays
    BUSY = "busy"  # another caller runs it, or changed it since it was listed: the letter stays
    GONE = "gone"  # there is no such letter any more
    UNREADABLE = "unreadable"  # it, or the outcome of its claim, is unreadable: nothing was run, the letter stays


class LetterHold(NamedTuple):
    """A letter taken for replay, and the earlier failure of its claim, which is restored if the replay fails."""

    letter: Letter
    hold: Hold
    before: Entry | None


def take(group: str, id: str, info: str, listed: Letter | None = None) -> Flow[LetterHold | LetterOutcome]:
    """Takes the letter, or returns why it is not to be run now. `listed` is the letter as the caller saw it: if it has
    changed since, another caller has run it."""
    first = yield from inspect(group, id)
    if first is None:
        return LetterOutcome.GONE
    if first.unreadable:
        return LetterOutcome.UNREADABLE
    key = stored_key("claim", first.key) if first.key else "replay/" + item_key(queue_of(group), id)
    owner: str = yield Ask.OWNER
    before: Entry | None = None
    try:
        held = yield from _acquire(key, owner, info, "")
        if isinstance(held, Entry) and held.state is DONE:
            succeeded = _is_success(held)
            if succeeded is None:
                return LetterOutcome.UNREADABLE
            if succeeded:
                yield from remove([first], "its work had succeeded")
                return LetterOutcome.SKIPPED
            before = held
            yield Clear(key, held.fence, "a dead letter is replayed")
            held = yield from _acquire(key, owner, info, held.fingerprint)
        if isinstance(held, Entry):
            return LetterOutcome.BUSY
        return (yield from _look(first, held, before, listed))
    except (Interrupted, StoreError):
        yield from _as_before(key, owner, before)
        raise


def _as_before(key: str, owner: str, before: Entry | None) -> Flow[None]:
    """Undoes a take at any stage: restores a failure that was cleared, unless another owner took the key."""
    if before is None:
        yield from undo([Release(key, owner, True)])
        return
    again = Acquire(key, owner, TTL, before.info, fingerprint=before.fingerprint)
    yield from _surely([again, Finish(key, owner, before.value or b"", before.left)])


def _acquire(key: str, owner: str, info: str, fingerprint: str) -> Flow[Hold | Entry]:
    """The hold; else the entry that blocks it, or whose reply came too late."""
    entry: Entry = yield Acquire(key, owner, TTL, info, fingerprint=fingerprint, value=True)
    run: Run = yield RUN
    sent, doubtful, now = run.sent, run.doubtful, run.now()
    if entry.owner == owner:
        hold = Hold(key, owner, TTL, entry, sent, doubtful, run.now)
        if now < hold.deadline:
            return hold
    if entry.owner == owner or (doubtful and entry.state is not DONE):
        yield Release(key, owner, True)
    return entry


def _look(first: Letter, hold: Hold, before: Entry | None, listed: Letter | None) -> Flow[LetterHold | LetterOutcome]:
    """Checks, now that no other caller runs it, that the letter still exists, is as listed, and was not done."""
    marks = [Read(stored_key("mark", first.key))] if first.key else []
    item, failure, *seen = entries((yield [*reads(first.group, [first.id]), *marks]))
    letter = letter_of(item, failure)
    taken = LetterHold(letter or first, hold, before)
    if letter is None:
        yield from give_back(taken)
        return LetterOutcome.GONE
    if any(mark.state is DONE and mark.fence != letter.mark for mark in seen):
        yield from give_back(taken)
        yield from remove([letter], "its work had succeeded")
        return LetterOutcome.SKIPPED
    if listed is not None and (letter.fence, letter.attempts) != (listed.fence, listed.attempts):
        yield from give_back(taken)
        return LetterOutcome.BUSY
    return taken


def succeeded(taken: LetterHold, result: Any) -> Flow[bool]:
    """Removes the letter and marks its key as done: claims of it return the result, marks are seen.

    False if the hold was lost, so that another caller may have run it too. The success is stored before the letter is
    removed: after a crash in between, the next replay does nothing.
    """
    letter, hold, _ = taken
    mine = True
    if letter.key:
        mark = Mark(stored_key("mark", letter.key), hold.owner, KEEP, extend=True)
        entry, _ = yield from _surely([Finish(hold.key, hold.owner, _kept(result), KEEP), mark])
        mine = entry.owner == hold.owner
        yield WakeAll(hold.key)  # waiters of this process for the claim check at once
    yield from remove([letter], "replayed")
    if not letter.key:
        yield from give_back(taken)
    return mine


def failed(taken: LetterHold, error: BaseException | str, at: datetime) -> Flow[None]:
    """Adds a failure to the letter, and restores the earlier outcome of its key."""
    yield from _surely([failed_again(taken.letter, error, at, 1, taken.letter.mark)])
    yield from give_back(taken)


def give_back(taken: LetterHold) -> Flow[None]:
    """Releases the letter, as if it had not been taken."""
    hold, before = taken.hold, taken.before
    if before is not None:
        yield from _surely([Finish(hold.key, hold.owner, before.value or b"", before.left)])
        yield WakeAll(hold.key)
        return
    try:
        yield Release(hold.key, hold.owner, hold.doubtful)
    except Interrupted:
        yield Release(hold.key, hold.owner, True)
        raise


def _surely(ops: list[Any]) -> Flow[list[Any]]:
    """The replies; performs the ops also if the caller is interrupted, since they record what has happened."""
    try:
        return replies_or_raise((yield ops))
    except Interrupted:
        yield ops
        raise


def _is_success(claim: Entry) -> bool | None:
    """True if the work succeeded, False if it failed for good; None if the outcome is unreadable."""
    try:
        values.decode(claim.value, claim.name)
    except WorkFailed:
        return False
    except Unreadable:
        return None
    except NotKept:  # done, and its result was not kept
        pass
    return True


def _kept(result: Any) -> bytes:
    """The result in the stored form of a claim; a tombstone if it is too large or not serializable."""
    try:
        kept = values.encode(result)
    except InvalidInput as error:
        return values.tombstone(str(error))
    why = values.too_large(kept)
    return values.tombstone(why) if why else kept
