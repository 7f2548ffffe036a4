"""Rows and records: how one becomes the other, the rows as an op's step sees them, and pages of them.

A row holds every field of a StoredRecord; who waits, is offered the key or is gone stands in `lines` as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import unquote

from ...model import Entry, State
from ...ops import Op
from .. import transitions as t
from .clock import Readings
from .fences import Fences
from .statements import SQL

EntryRow = tuple[Any, ...]  # the columns of queries.sql's `read`, in that order
StepFunction = Callable[[Sequence[Op]], list[Any]]  # ops → replies, inside a transaction

PAGE_ROWS = 256  # read at a time: most are shown, so a page of the usual size is one query
_STATES = (State.FREE, State.HELD, State.DONE)
_NUMBERS = {state: number for number, state in enumerate(_STATES)}
_READ, _WRITE, _DELETE = SQL["read"], SQL["write"], SQL["delete"]


def decode(row: EntryRow) -> t.StoredRecord:
    """The record that this row holds."""
    record = t.StoredRecord()
    (
        number, record.owner, record.fence, record.until, record.delay, record.opens, record.attempts, record.kept,
        record.refused, record.fingerprint, record.info, lines, record.value,
    ) = row  # fmt: skip
    record.state = _STATES[number]
    if lines is not None:
        waiters, offered, gone = json.loads(lines)
        record.waiters = [t.QueuedClient(*waiter) for waiter in waiters]
        record.offered = t.QueuedClient(*offered) if offered else None
        record.gone = [t.Displaced(*displaced) for displaced in gone]
    return record


def encode(record: t.StoredRecord) -> EntryRow:
    """The row that holds this record."""
    lines = None
    if record.waiters or record.gone or record.offered:
        lines = json.dumps((record.waiters, record.offered, record.gone), separators=(",", ":"))
    return (
        _NUMBERS[record.state], record.owner, record.fence, record.until, record.delay, record.opens, record.attempts,
        record.kept, record.refused, record.fingerprint, record.info, lines, record.value,
    )  # fmt: skip


def place(key: str, record: t.StoredRecord) -> tuple[str | None, int | None]:
    """Queue and availability of a queue item; (None, None) of anything else."""
    if not record.is_item:
        return None, None
    return unquote(key.split("/", 2)[1]), t.available(record)


class MustWrite(Exception):
    """A look found that the op changes something."""


class RowView:
    """The rows at one moment, as the steps of an op see them."""

    fences: Fences

    def __init__(self, readings: Readings, longest_wait: int) -> None:
        self.readings = readings
        self.read_lease, self._longest_wait = readings.lease, longest_wait
        self.execute: Any = None
        self.execute_many: Any = None
        self.change: Any = None  # as execute, on one cursor for all: for statements that answer no rows
        self.now = t.Now(0, 0)
        self.base = 0  # added to the boot clock, it gives the time on which marks, results and hits are kept
        self.latest = 0
        self.fixed = False  # `now` does not move: inside a transaction or a look
        self.looking = False  # nothing may change
        self.durable = False  # whether a commit waits for the disk
        self.hints: list[tuple[str, str]] = []

    def load(self, key: str) -> tuple[EntryRow | None, t.StoredRecord]:
        """The row, and the record that it holds; a new record where there is no row, or none that still matters."""
        row = self.execute(_READ, (key,)).fetchone()
        return row, t.current(None if row is None else decode(row), self.now)

    def save(self, key: str, row: EntryRow | None, record: t.StoredRecord) -> None:
        """Writes the record if it differs from the row; forgets it if that changes no answer."""
        if record.useless(self.now):
            if row is not None and not self.looking:
                self.execute(_DELETE, (key,))
            return
        new = encode(record)
        if new != row:
            if self.looking:
                raise MustWrite
            self.execute(_WRITE, (key, *place(key, record), *new))

    def decide(self, ops: Sequence[Op], steps: StepFunction) -> list[Any]:
        """The replies of one transaction, at one moment; with them it may commit."""
        self.now = self.clocks()
        self.fences.begin(self.execute)
        replies = steps(ops)
        self.fences.commit(self.execute)
        if self.readings.goes_back and self.now.lease > self.latest:
            self.execute(SQL["keep_latest"], (self.now.lease,))
        return replies

    def next_fence(self) -> int:
        """A fence greater than all before it."""
        if self.looking:
            raise MustWrite
        fence = self.fences.next()
        return self.fences.reserve(self.execute) if fence is None else fence

    def fence_in_hand(self) -> int | None:
        """A fence for a statement inside a transaction; None where the statement requests it itself."""
        if not self.fixed or self.readings.tick is None:  # no write lock yet; or a counter, which is not moved in vain
            return None
        return self.fences.next()

    def oldest(self) -> int:
        """No entry of this file ever had a smaller fence."""
        return int(self.execute(SQL["born"]).fetchone()[0])

    def oldest_hold(self) -> int:
        """Nothing that was held under a smaller fence is held now: it was another file's, or a reboot voided it."""
        return int(self.execute(SQL["born"]).fetchone()[1])

    def lease_soon(self) -> int:
        """By then a statement surely has the write lock; what ends sooner is left to the long way."""
        return self.now.lease if self.fixed else self.read_lease() + self._longest_wait

    def clocks(self) -> t.Now:
        """One reading of both clocks; neither goes back when the wall clock is set."""
        lease = self.readings.lease()
        if self.readings.goes_back:
            self.latest = self.execute(SQL["meta"]).fetchone()[3]
            lease = max(lease, self.latest)
        return t.Now(lease, lease if self.readings.tick is None else self.base + lease)


def page(execute: Callable[..., Any], now: t.Now, prefix: str, after: str, limit: int) -> list[Entry]:
    """Entries that are not free, whose key begins with prefix and is greater than `after`; at most `limit`."""
    found: list[Entry] = []
    while len(found) < limit:
        last = after
        with closing(execute(SQL["page"], (prefix, after, PAGE_ROWS))) as rows:  # read one by one: they may be large
            for after, *row in rows:
                if not after.startswith(prefix):
                    return found
                entry = t.view(after, decode(tuple(row)), now, value=True)
                if entry.state is not State.FREE or entry.fence:
                    found.append(entry)
                if len(found) == limit:
                    return found
        if after == last:
            break
    return found
