"""The data of a memory store and the mutex around it: a batch of ops is one step, as `transitions` says."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any
from urllib.parse import unquote

from ... import ops as op_types
from ...errors import StoreError, StoreFull
from ...kinds import check_ops
from ...logs import get_logger
from ...model import DONE, FREE, Allowance, Entry, LeasedItem, NoItem, item_key, line_key
from ...ops import Op, Reply
from ...rules import local_clock
from .. import Clock, OnHint
from .. import transitions as t
from .expiries import Expiries

log = get_logger()

DEFAULT_MAX_SIZE = 10_000


class Memory:
    """The data and the mutex. Performs a batch of ops atomically and notifies the clients that wait."""

    def __init__(self, *, clock: Clock | None = None, max_size: int = DEFAULT_MAX_SIZE) -> None:
        self.clock = clock
        self.max_size = max_size
        self.listeners: dict[str, OnHint] = {}
        self._mutex = threading.Lock()
        self._fence = 0
        self._born = 0  # the first fence
        self._records: dict[str, t.StoredRecord] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()  # evictable keys, oldest first
        self._useless = Expiries()  # when to see whether a record can be forgotten
        self._queues: dict[str, dict[str, t.StoredRecord]] = {}
        self._hits: dict[str, dict[str, int]] = {}  # owner → wall time of its hit
        self._quiet = Expiries()  # when the last hit of a key is over
        self._evicted = 0
        self._perform: dict[type, Callable[[Any, t.Now, list[tuple[str, str]]], Reply]] = {
            op_types.Acquire: self._acquire,
            op_types.Renew: self._renew,
            op_types.Resume: self._resume,
            op_types.Finish: self._finish,
            op_types.Release: self._release,
            op_types.Mark: self._mark,
            op_types.Read: self._read,
            op_types.Clear: self._clear,
            op_types.Advance: self._advance,
            op_types.Hit: self._hit,
            op_types.Unhit: self._unhit,
            op_types.Push: self._push,
            op_types.Take: self._take,
            op_types.Ack: self._ack,
            op_types.Return: self._return,
            op_types.Amend: self._amend,
            op_types.Count: self._count,
        }

    def now(self) -> t.Now:
        """One reading of the clocks."""
        if self.clock is not None:
            moment = round(self.clock() * t.US)
            return t.Now(moment, moment)
        return t.Now(round(local_clock() * t.US), time.time_ns() // 1_000)

    def perform(self, batch: Sequence[Op]) -> list[Reply | StoreError]:
        """All ops in one step; an op that fails is answered by its error and harms no neighbour."""
        check_ops(batch)
        hints: list[tuple[str, str]] = []
        with self._mutex:
            now = self.now()
            replies = [self._one(op, now, hints) for op in batch]
        for client, key in hints:
            on_hint = self.listeners.get(client)
            if on_hint is not None:
                on_hint(key)
        return replies

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """A page of entries in key order."""
        with self._mutex:
            now = self.now()
            keys = sorted(key for key in self._records if key.startswith(prefix) and key > after)
            entries = (t.view(key, self._records[key], now, value=True) for key in keys)
            return list(islice((e for e in entries if e.state is not FREE or e.fence), limit))

    def size(self) -> int:
        """How many records there are, of every kind."""
        return len(self._records) + len(self._hits)

    def _one(self, op: Op, now: t.Now, hints: list[tuple[str, str]]) -> Reply | StoreError:
        try:
            return self._perform[type(op)](op, now, hints)
        except StoreError as error:
            return error

    def _next_fence(self, now: t.Now) -> int:
        self._fence = max(self._fence + 1, now.wall)
        self._born = self._born or self._fence
        return self._fence

    # -- keeping records within bounds

    def _get(self, key: str, now: t.Now) -> t.StoredRecord:
        return t.current(self._records.get(key), now)

    def _keep(self, key: str, record: t.StoredRecord, now: t.Now) -> None:
        """Stores the record, or forgets it if it answers nothing more."""
        forget_at = record.forget_at(now)
        if forget_at <= now.lease:
            self._forget(key)
            return
        if key not in self._records:
            self._make_room(key, now)
        if self._records.get(key) is not record:
            self._records[key] = record
            self._finished.pop(key, None)
        self._useless.schedule(key, forget_at)
        if record.state is DONE and record.until != t.NEVER:
            self._finished[key] = None
        else:
            self._finished.pop(key, None)

    def _forget(self, key: str) -> None:
        self._records.pop(key, None)
        self._finished.pop(key, None)
        self._useless.drop(key)

    def _make_room(self, key: str, now: t.Now) -> None:
        self._purge(now)
        if self.size() < self.max_size:
            return
        if not self._finished:
            raise StoreFull(
                f"the memory store holds {self.size()} entries that may not be evicted (max_size={self.max_size}); "
                "raise max_size or use a larger store",
                key=key,
            )
        self._forget(next(iter(self._finished)))
        self._evicted += 1
        if self._evicted & (self._evicted - 1) == 0:  # at the 1st, 2nd, 4th, 8th …: seen early, and no flood of lines
            figures = {"count": self._evicted, "max_size": self.max_size, "current_size": self.size()}
            log.warning(
                "store_eviction: the memory store is full (%(current_size)d entries, max_size=%(max_size)d) and has "
                "dropped %(count)d finished entries before their time; raise max_size",
                figures,
                extra=figures,
            )

    def _purge(self, now: t.Now) -> None:
        """Forgets what answers nothing more; each record is looked at about once per lifetime."""
        for key in self._useless.due(now.lease):
            self._keep(key, self._records[key], now)
        for key in self._quiet.due(now.lease):
            del self._hits[key]

    # -- ops on entries

    def _acquire(self, op: op_types.Acquire, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._get(op.key, now)
        t.acquire(record, op, now, lambda: self._next_fence(now))
        self._keep(op.key, record, now)
        return t.shown(op.key, record, now, op.owner, value=op.value)  # it is held now, or keeps others out

    def _renew(self, op: op_types.Renew, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._get(op.key, now)
        t.renew(record, op, now)
        return t.view(op.key, record, now, op.owner)

    def _resume(self, op: op_types.Resume, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._get(op.key, now)
        t.resume(record, op, now, lambda: self._next_fence(now))
        self._keep(op.key, record, now)
        return t.view(op.key, record, now, op.successor, value=True)

    def _finish(self, op: op_types.Finish, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record, notified = self._get(op.key, now), list[str]()
        t.finish(record, op, now, notified)
        self._keep(op.key, record, now)
        hints.extend((client, op.key) for client in notified)
        return t.view(op.key, record, now, op.owner, value=True)

    def _release(self, op: op_types.Release, now: t.Now, hints: list[tuple[str, str]]) -> Reply:
        record, notified = self._get(op.key, now), list[str]()
        outcome = t.release(record, op, now, notified, lambda: self._born)
        self._keep(op.key, record, now)
        hints.extend((client, op.key) for client in notified)
        return outcome

    def _mark(self, op: op_types.Mark, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        record = self._get(op.key, now)
        first = t.mark(record, op, now, lambda: self._next_fence(now))
        self._keep(op.key, record, now)
        return first

    def _read(self, op: op_types.Read, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        return t.view(op.key, self._records.get(op.key), now, value=True)

    def _clear(self, op: op_types.Clear, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        record, notified = self._get(op.key, now), list[str]()
        was_item = record.is_item
        cleared = t.clear(record, op, now, notified)
        self._keep(op.key, record, now)
        if was_item and not record.is_item:
            self._drop_item(op.key)
        hints.extend((client, op.key) for client in notified)
        return cleared

    def _advance(self, op: op_types.Advance, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._get(op.key, now)
        t.advance(record, op, lambda: self._next_fence(now))
        self._keep(op.key, record, now)
        return t.view(op.key, record, now, value=True)

    # -- limits

    def _hit(self, op: op_types.Hit, now: t.Now, hints: list[tuple[str, str]]) -> Allowance:
        per = t.us(op.per)
        hits = {owner: at for owner, at in self._hits.get(op.key, {}).items() if at > now.wall - per}
        allowed = op.owner in hits or len(hits) < op.limit
        if allowed and op.owner not in hits:
            if op.key not in self._hits:
                self._make_room(op.key, now)
            hits[op.owner] = now.wall
        if hits:
            self._hits[op.key] = hits
            self._quiet.schedule(op.key, now.lease + max(hits.values()) + per - now.wall)
        if allowed:
            return Allowance(True, len(hits))
        frees = sorted(hits.values())[len(hits) - op.limit]
        return Allowance(False, len(hits), max(0, frees + per - now.wall) / t.US)

    def _unhit(self, op: op_types.Unhit, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        hits = self._hits.get(op.key, {})
        given_back = hits.pop(op.owner, None) is not None
        if not hits:
            self._hits.pop(op.key, None)
            self._quiet.drop(op.key)
        return given_back

    # -- queues

    def _push(self, op: op_types.Push, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        key = item_key(op.queue, op.id)
        record = self._get(key, now)
        pushed = t.push(record, op, now, lambda: self._next_fence(now))
        if pushed:
            self._keep(key, record, now)
            self._queues.setdefault(op.queue, {})[op.id] = record
            self._call_first(op, now, hints)
        return pushed

    def _call_first(self, op: op_types.Push | op_types.Return, now: t.Now, hints: list[tuple[str, str]]) -> None:
        key = line_key(op.queue)
        if key in self._records and not op.delay:
            line, notified = self._get(key, now), list[str]()
            t.call_first(line, notified)
            self._keep(key, line, now)
            hints.extend((client, key) for client in notified)

    def _take(self, op: op_types.Take, now: t.Now, hints: list[tuple[str, str]]) -> LeasedItem | NoItem | None:
        item = self._take_item(op, now)
        if item is not None or not op.client:
            return item
        key = line_key(op.queue)
        line = self._get(key, now)
        t.join_line(line, op, now)
        self._keep(key, line, now)
        return t.no_item(min(map(t.available, self._queues.get(op.queue, {}).values()), default=None), now)

    def _take_item(self, op: op_types.Take, now: t.Now) -> LeasedItem | None:
        queue = self._queues.get(op.queue, {})
        for id, record in queue.items():
            if t.has(record, op.owner) and now.lease < record.until:
                return t.taken(id, record, now)
        named = {op.id: queue[op.id]} if op.id in queue else {} if op.id else queue
        ready = [(t.available(r), r.fence, id) for id, r in named.items() if t.available(r) <= now.lease]
        if not ready:
            return None
        id = min(ready)[2]
        t.take(queue[id], op, now)
        return t.taken(id, queue[id], now)

    def _ack(self, op: op_types.Ack, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        key = item_key(op.queue, op.id)
        record = self._queues.get(op.queue, {}).get(op.id)
        if record is None:
            return t.is_acked(self._get(key, now), op, now, lambda: self._born)
        if not t.may_ack(record, op):
            return False
        self._drop_item(key)
        if record.gone:
            t.remove_item(record)
            self._keep(key, record, now)
        else:
            self._forget(key)
        return True

    def _return(self, op: op_types.Return, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        record = self._queues.get(op.queue, {}).get(op.id)
        if record is None or not t.has(record, op.owner):
            return False
        t.give_back(record, op, now)
        self._call_first(op, now, hints)
        return True

    def _amend(self, op: op_types.Amend, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        key = item_key(op.queue, op.id)
        record = self._get(key, now)
        amended = t.amend(record, op, now)
        if amended and not record.is_item:
            self._drop_item(key)
            self._keep(key, record, now)
        return amended

    def _count(self, op: op_types.Count, now: t.Now, hints: list[tuple[str, str]]) -> int:
        return len(self._queues.get(op.queue, ()))

    def _drop_item(self, key: str) -> None:
        prefix, _, id = key.partition("/")[2].partition("/")
        queue = unquote(prefix)
        items = self._queues.get(queue, {})
        items.pop(id, None)
        if not items:
            self._queues.pop(queue, None)
