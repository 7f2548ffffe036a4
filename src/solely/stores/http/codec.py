"""Ops and replies as JSON: what `POST /v1/ops` takes and gives, for both ends of the wire. Bytes are base64.

Each op is an object with the fields of its namesake in `ops.py` and its name in `op`: what may be left out there may be
left out here. Each reply says in `reply` what it is. What stays for ever has null as `left`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import msgspec

from ... import ops
from ...errors import InvalidInput, StoreError, StoreFailed, StoreFull, StoreUnavailable, Unanswered
from ...model import Allowance, Entry, LeasedItem, NoItem, Released, State
from ...ops import MAX_BATCH, MAX_LIMIT, OPS, Op, Reply
from ...rules import MAX_INFO_BYTES, MAX_KEPT, MAX_TTL

MAX_STORED_KEY = 2100  # bytes: an item's key is its kind, a quoted queue of three times 512 bytes, and an id of 512
_MOST = 2**63 - 1


def _text(description: str, least: int, most: int, **more: Any) -> Any:
    return Annotated[str, msgspec.Meta(min_length=least, max_length=most, description=description, **more)]


def _number(description: str, least: int, most: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=least, le=most, description=description)]


_FIELDS: dict[str, Any] = {
    "key": _text("the stored key, kind/name", 3, MAX_STORED_KEY, pattern=r"^[a-z]{1,16}/[^\x00]+$"),
    "owner": _text("who asks: fresh for each attempt, and a secret", 1, 1024, pattern=r"^[^\x00]+$"),
    "successor": _text("who holds it from now on: as `owner`", 1, 1024, pattern=r"^[^\x00]+$"),
    "info": _text("who holds it and what for, for people", 0, MAX_INFO_BYTES, pattern=r"^[^\x00]*$"),
    "client": _text("if refused, this waiter is queued", 0, 128, pattern=r"^[^\x00]*$"),
    "fingerprint": _text("of the payload", 0, 128, pattern=r"^[^\x00]*$"),
    "reason": _text("why", 0, 1024, pattern=r"^[^\x00]*$"),
    "queue": _text("the name of a queue", 1, 1024, pattern=r"^[^\x00]+$"),
    "id": _text("of an item", 0, 512, pattern=r"^[^\x00]*$"),
    "fence": _number("as it was seen", 0, _MOST),
    "limit": _number("hits in any window", 1, MAX_LIMIT),
}
_TYPES: dict[Any, Any] = {
    float: Annotated[float, msgspec.Meta(ge=0.0, le=MAX_TTL, description="seconds")],
    bytes: Annotated[bytes, msgspec.Meta(max_length=MAX_KEPT)],
    bool: bool,
}
_TYPES[bytes | None] = _TYPES[bytes] | None


def _struct(op: Any) -> type[msgspec.Struct]:
    """The op as a JSON object, with its fields, their defaults and their bounds."""
    fields: list[Any] = []
    for name, kind in get_type_hints(op).items():
        wanted = _TYPES.get(kind) or _FIELDS[name]
        fields.append((name, wanted, op._field_defaults[name]) if name in op._field_defaults else (name, wanted))
    tag = op.__name__.lower()
    return msgspec.defstruct(
        f"{op.__name__}Op", fields, namespace={"__doc__": op.__doc__}, module=__name__, tag_field="op", tag=tag,
        forbid_unknown_fields=True, omit_defaults=True,
    )  # fmt: skip


_STRUCTS: dict[type, Any] = {op: _struct(op) for op in OPS}
_OPS: dict[type, Any] = {struct: op for op, struct in _STRUCTS.items()}

if TYPE_CHECKING:
    AnyOp = msgspec.Struct
else:
    AnyOp = None
    for _each in _STRUCTS.values():
        AnyOp = _each if AnyOp is None else AnyOp | _each


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Ops to be performed in order. A batch is no transaction: each op stands or fails alone."""

    ops: Annotated[list[AnyOp], msgspec.Meta(max_length=MAX_BATCH)]


class WireEntry(msgspec.Struct, kw_only=True):
    """An entry. `owner` is only ever the asker's own; `left` is null for what stays for ever."""

    key: str
    state: State
    fence: int = 0
    left: float | None = 0.0
    owner: str = ""
    attempts: int = 0
    refused: int = 0
    waiters: int = 0
    fingerprint: str = ""
    info: str = ""
    value: bytes | None = None
    gone: str = ""


class EntryReply(WireEntry, tag_field="reply", tag="entry"):
    """The entry as it now is, as this asker may see it."""


class ReleasedReply(msgspec.Struct, tag_field="reply", tag="released"):
    """What a release can truthfully say."""

    outcome: Released


class AllowanceReply(msgspec.Struct, tag_field="reply", tag="allowance"):
    """Whether a hit is within its limit."""

    allowed: bool
    hits: int
    retry_after: float


class ItemReply(msgspec.Struct, tag_field="reply", tag="item"):
    """A queue item in the hands of its taker."""

    id: str
    payload: bytes
    attempts: int
    left: float
    fence: int


class NoItemReply(msgspec.Struct, tag_field="reply", tag="none"):
    """There is no item to take."""


class WaitReply(msgspec.Struct, tag_field="reply", tag="wait"):
    """There is no item to take, and the client waits in line. The next becomes available in `left` seconds; null: there
    is none."""

    left: float | None


class YesNoReply(msgspec.Struct, tag_field="reply", tag="yes_no"):
    """Whether it was so."""

    yes: bool


class CountReply(msgspec.Struct, tag_field="reply", tag="count"):
    """How many there are."""

    count: int


