"""Decisions of dead letters: failed work is parked, with its payload and errors, until it is replayed or purged.

A letter is a queue item that never changes: its payload and its first failure. Later failures are in a second record
(`letter/…`), a value that only grows: the fence of the item, the count of attempts, then the last failure.
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

MAX_ERROR_CHARS = 2_000  # the message and the last frames of most tracebacks: people read it
_PAGE = 50  # letters per scan: at 256 KiB each, 13 MiB in memory at worst

_LAST_MOMENT = 253_370_764_800_000_000  # µs: in the year 9999, the last that datetime can represent

Where = Callable[["Letter"], bool]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the failed work, its attempts, its first and its last error. `key` is the dedup key of the work.

    `fence` is that of its item: a later letter under the same id has a greater one. If the letter is unreadable,
    `unreadable` and its errors are the reason, and its payload is the stored bytes.
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
    mark: int  # the fence of the mark at the last failure: that mark means that the work was begun, not done
    fence: int = 0
    unreadable: str = ""


def queue_of(group: str) -> str:
    """The stored name of the queue of this group's letters."""
    return f"dead:{group}"


def error_text(error: BaseException | str) -> str:
    """The error as text of bounded length."""
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
    """The op that parks the payload; raises InvalidInput if it is neither JSON-serializable nor bytes, or too large.

    The id is the dedup key, or else a digest of the payload: work that fails again is the same letter.
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


# -- stored form


def reads(group: str, ids: Sequence[str]) -> list[Read]:
    """The reads for each letter: its item, and its last failure."""
    keys = [item_key(queue_of(group), id) for id in ids]
    return [Read(key) for item in keys for key in (item, _failure_key(item))]


def _failure_key(item: str) -> str:
    return "letter/" + item.partition("/")[2]


def letter_of(item: Entry, failure: Entry) -> Letter | None:
    """The letter, also if it is unreadable; None if there is none."""
    if item.value is None:
        return None
    _, group, id = _places(item.key)
    try:
        facts = read_letter(item.value) | _last(failure, item.fence) | {"group": group}
        return Letter(id=id, fence=item.fence, **facts)
    except ValueError as error:
        return _unreadable(item, not_ours(error))


def _last(failure: Entry, fence: int) -> dict[str, Any]:
    """The last failure of this letter, if there is one; an unreadable one leaves the rest of the letter intact."""
    if not _belongs(failure, fence):
        return {}
    try:
        return read_failure(failure.value or b"")
    except ValueError as error:
        return {"last_error": f"unreadable: {not_ours(error)}"}


def _unreadable(item: Entry, why: str) -> Letter:
    """An unreadable letter: only its place is known, and from its fence about when it was pushed."""
    _, group, id = _places(item.key)
    at, text = _moment(item.fence), f"unreadable: {why}"
    return Letter(
        id, group, item.value, key="", attempts=0, first_error=text, last_error=text, first_at=at, last_at=at,
        origin="", mark=0, fence=item.fence, unreadable=why,
    )  # fmt: skip


def _places(key: str) -> tuple[str, str, str]:
    kind, queue, id = key.split("/", 2)
    return kind, unquote(queue).removeprefix(queue_of("")), id


def _moment(fence: int) -> datetime:
    """About when this fence was issued: it is the wall clock in µs, or later."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=min(fence, _LAST_MOMENT))


def as_pushed(op: Push) -> Letter:
    """The letter that the op parks."""
    key = item_key(op.queue, op.id)
    known = letter_of(Entry(key, State.FREE, value=op.payload), Entry(key, State.FREE))
    assert known is not None, "it has a payload"
    return known


def entries(replies: list[object]) -> list[Entry]:
    """The replies to a batch of Reads; raises the first error among them."""
    return replies_or_raise(replies)


def _belongs(failure: Entry, fence: int) -> bool:
    """True if this is the last failure of this letter, and not of an earlier one with its id."""
    return failure.value is not None and failure.value.startswith(b"%020d " % fence)


def failed_again(letter: Letter, error: BaseException | str, at: datetime, attempts: int, mark: int) -> Advance:
    """The op that adds a failure. Of two at the same instant one may not be counted; no payload is ever lost."""
    total = letter.attempts + attempts
    facts = {"attempts": total, "last_error": error_text(error), "last_at": at.isoformat(), "mark": mark}
    text = b"%020d %010d " % (letter.fence, total) + _text(facts)
    return Advance(_failure_key(item_key(queue_of(letter.group), letter.id)), text)


# -- flows


def push(group: str, payload: Any, *, key: str, attempts: int, **facts: Any) -> Flow[Letter]:
    """The letter: a new one, or the existing one of this id with one more failure; that keeps its first error."""
    op = letter(group, payload, key=key, attempts=attempts, **facts)  # raises InvalidInput before anything is sent
    mark = yield from _mark_of(key)
    op = letter(group, payload, key=key, attempts=attempts, mark=mark, **facts) if mark else op
    new: bool = yield op
    item, failure = entries((yield reads(group, [op.id])))
    known = letter_of(item, failure)
    if known is None:  # replayed or purged at this very moment
        return as_pushed(op)
    if new or item.value == op.payload:  # an unanswered try pushed it
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
    item, failure = entries((yield reads(group, [id])))
    return letter_of(item, failure)


def each(group: str, visit: Where, after: str = "") -> Flow[None]:
    """Calls `visit` for each letter with an id greater than `after`, in id order, while that returns True."""
    prefix = item_key(queue_of(group), "")
    last = prefix + after
    while True:
        items: list[Entry] = yield Scan(prefix, last, _PAGE)
        if not items:
            return
        failures = entries((yield [Read(_failure_key(item.key)) for item in items]))
        for item, failure in zip(items, failures, strict=True):
            known = letter_of(item, failure)
            if known is not None and not visit(known):
                return
        last = items[-1].key


def remove(letters: Sequence[Letter], reason: str) -> Flow[int]:
    """Removes these letters, and no later ones with their ids; returns how many it removed."""
    keys = {item_key(queue_of(known.group), known.id): known.fence for known in letters}
    clears = [Clear(key, fence, reason) for key, fence in keys.items()]
    try:
        removed: list[bool] = replies_or_raise((yield clears))
        failures = entries((yield [Read(_failure_key(key)) for key in keys]))
        stale = [failure for failure, fence in zip(failures, keys.values(), strict=True) if _belongs(failure, fence)]
        if stale:
            replies_or_raise((yield [Clear(failure.key, failure.fence, reason) for failure in stale]))
    except Interrupted:
        yield clears
        raise
    return removed.count(True)
