"""The kinds of keys: one table of the ops that each kind allows, and of the bytes that may be written under it.

A stored key is `kind/name`. Every store checks each batch against this table before it performs any of it, and so does
the service for clients that send raw ops: an op of another kind could end, forge or block what others hold, and
unreadable bytes would break every reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import formats, values
from .errors import InvalidInput
from .ops import (
    OPS,
    Ack,
    Acquire,
    Advance,
    Amend,
    Clear,
    Count,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Resume,
    Return,
    Take,
    Unhit,
)
from .rules import MAX_KEPT

Reader = Callable[[bytes], object]  # raises ValueError for bytes that must not be written


class Kind(NamedTuple):
    """The ops of a kind of key or queue, the reader of its bytes (None: any bytes), and a description of them."""

    ops: tuple[type, ...]
    read: Reader | None = None
    form: str = "bytes"


_LEASE = (Acquire, Renew, Release)
_TOKEN = (*_LEASE, Resume)  # of which a holder may hand over the token
_BASE = (Read, Clear)  # for every kind of entry: it can be read and, by an admin, removed
_WORK = (Push, Take, Ack, Return)
_COUNT = (Hit, Unhit)  # hits are not entries: a store counts them, and returns the count only to a Hit
_NOTHING = "nothing (no bytes)"
_RUN = "17 digits, a space, JSON of a schedule's last run"

KINDS: dict[str, Kind] = {
    "lock": Kind((*_TOKEN, *_BASE)),
    "mark": Kind((Mark, Release, *_BASE)),
    "claim": Kind((*_TOKEN, Finish, *_BASE), values.check, "b and bytes, j and JSON, t and text, or f and a failure"),
    "reservation": Kind((*_TOKEN, Finish, *_BASE), formats.read_nothing, _NOTHING),
    "sent": Kind((Acquire, Finish, *_BASE), formats.read_sent, 'JSON of {"sent": int, "last": ISO 8601, "fence": int}'),
    "limit": Kind(_COUNT),
    "limited": Kind((*_LEASE, *_BASE)),  # held while a limit refuses calls: a note for people
    "hits": Kind(_COUNT),  # of a reservation's own limit
    "group": Kind(_COUNT),  # of a limit that several reservations share
    "failures": Kind(_COUNT),  # of what a breaker guards
    "breaker": Kind((Advance, *_BASE), formats.read_breaker, "12 digits, a dot, 4 digits"),
    "trial": Kind((*_LEASE, Finish, *_BASE), formats.read_nothing, _NOTHING),  # of a breaker that is open
    "watermark": Kind((Advance, *_BASE), formats.read_watermark, "i and 20 digits, or t and a time in UTC"),
    "fence": Kind((Advance, *_BASE), formats.read_fence, "19 digits"),
    "tick": Kind((*_LEASE, Finish, *_BASE), formats.read_run, _RUN),  # of a schedule: held while it runs
    "schedule": Kind((Advance, *_BASE), formats.read_run, _RUN),
    "item": Kind((Renew, Resume, *_BASE)),  # of a queue: its other ops are in QUEUES
    "line": Kind((Release, *_BASE)),  # of clients that wait for an item of a queue: a Take joins it
    "letter": Kind((Advance, *_BASE), formats.read_failure, "fence, attempts and JSON of a letter's last failure"),
    "replay": Kind((*_LEASE, *_BASE)),  # held while a letter without a key is replayed
    "rerun": Kind((Advance, *_BASE), formats.read_note, "10 digits, a space, a JSON object"),
    "hint": Kind((Acquire, Release, *_BASE)),  # prepares a store to send hints
}

OF_THE_SERVICE = frozenset(("rerun",))  # kinds that only the service itself may write

# The part of a queue's name before the colon selects its kind; any other queue is plain and keeps any bytes.
QUEUES: dict[str, Kind] = {
    "queue": Kind((*_WORK, Amend, Count), formats.read_item, "an owner, then b and bytes, or j and JSON"),
    "dead": Kind((Push, Count), formats.read_letter, "JSON of a dead letter of this group"),
    "audit": Kind((Push, Amend, Count), formats.read_record, "JSON of a record"),
}
_UNKNOWN = Kind(_BASE)  # an earlier version may have written it: it can be read and removed
_PLAIN_QUEUE = Kind((*_WORK, Amend, Count))
_QUEUE_OPS = frozenset(_PLAIN_QUEUE.ops)
# Ops that write bytes, and the field.
_WRITING: dict[type, str] = {Finish: "value", Advance: "value", Push: "payload", Amend: "value"}


def allowed(op: type, kind: str) -> bool:
    """True if keys of this kind allow this op."""
    return op in KINDS.get(kind, _UNKNOWN).ops


# By op, the kinds that need no further check: they allow the op, and it writes no bytes.
_NO_CHECK = {op: frozenset(kind for kind in KINDS if allowed(op, kind) and op not in _WRITING) for op in OPS}


def check_ops(ops: Sequence[Op]) -> None:
    """Checks that the kind of each key allows the op, and that the bytes to be written are readable.

    Raises InvalidInput for the first op that fails. Stores call it with a whole batch before they perform any of it.
    """
    for op in ops:
        if op[0].partition("/")[0] not in _NO_CHECK[type(op)]:
            _check(op)


def _check(op: Any) -> None:
    name, kind = type(op), kind_of(op[0])
    if name in _QUEUE_OPS:
        where, known = f"queue {op.queue!r:.80}", _queue(op.queue)
    else:
        where, known = f"key {op.key!r:.80}", KINDS.get(kind, _UNKNOWN)
    if name not in known.ops:
        takes = f"which takes {', '.join(map(_word, known.ops))}"
        if known is _UNKNOWN:
            takes = f"since there is no kind {kind!r:.40}; it is for {', '.join(_kinds(name))}"
        raise InvalidInput(f"the op {_word(name)} is not allowed for the {where}, {takes}", key=op[0])
    if name in _WRITING:
        why = _unreadable(op, known, getattr(op, _WRITING[name]))
        if why:
            raise InvalidInput(f"the op {_word(name)} writes what the {where} cannot keep: {why}", key=op[0])


def _unreadable(op: Any, known: Kind, given: bytes | None) -> str:
    """Why these bytes must not be written, or ""; None removes what is there."""
    if given is None:
        return ""
    if len(given) > MAX_KEPT:
        return f"{len(given)} bytes; the maximum is {MAX_KEPT}"
    if known.read is None:
        return ""
    try:
        found: Any = known.read(given)
        if known is QUEUES["dead"] and op.queue != f"dead:{found['group']}":
            raise ValueError(f"its group is {found['group']!r:.80}")
    except ValueError as error:
        return f"{error}; it keeps {known.form}"
    return ""


def kind_of(key: str) -> str:
    """The part of a stored key before the first slash."""
    return key.partition("/")[0]


def _queue(name: str) -> Kind:
    family, colon, _ = name.partition(":")
    known = QUEUES.get(family)
    return known if known is not None and bool(colon) is (family != "audit") else _PLAIN_QUEUE


def _kinds(op: type) -> list[str]:
    return [kind for kind, known in KINDS.items() if op in known.ops]


def _word(op: type) -> str:
    return op.__name__.lower()
