"""Dead letters: what failed is parked, with its payload and its errors, until somebody runs it again or purges it.

A letter is a queue item that never changes: its payload and its first failure. Failures after that are kept beside it
(`letter/…`), as a value that only grows: the fence of the item, the count of attempts, then the last failure.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from ..errors import Interrupted, InvalidInput, not_ours
from ..flow import Flow, Scan, replies_or_raise
from ..formats import read_failure, read_letter
from ..model import Entry, State, item_key
from ..ops import Advance, Clear, Push, Read
from ..rules import bounded_value, stored_key

MAX_ERROR_CHARS = 2_000  # the message and the last frames of most tracebacks: a letter is read by people
_PAGE = 100  # letters in one look: at 256 KiB each, 25 MiB in memory at the worst

_LAST_MOMENT = 253_370_764_800_000_000  # µs: of the year 9999, the last that has times

Where = Callable[["Letter"], bool]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: what failed, how often, how at first and how at last. `key` is what the work is deduplicated by.

    `fence` is that of its item: another letter under the same id, after this one is gone, has a greater one.
    `unreadable` says why it cannot be read, and so do its errors; its payload is then the bytes that are there.
    """

    id: str
    group: str
    payload: Any
    key: str
    attempts: int
    first_error: str
    last_error: str
    first_at: datetime
    last_at: datetime
    origin: str
    mark: int  # the fence of the mark that was there at the last failure: it says that the work was begun, not done
    fence: int = 0
    unreadable: str = ""


def queue_of(group: str) -> str:
    """The queue that keeps the letters of this group."""
    return f"dead:{group}"


def error_text(error: BaseException | str) -> str:
    """How it failed, as one text of bounded length."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return text[:MAX_ERROR_CHARS]


def letter(
    group: str,
    payload: Any,
    *,
    error: BaseException | str,
    at: datetime,
    key: str = "",
    attempts: int = 1,
    origin: str = "",
    id: str = "",
    mark: int = 0,
) -> Push:
    """The op that parks the payload (JSON-serializable, or bytes); InvalidInput if it cannot be kept.

    The id is the dedup key, or a digest of the payload where there is none: the same failing item is one letter,
    however often it fails.
    """
    body = {"bytes": base64.b64encode(payload).decode()} if isinstance(payload, bytes) else {"payload": payload}
    text, when = error_text(error), at.isoformat()
    facts = {
        "group": group, "key": key, "attempts": attempts, "first_error": text, "last_error": text,
        "first_at": when, "last_at": when, "origin": origin, "mark": mark,
    }  # fmt: skip
    named = id or key or hashlib.sha256(_text(body)).hexdigest()[:32]
    return Push(queue_of(group), named, bounded_value(_text(body | facts)))


def _text(facts: dict[str, Any]) -> bytes:
    try:
        return json.dumps(facts, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the payload of a dead letter must be JSON-serializable or bytes: {error}") from None


# -- as it is kept


def looks(group: str, ids: Sequence[str]) -> list[Read]:
    """What is to be read of each letter: its item, and its last failure."""
    keys = [item_key(queue_of(group), id) for id in ids]
    return [Read(key) for item in keys for key in (item, _beside(item))]


def _beside(item: str) -> str:
    return "letter/" + item.partition("/")[2]


def found(item: Entry, beside: Entry) -> Letter | None:
    """The letter, which says so itself if it cannot be read; None if there is none."""
    if item.value is None:
        return None
    _, group, id = _places(item.key)
    try:
        facts = read_letter(item.value) | _last(beside, item.fence) | {"group": group}
        return Letter(id=id, fence=item.fence, **facts)
    except ValueError as error:
        return _unreadable(item, not_ours(error))


def _last(beside: Entry, fence: int) -> dict[str, Any]:
    """The last failure, if there is one of this letter; that it cannot be read is no harm to the letter."""
    if not _belongs(beside, fence):
        return {}
    try:
        return read_failure(beside.value or b"")
    except ValueError as error:
        return {"last_error": f"unreadable: {not_ours(error)}"}


def _unreadable(item: Entry, why: str) -> Letter:
    """A letter of which no more is known than where it is, and by its fence about since when."""
    _, group, id = _places(item.key)
    at, said = _moment(item.fence), f"unreadable: {why}"
    return Letter(
        id, group, item.value, key="", attempts=0, first_error=said, last_error=said, first_at=at, last_at=at,
        origin="", mark=0, fence=item.fence, unreadable=why,
    )  # fmt: skip


def _places(key: str) -> tuple[str, str, str]:
    kind, queue, id = key.split("/", 2)
    return kind, unquote(queue).removeprefix(queue_of("")), id


def _moment(fence: int) -> datetime:
    """When about this fence was given: it is the wall clock in µs, or later."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=min(fence, _LAST_MOMENT))


