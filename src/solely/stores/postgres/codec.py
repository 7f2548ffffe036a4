"""Ops to statements and rows to replies: pure, the same for threads, asyncio and a caller's own transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from struct import Struct, unpack_from
from typing import Any
from urllib.parse import quote

from ...errors import StoreFailed
from ...model import (
    ABSENT,
    CLOSED,
    DONE,
    FREE,
    HELD,
    LOST,
    RELEASED,
    Allowance,
    Entry,
    LeasedItem,
    NoItem,
    Released,
    item_key,
)
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
    Op,
    Push,
    Read,
    Release,
    Renew,
    Reply,
    Resume,
    Return,
    Take,
    Unhit,
    make,
)
from ..batches import Exchange, key_of
from ..transitions import us

Values = tuple[Any, ...]
ReplyRow = tuple[Any, ...]  # the fields of the type `reply` in 0001_schema.sql
Packed = tuple[list[bytes | None], list[int] | None]

_STATES = {"f": FREE, "h": HELD, "d": DONE, "c": CLOSED}
_BUSY: ReplyRow = ("b",)
_ZERO, _B, _BRACE = b"0b{"
# By number: see 0001_schema.sql.
_RELEASED = (Released.UNKNOWN, RELEASED, Released.EXPIRED, Released.CLEARED, ABSENT, LOST, Released.RESUMED)


def _queue(op: Take | Count) -> str:
    return quote(op.queue, safe="")


# Op → (the statement that performs it alone, its values after clock and patience).
_LONE: dict[type, tuple[str, Callable[[Any], Values]]] = {
    Acquire: ("acquire", lambda op: (
        op.key, op.owner, us(op.ttl), op.info, op.client, us(op.delay), op.fingerprint, op.counted, op.value,
    )),
    Release: ("release", lambda op: (op.key, op.owner, op.revoke, us(op.delay), us(op.keep), op.fence)),
    Mark: ("mark", lambda op: (op.key, op.owner, us(op.ttl))),
    Renew: ("renew", lambda op: (op.key, op.owner, us(op.ttl))),
    Resume: ("resume", lambda op: (op.key, op.owner, op.successor, us(op.ttl), op.info)),
    Read: ("read", lambda op: (op.key,)),
    Finish: ("finish", lambda op: (op.key, op.owner, op.value, us(op.keep))),
    Clear: ("clear", lambda op: (op.key, op.fence)),
    Advance: ("advance", lambda op: (op.key, op.value)),
    Hit: ("hit", lambda op: (op.key, op.owner, op.limit, us(op.per))),
    Unhit: ("unhit", lambda op: (op.key, op.owner)),
    Push: ("push", lambda op: (item_key(op.queue, op.id), op.payload, us(op.delay))),
    Take: ("take", lambda op: (_queue(op), op.owner, us(op.ttl), op.id)),
    Ack: ("ack", lambda op: (item_key(op.queue, op.id), op.owner, op.fence)),
    Return: ("give_back", lambda op: (item_key(op.queue, op.id), op.owner, us(op.delay), op.uncounted)),
    Amend: ("amend", lambda op: (item_key(op.queue, op.id), op.value, op.expected)),
    Count: ("count", lambda op: (_queue(op),)),
}  # fmt: skip

_NOTHING = (None, None, None, None)

# Op → one element of each array of `perform`: code, key, owner, span, delay, number, text, client, fingerprint, body.
_BATCH: dict[type, Callable[[Any], Values]] = {
    Acquire: lambda op: (
        "a", op.key, op.owner, us(op.ttl), us(op.delay) or None, op.counted + 2 * op.value or None,
        op.info or None, op.client or None, op.fingerprint or None, None,
    ),
    Release: lambda op: (
        "l", op.key, op.owner, us(op.keep) or None, us(op.delay) or None, op.fence or None,
        "revoke" if op.revoke else None, None, None, None,
    ),
    Mark: lambda op: ("m", op.key, op.owner, us(op.ttl), None, 1 if op.extend else None, *_NOTHING),
    Renew: lambda op: ("n", op.key, op.owner, us(op.ttl), None, None, *_NOTHING),
    Resume: lambda op: (
        "r", op.key, op.owner, us(op.ttl), None, None, op.info or None, op.successor, None, None,
    ),
    Read: lambda op: ("g", op.key, None, None, None, None, *_NOTHING),
    Finish: lambda op: ("f", op.key, op.owner, us(op.keep), None, None, None, None, None, op.value),
    Clear: lambda op: ("c", op.key, None, None, None, op.fence, *_NOTHING),
    Advance: lambda op: ("v", op.key, None, None, None, None, None, None, None, op.value),
    Hit: lambda op: ("h", op.key, op.owner, us(op.per), None, op.limit, *_NOTHING),
    Unhit: lambda op: ("u", op.key, op.owner, None, None, None, *_NOTHING),
    Push: lambda op: (
        "p", item_key(op.queue, op.id), None, None, us(op.delay) or None, None, None, None, None, op.payload,
    ),
    Take: lambda op: ("t", _queue(op), op.owner, us(op.ttl), None, None, op.id or None, op.client or None, None, None),
    Ack: lambda op: ("k", item_key(op.queue, op.id), op.owner, None, None, op.fence or None, *_NOTHING),
    Return: lambda op: (
        "b", item_key(op.queue, op.id), op.owner, None, us(op.delay) or None, 1 if op.uncounted else None, *_NOTHING,
    ),
    Amend: lambda op: (  # both values in one body, and the length of the first; without it: none
        "e", item_key(op.queue, op.id), None, None, None, None if op.value is None else len(op.value),
        None, None, None, (op.value or b"") + op.expected,
    ),
    Count: lambda op: ("o", _queue(op), None, None, None, None, *_NOTHING),
}  # fmt: skip


def lone(op: Op, clock: int | None, patience: int | None) -> tuple[str, Values]:
    """The statement that performs one op, and its values."""
    if type(op) is Acquire:
        key, owner, ttl, info, client, delay, fingerprint, counted, value = op
        if not (delay or fingerprint or counted or value):
            return "acquire_plain", (clock, patience, key, owner, us(ttl), info, client)
    name, values = _LONE[type(op)]
    if type(op) is Mark and op.extend:
        name = "mark_longer"
    elif type(op) is Take and op.client:
        return "take_or_wait", (clock, patience, *values(op), op.client)
    return name, (clock, patience, *values(op))


def alone(op: Op, clock: int | None, patience: int) -> tuple[str, Values]:
    """As `lone`, where the op is a transaction of its own."""
    if type(op) is Release and not (op.revoke or op.delay or op.keep):
        return "release_lightly", (clock, patience, op.key, op.owner, op.fence)
    return lone(op, clock, patience)


def batch(ops: Sequence[Op], clock: int | None) -> tuple[str, Values]:
    """The statement that performs many ops in order, and its values."""
    columns = zip(*(_BATCH[type(op)](op) for op in ops), strict=True)
    return "perform", (
        clock,
        *(list(column) if any(item is not None for item in column) else None for column in columns),
    )


def in_turn(ops: Sequence[Op], clock: int | None, patience: int | None) -> tuple[str, Values]:
    """As `batch`; with patience, it first waits for the key of the first op, so many ms, while it holds nothing."""
    name, (moment, *columns) = batch(ops, clock)
    if patience is None:
        return name, (moment, *columns)
    return "perform_in_turn", (moment, lock_name(ops[0]), patience, *columns)


def lock_name(op: Op) -> str:
    """What the op locks, and so may have to wait for."""
    return f"take/{_queue(op)}/{op.owner}" if type(op) is Take else key_of(op)


def exchanging(exchange: Exchange, clock: int | None) -> tuple[str, Values]:
    """The statement that performs an exchange, and its values."""
    old, new = exchange
    if len(old) == 1 and old.keys() == new.keys():
        (release,), (acquire,) = old.values(), new.values()
        key, owner, ttl, info, client, *_ = acquire
        return "handover", (clock, key, release.owner, release.fence, owner, us(ttl), info, client)
    taken = [(owner, us(ttl), info, client) for _, owner, ttl, info, client, *_ in new.values()]
    freed = list(old), [op.owner for op in old.values()], [op.fence for op in old.values()]
    lists: tuple[list[Any], ...] = (*freed, list(new), *map(list, zip(*taken, strict=True)))
    return "exchange", (clock, *(each or None for each in lists), *(None,) * (8 - len(lists)))


def marks(ops: Sequence[Mark], clock: int | None) -> tuple[str, Values]:
    """The statement that marks many keys, and its values."""
    return "mark_many", (clock, [op.key for op in ops], ops[0].owner, us(ops[0].ttl))


# -- replies


def entry(key: str, asker: str, row: ReplyRow) -> Entry:
    """The entry that the row shows."""
    state, fence, remaining, mine, attempts, refused, waiters, fingerprint, info, value, gone = row
    left = (remaining or 0) / 1_000_000 if remaining != -1 else float("inf")
    return Entry(
        key, _STATES[state], fence or 0, left, asker if mine else "", attempts or 0, refused or 0, waiters or 0,
        fingerprint or "", info or "", value, gone or "",
    )  # fmt: skip


def _item(op: Take, row: ReplyRow) -> LeasedItem | NoItem | None:
    state, fence, remaining, _, attempts, _, _, _, id, payload, _ = row
    if state is None and op.client:
        return NoItem(float("inf") if remaining is None else remaining / 1_000_000)
    return None if state is None else LeasedItem(id, payload, attempts, remaining / 1_000_000, fence)


def _yes(op: Op, row: ReplyRow) -> bool:
    return bool(row[1] == 1)


def widened(op: Op, row: ReplyRow) -> ReplyRow:
    """The row of a lone op as a reply: a lone column is the fence of one, or a whole one as JSON."""
    if len(row) > 1:
        return row
    (answer,) = row
    if answer is None:
        return ("b",)
    if type(answer) is not str:
        return (None, answer)
    if answer[0] == "{":
        return tuple(json.loads(answer).values())
    return ("h", int(answer), us(op.ttl), True, 1, 0, 0, "", op.info, None, "")  # type: ignore[union-attr]


def handed_over(ops: Sequence[Op], result: Any) -> list[ReplyRow]:
    """The rows that answer a Release and an Acquire of one key: see `handover` in 0001_schema.sql."""
    raw = result.get_value(0, 0)
    if raw is None:
        return [_BUSY, _BUSY]
    how = json.loads(raw) if raw[0] == _BRACE else {"outcome": 1, "granted": raw.decode()}
    return [(None, how["outcome"]), widened(ops[1], (how["granted"],))]


def exchanged(ops: Sequence[Op], result: Any) -> list[ReplyRow]:
    """The rows that answer an exchange: see `exchange` in 0001_schema.sql."""
    outcomes, fences, others = (result.get_value(0, column) for column in range(3))
    released = iter(outcomes)
    granted = iter(_bigints(fences) if fences is not None else ())
    refused = iter(json.loads(others) if others is not None else ())
    rows: list[ReplyRow] = []
    for op in ops:
        if type(op) is Release:
            digit = next(released)
            rows.append(_BUSY if digit == _B else (None, digit - _ZERO))
        else:
            fence = next(granted)
            if fence > 0:
                rows.append(("h", fence, us(op.ttl), True, 1, 0, 0, "", op.info, None, ""))  # type: ignore[union-attr]
            else:
                rows.append(tuple(next(refused).values()) if fence == 0 else _BUSY)
    return rows


_REPLIES: dict[type, Callable[[Any, ReplyRow], Reply]] = {
    Acquire: lambda op, row: entry(op.key, op.owner, row),
    Release: lambda op, row: _RELEASED[row[1]],
    Renew: lambda op, row: entry(op.key, op.owner, row),
    Resume: lambda op, row: entry(op.key, op.successor, row),
    Finish: lambda op, row: entry(op.key, op.owner, row),
    Read: lambda op, row: entry(op.key, "", row),
    Advance: lambda op, row: entry(op.key, "", row),
    Hit: lambda op, row: Allowance(row[1] == 1, row[4], (row[2] or 0) / 1_000_000),
    Take: _item,
    Count: lambda op, row: row[1],
    **dict.fromkeys((Mark, Clear, Unhit, Push, Ack, Return, Amend), _yes),
}


def reply(op: Op, row: ReplyRow) -> Reply:
    """What the row answers to the op."""
    return _REPLIES[type(op)](op, row)


# -- the wire's binary form

_ARRAY = Struct("!iiIii").pack
_LENGTH = Struct("!i").pack
_BIGINT = Struct("!iq").pack
_NULL = _LENGTH(-1)
_HEADER, _ONE = 20, 12  # bytes of an array before its items, and of a bigint in it
_TEXT, _BIGINTS, _BYTEA = 25, 20, 17  # type oids

# The statements that take values in binary form.
_BINARY = frozenset(("finish", "advance", "push", "amend", "perform", "perform_in_turn", "exchange", "mark_many"))


def pack(name: str, values: Values) -> Packed:
    """The values as the wire takes them, and which of them are in binary form."""
    packed = [None if value is None else _ENCODE[type(value)](value) for value in values]
    return packed, [int(type(value) in (bytes, list)) for value in values] if name in _BINARY else None


# The commonest ops alone, packed and read in as few steps as there can be.


def quick(op: Op, patience: bytes) -> tuple[str, Packed] | None:
    """The statement that performs a plain Acquire or Release as a transaction of its own, and its packed values; None
    for any other op."""
    if type(op) is Acquire:
        key, owner, ttl, info, client, delay, fingerprint, counted, value = op
        if not (delay or fingerprint or counted or value):
            span = b"%d" % (int(ttl * 1_000_000 + 0.5) or 1)
            packed = [None, patience, key.encode(), owner.encode(), span, info.encode(), client.encode()]
            return "acquire_plain", (packed, None)
    elif type(op) is Release:
        key, owner, revoke, closing, keep, fence = op
        if not (revoke or closing or keep):
            return "release_lightly", ([None, patience, key.encode(), owner.encode(), b"%d" % fence], None)
    return None


def read_quickly(op: Op, result: Any) -> Reply | None:
    """What the result says to an op that `quick` packed, if it went as it mostly goes; else None."""
    raw = result.get_value(0, 0)
    if raw is None or raw[0] == _BRACE:
        return None
    if type(op) is not Acquire:
        return _RELEASED[raw[-1]]
    span = (int(op[2] * 1_000_000 + 0.5) or 1) / 1_000_000
    return make(Entry, (op[0], HELD, int(raw), span, op[1], 1, 0, 0, "", op[3], None, ""))


def not_encoded(error: ValueError) -> StoreFailed:
    """The error of an op with text that is no Unicode. Not raised."""
    return StoreFailed(f"an op cannot be encoded: {error}")


def _array(items: list[Any]) -> bytes:
    kind = next(type(item) for item in items if item is not None)
    parts = [_ARRAY(1, 1, _OIDS[kind], len(items), 1)]
    for item in items:
        if item is None:
            parts.append(_NULL)
        elif kind is int:
            parts.append(_BIGINT(8, item))
        else:
            body = item.encode() if kind is str else item
            parts += (_LENGTH(len(body)), body)
    return b"".join(parts)


_OIDS = {str: _TEXT, int: _BIGINTS, bytes: _BYTEA}
_ENCODE: dict[type, Callable[[Any], bytes]] = {
    str: str.encode,
    int: lambda number: b"%d" % number,
    bool: lambda flag: b"t" if flag else b"f",
    bytes: bytes,
    list: _array,
}


def _bigints(raw: bytes) -> tuple[int, ...]:
    """An array of bigints, none of them NULL."""
    count = (len(raw) - _HEADER) // _ONE
    return unpack_from("!" + "iq" * count, raw, _HEADER)[1::2]


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


_FIELDS: tuple[Callable[[bytes], Any], ...] = (
    bytes.decode, _number, _number, b"\1".__eq__, _number, _number, _number, bytes.decode, bytes.decode, bytes,
    bytes.decode,
)  # fmt: skip


def decode(result: Any, place: int, first: int = 0) -> ReplyRow:
    """A row of the type `reply` out of a result in binary form, from column `first` on."""
    get = result.get_value
    return tuple(
        [None if (raw := get(place, column)) is None else field(raw) for column, field in enumerate(_FIELDS, first)]
    )


def decode_lone(op: Op, result: Any) -> ReplyRow:
    """The row that answers a lone op, out of a result in binary form."""
    if result.nfields > 1:
        return decode(result, 0)
    raw = result.get_value(0, 0)
    if raw is None:
        return widened(op, (None,))
    return widened(op, (raw.decode(),)) if type(op) is Acquire else (None, _number(raw))


def page(result: Any) -> list[Entry]:
    """The entries of a page: each row is the key and a reply."""
    keys = (result.get_value(place, 0).decode() for place in range(result.ntuples))
    return [entry(key, "", decode(result, place, 1)) for place, key in enumerate(keys)]
