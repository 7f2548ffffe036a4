"""Answers of the script to replies: pure, the same for threads and asyncio. perform.lua describes the wire format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from hiredis import ReplyError

from ...errors import StoreError, StoreFailed
from ...model import ABSENT, CLOSED, DONE, FREE, HELD, LOST, RELEASED, Allowance, Entry, LeasedItem, NoItem, Released
from ...ops import (
    Ack,
    Acquire,
    Advance,
    Amend,
    Clear,
    Count,
    Finish,
    Hit,
    Mark,
    Push,
    Read,
    Release,
    Renew,
    Resume,
    Return,
    Take,
    Unhit,
    make,
)
from .. import Answers
from ..batches import run_of_marks
from ..transitions import us
from .codec import in_run
from .faults import fault
from .index import Complete, Enlist, IndexPage, ListPage, RedisOp

_STATES = {b"f": FREE, b"h": HELD, b"d": DONE, b"c": CLOSED}
# By number: see entries.lua.
_RELEASED = (Released.UNKNOWN, RELEASED, Released.EXPIRED, Released.CLEARED, ABSENT, LOST, Released.RESUMED)
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)  # what comes of decoding what is not ours
_FIRST = {48: False, 49: True}
_HEAD = Struct(">ddd")  # of a plain record: fence, until when, refused


def lacks_script(raw: Any) -> bool:
    """True if nothing was performed because the server does not know the script yet (or no longer)."""
    return type(raw) is ReplyError and str(raw).startswith("NOSCRIPT")


def _entry(key: str, owner: str, raw: Any) -> Entry:
    state, fence, left, mine, attempts, refused, waiters, fingerprint, info, value, gone = raw
    seconds = left / 1_000_000 if left >= 0 else float("inf")
    return Entry(
        key, _STATES[state], fence, seconds, owner if mine else "", attempts, refused, waiters,
        fingerprint.decode(), info.decode(), value, gone.decode(),
    )  # fmt: skip


def _acquired(op: Acquire, raw: Any) -> Entry:
    if type(raw) is int:
        # Half the time of Entry(…), in the commonest answer of all.
        return make(Entry, (op[0], HELD, raw, float(op[2]), op[1], 1, 0, 0, op[6], op[3], None, ""))
    if len(raw) != 5:
        return _entry(op.key, op.owner, raw)
    done, fence, left, refused, rest = raw
    print, info, *value = rest.split(b"\0", 2)
    state, kept = (DONE, value[0] if value else None) if done else (HELD, None)
    fields = (op[0], state, fence, left / 1_000_000, "", 1, refused, 0, print.decode(), info.decode(), kept, "")
    return make(Entry, fields)


def _finished(op: Finish, raw: Any) -> Entry:
    if len(raw) != 3:
        return _entry(op.key, op.owner, raw)
    fence, refused, rest = raw
    print, _, info = rest.partition(b"\0")
    key, owner, value, keep = op
    fields = (key, DONE, fence, us(keep) / 1_000_000, owner, 1, refused, 0, print.decode(), info.decode(), value, "")
    return make(Entry, fields)


def _item(op: Take, raw: Any) -> LeasedItem | NoItem | None:
    if raw is None:
        return None
    if len(raw) == 1:
        return NoItem(raw[0] / 1_000_000 if raw[0] >= 0 else float("inf"))
    id, payload, attempts, left, fence = raw
    return LeasedItem(id.decode(), payload, attempts, left / 1_000_000, fence)


def _page(op: ListPage, raw: Any) -> IndexPage | None:
    if raw == 0:
        return None
    now, last, *shown = raw
    stem = op.kind + "/"
    entries = [
        _plain(stem + name.decode(), seen, now) if type(seen) is bytes else _entry(stem + name.decode(), "", seen)
        for name, seen in zip(shown[::2], shown[1::2], strict=True)
    ]
    return IndexPage(entries, stem + last.decode() if last is not None else "")


def _plain(key: str, record: bytes, now: int) -> Entry:
    """A record of the form 'c' or 'd', which records.lua describes."""
    fence, ends, refused = _HEAD.unpack_from(record, 1)
    _, print, info, *value = record[1 + _HEAD.size :].split(b"\0", 3)
    state, kept = (DONE, value[0]) if record[:1] == b"d" else (HELD, None)
    return Entry(
        key, state, int(fence), (ends - now) / 1_000_000, "", 1, int(refused), 0, print.decode(), info.decode(), kept,
    )  # fmt: skip


def _yes(op: RedisOp, raw: Any) -> bool:
    return bool(raw == 1)


DECODE: dict[type, Callable[[Any, Any], Any]] = {
    Acquire: _acquired,
    Release: lambda op, raw: _RELEASED[raw],
    Mark: _yes,
    Renew: lambda op, raw: _entry(op.key, op.owner, raw),
    Resume: lambda op, raw: _entry(op.key, op.successor, raw),
    Finish: _finished,
    Read: lambda op, raw: _entry(op.key, "", raw),
    Clear: _yes,
    Advance: lambda op, raw: _entry(op.key, "", raw),
    Hit: lambda op, raw: Allowance(raw[0] == 1, raw[1], raw[2] / 1_000_000),
    Unhit: _yes,
    Push: _yes,
    Take: _item,
    Ack: _yes,
    Return: _yes,
    Amend: _yes,
    Count: lambda op, raw: int(raw),
    ListPage: _page,
    Enlist: _yes,
    Complete: _yes,
}


def decode(ops: Sequence[RedisOp], raw: Any, failures: list[StoreError]) -> Answers:
    """One reply per op, an error in the place of what failed; the errors are added to `failures` as well."""
    if isinstance(raw, ReplyError):
        failures += (errors := [fault(raw, getattr(op, "key", "")) for op in ops])
        return list(errors)
    if len(ops) == 1 and not in_run(ops[0]) and type(raw[0]) is not ReplyError:
        try:
            return [DECODE[type(ops[0])](ops[0], raw[0])]
        except UNREADABLE:
            pass  # decoded, or reported, below
    answers: Answers = []
    for part in raw:  # one per op, but one per run of Marks
        op = ops[len(answers)]
        if in_run(op):
            _add_marks(ops, part, answers, failures)
        elif type(part) is ReplyError:
            failures.append(error := fault(part, getattr(op, "key", "")))
            answers.append(error)
        else:
            try:
                answers.append(DECODE[type(op)](op, part))
            except UNREADABLE as why:
                failures.append(error := _not_ours(getattr(op, "key", ""), why))
                answers.append(error)
    return answers


def _not_ours(key: str, why: Exception) -> StoreError:
    return StoreFailed(f"{key or 'a key of ours'} holds something else; give another ?namespace= ({why})", key=key)


def _add_marks(ops: Sequence[RedisOp], part: Any, answers: Answers, failures: list[StoreError]) -> None:
    """The answers to one run of Marks: in one string, or one by one if some failed, or in one error."""
    if type(part) is bytes:
        answers += [_FIRST[digit] for digit in part]
        return
    start = len(answers)
    marks = ops[start : run_of_marks(ops, start)]
    for mark, each in zip(marks, part if isinstance(part, list) else [part] * len(marks), strict=True):
        if isinstance(each, ReplyError):
            failures.append(error := fault(each, mark.key))  # type: ignore[union-attr]
            answers.append(error)
        else:
            answers.append(each == 1)