def as_pushed(op: Push) -> Letter:
    """The letter that the op parks."""
    key = item_key(op.queue, op.id)
    known = found(Entry(key, State.FREE, value=op.payload), Entry(key, State.FREE))
    assert known is not None, "it has a payload"
    return known


def entries(replies: list[object]) -> list[Entry]:
    """The replies to a batch of Reads; raises the first error among them."""
    return replies_or_raise(replies)


def _belongs(beside: Entry, fence: int) -> bool:
    """True if this is the last failure of this very letter, and not of one that had its id before."""
    return beside.value is not None and beside.value.startswith(b"%020d " % fence)


def failed_again(letter: Letter, error: BaseException | str, at: datetime, attempts: int, mark: int) -> Advance:
    """The op that keeps one more failure. Of two at the same instant one may go uncounted; no payload is ever lost."""
    total = letter.attempts + attempts
    facts = {"attempts": total, "last_error": error_text(error), "last_at": at.isoformat(), "mark": mark}
    text = b"%020d %010d " % (letter.fence, total) + _text(facts)
    return Advance(_beside(item_key(queue_of(letter.group), letter.id)), text)


# -- flows


def push(group: str, payload: Any, *, key: str, attempts: int, **facts: Any) -> Flow[Letter]:
    """The letter as it now is: a new one, or the one of this id, which failed again. What it first said is kept."""
    op = letter(group, payload, key=key, attempts=attempts, **facts)  # InvalidInput before anything is asked
    mark = yield from _mark_of(key)
    op = letter(group, payload, key=key, attempts=attempts, mark=mark, **facts) if mark else op
    new: bool = yield op
    item, beside = entries((yield looks(group, [op.id])))
    known = found(item, beside)
    if known is None:  # run again or purged in this very moment
        return as_pushed(op)
    if new or item.value == op.payload:  # a try whose answer was lost had put it in
        return known
    yield failed_again(known, facts["error"], facts["at"], attempts, mark)
    return (yield from inspect(group, op.id)) or known


def _mark_of(key: str) -> Flow[int]:
    if not key:
        return 0
    entry: Entry = yield Read(stored_key("mark", key))
    return entry.fence if entry.state is State.DONE else 0


def inspect(group: str, id: str) -> Flow[Letter | None]:
    """The letter of this id; None if there is none."""
    item, beside = entries((yield looks(group, [id])))
    return found(item, beside)


def each(group: str, visit: Where, after: str = "") -> Flow[None]:
    """Shows every letter of the group with an id greater than `after` to `visit`, in the order of ids, while it
    answers True."""
    prefix = item_key(queue_of(group), "")
    last = prefix + after
    while True:
        items: list[Entry] = yield Scan(prefix, last, _PAGE)
        if not items:
            return
        besides = entries((yield [Read(_beside(item.key)) for item in items]))
        for item, beside in zip(items, besides, strict=True):
            known = found(item, beside)
            if known is not None and not visit(known):
                return
        last = items[-1].key


def remove(letters: Sequence[Letter], reason: str) -> Flow[int]:
    """Removes these letters, and none that came after them under their ids; how many of them were there."""
    keys = {item_key(queue_of(known.group), known.id): known.fence for known in letters}
    clears = [Clear(key, fence, reason) for key, fence in keys.items()]
    try:
        removed: list[bool] = replies_or_raise((yield clears))
        besides = entries((yield [Read(_beside(key)) for key in keys]))
        stale = [beside for beside, fence in zip(besides, keys.values(), strict=True) if _belongs(beside, fence)]
        if stale:
            replies_or_raise((yield [Clear(beside.key, beside.fence, reason) for beside in stale]))
    except Interrupted:
        yield clears
        raise
    return removed.count(True)
