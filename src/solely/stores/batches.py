"""What stores check of a batch before they send it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from ..model import item_key
from ..ops import Acquire, Mark, Op, Release, Take

Exchange = tuple[dict[str, Release], dict[str, Acquire]]  # by key: what is released, and then what is acquired

_WAITING = frozenset((Acquire, Take))
_MARKS, _WHOSE = {Mark}, itemgetter(1, 2, 3)  # owner, ttl and extend of a Mark


def waits(ops: Sequence[Op]) -> bool:
    """True if one of the ops queues its client when refused, so that hints will come."""
    if len(ops) > 1 and _WAITING.isdisjoint(map(type, ops)):  # as in a thousand marks
        return False
    for op in ops:  # noqa: SIM110 - a generator would double the time, and each batch is checked
        if type(op) in _WAITING and op.client:  # type: ignore[union-attr] # both have one
            return True
    return False


def run_of_marks(ops: Sequence[tuple[Any, ...]], start: int) -> int:
    """Where the Marks of one owner and one ttl that begin at `start`, and extend nothing, end; `start` if there are
    none."""
    first = ops[start]
    if type(first) is not Mark or first.extend:
        return start
    if start == 0 and set(map(type, ops)) == _MARKS and len(set(map(_WHOSE, ops))) == 1:  # the usual case, quickly
        return len(ops)
    same = first[1:]
    for end in range(start + 1, len(ops)):
        op = ops[end]
        if type(op) is not Mark or op[1:] != same:
            return end
    return len(ops)


def exchange(ops: Sequence[Op]) -> Exchange | None:
    """The commonest batch: many callers release keys and acquire keys, all of them plainly; a store may have a
    statement or two for the whole of it. None if the ops are not all plain Releases and Acquires, or if their order
    matters: only a Release may have its key occur again behind it, in an Acquire."""
    old: dict[str, Release] = {}
    new: dict[str, Acquire] = {}
    for op in ops:
        if type(op) is Release:
            key, _, revoke, closing, keep, _ = op
            if revoke or closing or keep or key in old or key in new:
                return None
            old[key] = op
        elif type(op) is Acquire:
            key, _, _, _, _, delay, fingerprint, counted, value = op
            if delay or fingerprint or counted or value or key in new:
                return None
            new[key] = op
        else:
            return None
    return old, new


def queue_of(op: Any) -> str:
    """What the keys of all items of this op's queue begin with; "" if it has to do with no queue."""
    if hasattr(op, "queue"):
        return item_key(op.queue, "")
    return "/".join(op.key.split("/", 2)[:2]) + "/" if op.key.startswith("item/") else ""


def key_of(op: Any) -> str:
    """The one key that the op works on. A Take that names no item has none yet, and a Count has none."""
    key: str = item_key(op.queue, getattr(op, "id", "")) if hasattr(op, "queue") else op.key
    return key
