"""What each op does to the rows. STEPS apply `transitions` to a row inside a transaction (or, for a look, a snapshot);
SHORTCUTS say the same of the commonest case in one statement, and answer MISS in any other case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...model import HELD, RELEASED, Allowance, Entry, LeasedItem, NoItem, Released, State, item_key, line_key
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
from .. import transitions as t
from .rows import RowView
from .statements import SQL

# Ops whose effect must survive the loss of power: their transaction waits for the disk. The others are leases, which
# a reboot voids anyway.
DURABLE = frozenset({Mark, Finish, Advance, Push, Ack, Return, Amend, Clear, Hit, Unhit})


class MustSurvive(Exception):
    """An op turned out to need the disk in a transaction that does not wait for it: repeat it in one that does."""


class NotFree(Exception):
    """An exchange met a key that is not simply free, or not simply held: its transaction begins anew, op by op."""


class _Miss:
    """The answer of a shortcut that does not apply."""


MISS = _Miss()
_TAKE, _MARK, _RELEASE = SQL["take_absent"], SQL["mark_absent"], SQL["release_clean"]


# -- shortcuts


def take_absent(rows: RowView, op: Acquire) -> Entry | _Miss:
    key, owner, ttl, info, _, delay, fingerprint, _, _ = op
    span = int(ttl * t.US + 0.5) or 1
    if rows.fixed:
        now, fence = rows.now.lease, rows.fence_in_hand()
    else:  # counted from before the write lock is waited for, as the holder counts it
        now, fence = rows.read_lease(), None
    fields = (key, owner, now + span, t.us(delay) if delay else 0, fingerprint, info, fence)
    if rows.change(_TAKE, fields).rowcount != 1:
        return MISS
    # Half the time of Entry(…), in the commonest answer of all.
    return make(Entry, (key, HELD, rows.fences.last, span / t.US, owner, 1, 0, 0, fingerprint, info, None, ""))


def mark_absent(rows: RowView, op: Mark) -> bool | _Miss:
    fields = (op.key, op.owner, rows.now.wall + t.us(op.ttl), rows.fence_in_hand())
    return rows.change(_MARK, fields).rowcount == 1 or MISS


def release_clean(rows: RowView, op: Release) -> Released | _Miss:
    key, owner, revoke, delay, keep, fence = op
    if revoke or delay or keep or rows.change(_RELEASE, (key, owner, rows.lease_soon(), fence)).rowcount != 1:
        return MISS
    return RELEASED


def exchange_clean(
    rows: RowView, ops: Sequence[Op], old: Mapping[str, Release], new: Mapping[str, Acquire]
) -> list[Released | Entry]:
    """As release_clean and take_absent, many keys in two statements; NotFree if one of them must be looked at."""
    fields = [(key, op.owner, rows.now.lease, op.fence) for key, op in old.items()]
    if fields and rows.execute_many(_RELEASE, fields).rowcount != len(fields):
        raise NotFree
    entries = iter(_take_all_absent(rows, new) if new else ())
    return [RELEASED if type(op) is Release else next(entries) for op in ops]


def _take_all_absent(rows: RowView, new: Mapping[str, Acquire]) -> list[Entry]:
    fences = rows.fences.several(len(new))
    if fences is None:
        raise NotFree
    now, fields, entries = rows.now.lease, [], []
    for (key, owner, ttl, info, *_), fence in zip(new.values(), fences, strict=True):
        span = t.us(ttl)
        fields.append((key, owner, now + span, 0, "", info, fence))
        entries.append(make(Entry, (key, HELD, fence, span / t.US, owner, 1, 0, 0, "", info, None, "")))
    if rows.execute_many(_TAKE, fields).rowcount != len(fields):
        raise NotFree
    return entries


# -- entries


def _acquire(rows: RowView, op: Acquire) -> Entry:
    row, record = rows.load(op.key)
    t.acquire(record, op, rows.now, rows.next_fence)
    rows.save(op.key, row, record)
    return t.view(op.key, record, rows.now, op.owner, value=op.value)


def _renew(rows: RowView, op: Renew) -> Entry:
    row, record = rows.load(op.key)
    t.renew(record, op, rows.now)
    rows.save(op.key, row, record)
    return t.view(op.key, record, rows.now, op.owner)


def _resume(rows: RowView, op: Resume) -> Entry:
    row, record = rows.load(op.key)
    t.resume(record, op, rows.now, rows.next_fence)
    rows.save(op.key, row, record)
    return t.view(op.key, record, rows.now, op.successor, value=True)


def _finish(rows: RowView, op: Finish) -> Entry:
    (row, record), notified = rows.load(op.key), list[str]()
    t.finish(record, op, rows.now, notified)
    rows.save(op.key, row, record)
    rows.hints.extend((client, op.key) for client in notified)
    return t.view(op.key, record, rows.now, op.owner, value=True)


def _release(rows: RowView, op: Release) -> Released:
    (row, record), notified = rows.load(op.key), list[str]()
    was_done = record.state is State.DONE
    outcome = t.release(record, op, rows.now, notified, rows.oldest_hold)
    if was_done and record.state is not State.DONE and not rows.durable:
        raise MustSurvive
    rows.save(op.key, row, record)
    rows.hints.extend((client, op.key) for client in notified)
    return outcome


def _mark(rows: RowView, op: Mark) -> bool:
    row, record = rows.load(op.key)
    first = t.mark(record, op, rows.now, rows.next_fence)
    rows.save(op.key, row, record)
    return first


def _read(rows: RowView, op: Read) -> Entry:
    return t.view(op.key, rows.load(op.key)[1], rows.now, value=True)


def _clear(rows: RowView, op: Clear) -> bool:
    (row, record), notified = rows.load(op.key), list[str]()
    cleared = t.clear(record, op, rows.now, notified)
    rows.save(op.key, row, record)
    rows.hints.extend((client, op.key) for client in notified)
    return cleared


def _advance(rows: RowView, op: Advance) -> Entry:
    row, record = rows.load(op.key)
    t.advance(record, op, rows.next_fence)
    rows.save(op.key, row, record)
    return t.view(op.key, record, rows.now, value=True)


# -- limits


def _hit(rows: RowView, op: Hit) -> Allowance:
    per, wall = t.us(op.per), rows.now.wall
    rows.execute(SQL["forget_hits"], (op.key, wall - per))
    hits, mine = rows.execute(SQL["count_hits"], (op.owner, op.key)).fetchone()
    if mine:
        return Allowance(True, hits)
    if hits < op.limit:
        rows.execute(SQL["hit"], (op.key, op.owner, wall, wall + per))
        return Allowance(True, hits + 1)
    (frees,) = rows.execute(SQL["hit_that_frees"], (op.key, hits - op.limit)).fetchone()
    return Allowance(False, hits, max(0, frees + per - wall) / t.US)


def _unhit(rows: RowView, op: Unhit) -> bool:
    return bool(rows.execute(SQL["unhit"], (op.key, op.owner, rows.now.wall)).rowcount)


# -- queues


def _push(rows: RowView, op: Push) -> bool:
    key = item_key(op.queue, op.id)
    row, record = rows.load(key)
    pushed = t.push(record, op, rows.now, rows.next_fence)
    rows.save(key, row, record)
    if pushed:
        _call_first(rows, op)
    return pushed


def _call_first(rows: RowView, op: Push | Return) -> None:
    key = line_key(op.queue)
    (row, line), notified = rows.load(key), list[str]()
    if row is not None and not op.delay:
        t.call_first(line, notified)
        rows.save(key, row, line)
        rows.hints.extend((client, key) for client in notified)


def _take(rows: RowView, op: Take) -> LeasedItem | NoItem | None:
    item = _take_item(rows, op)
    if item is not None or not op.client:
        return item
    key = line_key(op.queue)
    row, line = rows.load(key)
    t.join_line(line, op, rows.now)
    rows.save(key, row, line)
    return t.no_item(rows.execute(SQL["next_item"], (op.queue,)).fetchone()[0], rows.now)


def _take_item(rows: RowView, op: Take) -> LeasedItem | None:
    found = rows.execute(SQL["item_of_owner"], (op.queue, op.owner, rows.now.lease)).fetchone()
    repeat = found is not None
    if not repeat and op.id:
        found = (item_key(op.queue, op.id),)
    elif not repeat:
        found = rows.execute(SQL["item_that_waits"], (op.queue, rows.now.lease)).fetchone()
    if found is None:
        return None
    (key,) = found
    row, record = rows.load(key)
    if not repeat:
        if not record.is_item or t.available(record) > rows.now.lease:
            return None
        t.take(record, op, rows.now)
        rows.save(key, row, record)
    return t.taken(key.split("/", 2)[2], record, rows.now)


def _ack(rows: RowView, op: Ack) -> bool:
    key = item_key(op.queue, op.id)
    row, record = rows.load(key)
    if not record.is_item:
        return t.is_acked(record, op, rows.now, rows.oldest)
    if not t.may_ack(record, op):
        return False
    if record.gone:
        t.remove_item(record)
        rows.save(key, row, record)
    else:
        rows.execute(SQL["delete"], (key,))
    return True


def _return(rows: RowView, op: Return) -> bool:
    key = item_key(op.queue, op.id)
    row, record = rows.load(key)
    if not record.is_item or not t.has(record, op.owner):
        return False
    t.give_back(record, op, rows.now)
    rows.save(key, row, record)
    _call_first(rows, op)
    return True


def _amend(rows: RowView, op: Amend) -> bool:
    key = item_key(op.queue, op.id)
    row, record = rows.load(key)
    amended = t.amend(record, op, rows.now)
    rows.save(key, row, record)
    return amended


def _count(rows: RowView, op: Count) -> int:
    return int(rows.execute(SQL["count_items"], (op.queue,)).fetchone()[0])


STEPS: dict[type, Callable[[Any, Any], Reply]] = {
    Acquire: _acquire,
    Renew: _renew,
    Resume: _resume,
    Finish: _finish,
    Release: _release,
    Mark: _mark,
    Read: _read,
    Clear: _clear,
    Advance: _advance,
    Hit: _hit,
    Unhit: _unhit,
    Push: _push,
    Take: _take,
    Ack: _ack,
    Return: _return,
    Amend: _amend,
    Count: _count,
}
SHORTCUTS: dict[type, Callable[[Any, Any], Reply | _Miss]] = {
    Acquire: take_absent,
    Mark: mark_absent,
    Release: release_clean,
}
# Those that need not survive the loss of power: one statement of theirs may be a transaction of its own.
ALONE = {kind: SHORTCUTS[kind] for kind in (Acquire, Release)}