class FailedReply(msgspec.Struct, tag_field="reply", tag="failed"):
    """This op failed, and its neighbours did not: `problem` is named on the policy page."""

    problem: str
    detail: str


AnyReply = (
    EntryReply
    | ReleasedReply
    | AllowanceReply
    | ItemReply
    | NoItemReply
    | WaitReply
    | YesNoReply
    | CountReply
    | FailedReply
)


class Replies(msgspec.Struct):
    """One reply per op, in order."""

    replies: list[AnyReply]


class WireEntries(msgspec.Struct):
    """Entries in the order of their stored keys. If `next` is not null there may be more: ask for those after it."""

    entries: list[WireEntry]
    next: str | None = None


class EncodedOps(NamedTuple):
    """A batch as it is sent, and how many ops are in it."""

    ops: int
    body: bytes


# How a failed op is reported, and which error the other end raises for it. The first that fits.
FAILURES: tuple[tuple[type[StoreError], str], ...] = (
    (Unanswered, "unanswered"),
    (StoreUnavailable, "store-away"),
    (StoreFull, "store-full"),
    (StoreError, "store-failed"),
)
_RAISED: dict[str, type[StoreError]] = {name: error for error, name in FAILURES} | {"store-failed": StoreFailed}


# -- ops

_encode = msgspec.json.Encoder().encode
_decode_replies = msgspec.json.Decoder(Replies).decode
_decode_page = msgspec.json.Decoder(WireEntries).decode


def encode(batch: list[Op]) -> EncodedOps:
    """The batch as a body; InvalidInput if an op cannot be sent."""
    try:
        return EncodedOps(len(batch), _encode(Batch([_STRUCTS[type(op)](*op) for op in batch])))
    except UnicodeEncodeError as error:
        raise InvalidInput(f"an op cannot be sent as JSON: {error}") from None


def op_of(struct: AnyOp) -> Op:
    """The op that was sent; InvalidInput if its key is too long."""
    op: Op = _OPS[type(struct)](*msgspec.structs.astuple(struct))
    key = getattr(op, "key", "")
    if not key.isascii() and len(key.encode()) > MAX_STORED_KEY:
        raise InvalidInput(f"key {key!r:.80} has more than {MAX_STORED_KEY} bytes")
    return op


# -- replies


def entry_reply(entry: Entry) -> EntryReply:
    """The entry as a reply."""
    return EntryReply(**_fields(entry))


def wire_entry(entry: Entry) -> WireEntry:
    """The entry as an element of a list."""
    return WireEntry(**_fields(entry))


def _fields(entry: Entry) -> dict[str, Any]:
    return entry._asdict() | {"left": entry.left if math.isfinite(entry.left) else None}


def reply_of(reply: Reply | StoreError, detail: str = "") -> AnyReply:
    """The reply as it is sent; of a failure, `detail` is what may be shown."""
    if isinstance(reply, Entry):
        return entry_reply(reply)
    if isinstance(reply, bool):
        return YesNoReply(reply)
    if isinstance(reply, int):
        return CountReply(reply)
    if isinstance(reply, Released):
        return ReleasedReply(reply)
    if isinstance(reply, Allowance):
        return AllowanceReply(*reply)
    if isinstance(reply, LeasedItem):
        return ItemReply(*reply)
    if isinstance(reply, NoItem):
        return WaitReply(reply.left if math.isfinite(reply.left) else None)
    if reply is None:
        return NoItemReply()
    return FailedReply(next(name for error, name in FAILURES if isinstance(reply, error)), detail)


def decode(raw: bytes, encoded: EncodedOps) -> list[Reply | StoreError]:
    """The replies to a batch; StoreFailed if this is no answer to it."""
    try:
        replies = _decode_replies(raw).replies
    except msgspec.DecodeError as error:
        raise StoreFailed(f"the service answered something else than replies: {error}") from None
    if len(replies) != encoded.ops:
        raise StoreFailed(f"the service answered {len(replies)} replies to {encoded.ops} ops")
    return [_read(reply) for reply in replies]


def decode_page(raw: bytes) -> tuple[list[Entry], str | None]:
    """The entries of a page and after which key to go on, None if there are no more; StoreFailed if it is no page."""
    try:
        page = _decode_page(raw)
    except msgspec.DecodeError as error:
        raise StoreFailed(f"the service answered something else than a page of entries: {error}") from None
    return [_entry(each) for each in page.entries], page.next


def _read(reply: AnyReply) -> Reply | StoreError:
    if isinstance(reply, EntryReply):
        return _entry(reply)
    if isinstance(reply, YesNoReply):
        return reply.yes
    if isinstance(reply, CountReply):
        return reply.count
    if isinstance(reply, ReleasedReply):
        return reply.outcome
    if isinstance(reply, AllowanceReply):
        return Allowance(reply.allowed, reply.hits, reply.retry_after)
    if isinstance(reply, ItemReply):
        return LeasedItem(reply.id, reply.payload, reply.attempts, reply.left, reply.fence)
    if isinstance(reply, WaitReply):
        return NoItem(math.inf if reply.left is None else reply.left)
    if isinstance(reply, NoItemReply):
        return None
    return _RAISED.get(reply.problem, StoreFailed)(reply.detail or reply.problem)


def _entry(wire: WireEntry) -> Entry:
    fields = msgspec.structs.asdict(wire)
    return Entry(**fields | {"left": math.inf if wire.left is None else wire.left})


GRANTING = (ops.Acquire, ops.Resume, ops.Mark, ops.Hit, ops.Push, ops.Take)  # what gives somebody something new
