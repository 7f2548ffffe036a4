"""The kinds of keys: which ops are meant for each, and how the bytes that may be written under it look. One table.

A stored key is `kind/name`. Every store checks each batch by it before anything is performed, and so does the service
for those who send ops: an op that is not meant for a kind would end, forge or shut what others hold there, and bytes
that cannot be read would break all who look at them.
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
    Clear,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Return,
    Take,
    Unhit,
)
from .rules import MAX_KEPT

Reader = Callable[[bytes], object]  # raises ValueError for bytes that may not be written


class Kind(NamedTuple):
    """The ops of a kind of key, or of queue; how its bytes are read (None: it keeps any), and how they look."""

    ops: tuple[type, ...]
    read: Reader | None = None
    form: str = "bytes"


_LEASE = (Acquire, Renew, Release)
_LOOK = (Read, Clear)  # whatever an entry is, it can be looked at and, by an admin, removed
_COUNT = (Hit, Unhit)  # hits are no entry: a store counts them, and answers only those who hit
_NOTHING = "nothing (no bytes)"

KINDS: dict[str, Kind] = {
    "lock": Kind((*_LEASE, *_LOOK)),
    "mark": Kind((Mark, Release, *_LOOK)),
    "claim": Kind((*_LEASE, Finish, *_LOOK), values.check, "b and bytes, j and JSON, t and text, or f and a failure"),
    "reservation": Kind((*_LEASE, Finish, *_LOOK), formats.read_nothing, _NOTHING),
    "sent": Kind((Acquire, Finish, *_LOOK), formats.read_sent, 'JSON of {"sent": int, "last": ISO 8601, "fence": int}'),
    "limit": Kind(_COUNT),
    "hits": Kind(_COUNT),  # of a reservation's own limit
    "group": Kind(_COUNT),  # of a limit that several reservations share
    "failures": Kind(_COUNT),  # of what a breaker guards
    "breaker": Kind((Advance, *_LOOK), formats.read_standing, "12 digits, a dot, 4 digits"),
    "trial": Kind((*_LEASE, Finish, *_LOOK), formats.read_nothing, _NOTHING),  # of a breaker that is open
    "watermark": Kind((Advance, *_LOOK), formats.read_watermark, "i and 20 digits, or t and a time in UTC"),
    "fence": Kind((Advance, *_LOOK), formats.read_fence, "19 digits"),
    "item": Kind(_LOOK),  # of a queue: what may be done with it, QUEUES says
    "letter": Kind((Advance, *_LOOK), formats.read_failure, "fence, attempts and JSON of a letter's last failure"),
    "replay": Kind((*_LEASE, *_LOOK)),  # who runs a letter again that has no key
    "rerun": Kind((Advance, *_LOOK), formats.read_note, "10 digits, a space, a JSON object"),
    "hint": Kind((Acquire, Release, *_LOOK)),  # makes a store ready to hint
}

OF_THE_SERVICE = frozenset(("rerun",))  # kinds that a service writes for itself, and lets nobody else write

# Queues are told apart by what stands before the colon of their name; one of another name is plain: it keeps any bytes.
QUEUES: dict[str, Kind] = {
    "queue": Kind((Push, Take, Ack, Return), formats.read_item, "an owner, then b and bytes, or j and JSON"),
    "dead": Kind((Push,), formats.read_letter, "JSON of a dead letter of this group"),
    "audit": Kind((Push,), formats.read_record, "JSON of a record"),
}
_UNKNOWN = Kind(_LOOK)  # a version before may have let it in: it can be looked at and removed
_PLAIN_QUEUE = Kind((Push, Take, Ack, Return))
_QUEUE_OPS = frozenset(_PLAIN_QUEUE.ops)
_WRITING: dict[type, str] = {Finish: "value", Advance: "value", Push: "payload"}  # the field with bytes


def allowed(op: type, kind: str) -> bool:
    """True if such an op is meant for keys of this kind."""
    return op in KINDS.get(kind, _UNKNOWN).ops


# What needs no further look, by op: the kinds for which it is meant, and under which it writes no bytes.
_AT_ONCE = {op: frozenset(kind for kind in KINDS if allowed(op, kind) and op not in _WRITING) for op in OPS}


def check_ops(ops: Sequence[Op]) -> None:
    """Returns if each op is meant for the kind of its key, and the bytes that it writes can be read there; else raises
    InvalidInput, which names the first that is not. To be called with a whole batch, before any of it is performed."""
    for op in ops:
        if op[0].partition("/")[0] not in _AT_ONCE[type(op)]:
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
        raise InvalidInput(f"the op {_word(name)} is not for the {where}, {takes}", key=op[0])
    if name in _WRITING:
        why = _unreadable(op, known, getattr(op, _WRITING[name]))
        if why:
            raise InvalidInput(f"the op {_word(name)} writes what the {where} cannot keep: {why}", key=op[0])


def _unreadable(op: Any, known: Kind, given: bytes) -> str:
    """Why these bytes may not be written, or ""."""
    if len(given) > MAX_KEPT:
        return f"{len(given)} bytes; the most is {MAX_KEPT}"
    if known.read is None:
        return ""
    try:
        found: Any = known.read(given)
        if known is QUEUES["dead"] and op.queue != f"dead:{found['group']}":
            raise ValueError(f"it says that it is of the group {found['group']!r:.80}")
    except ValueError as error:
        return f"{error}; it keeps {known.form}"
    return ""


def kind_of(key: str) -> str:
    """What stands before the first slash of a stored key."""
    return key.partition("/")[0]


def _queue(name: str) -> Kind:
    family, colon, _ = name.partition(":")
    known = QUEUES.get(family)
    return known if known is not None and bool(colon) is (family != "audit") else _PLAIN_QUEUE


def _kinds(op: type) -> list[str]:
    return [kind for kind, known in KINDS.items() if op in known.ops]


def _word(op: type) -> str:
    return op.__name__.lower()
