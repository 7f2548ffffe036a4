"""A connection to the file, and transactions on it: a lone op in one statement where it can, else one per batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...errors import StoreError, StoreUnavailable, Unanswered
from ...model import Entry
from ...ops import MAX_BATCH, Acquire, Advance, Count, Mark, Op, Read, Take
from .. import transitions as t
from ..batches import exchange
from .clock import Readings
from .connection import BUSY_SLICE, connect, file_at
from .faults import doubt
from .fences import fence_function, fences_for
from .rows import MustWrite, RowView, StepFunction
from .shared_file import SharedFile
from .steps import ALONE, DURABLE, MISS, SHORTCUTS, STEPS, MustSurvive, NotFree, exchange_clean

# What an op may raise inside a transaction, which is then rolled back for certain.
FAILURES = (StoreError, sqlite3.Error, ValueError, OverflowError)

_LOOK_FIRST = frozenset({Mark, Read, Count, Advance})  # often answered without a change: then no writer is waited for
FEWEST = 4  # ops that are worth checking whether they are an exchange


class WaitingOps:
    """Ops of a thread that waits to write and to have it on the disk: whoever writes before it may perform them too."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.replies: list[Any] | None = None  # once they are committed
        self.alone = False  # True if they made a transaction fail that was not theirs


class NotTogether(Exception):
    """Ops of another thread failed in this one's transaction: it begins anew without them."""


class FileTransactions(RowView):
    """For one thread at a time. Raises what sqlite3 raises; what was not committed was not performed.

    `waiting` is shared by the sessions of one store; only who may write takes from it.
    """

    def __init__(
        self,
        path: str,
        shared: bool,
        shared_file: SharedFile,
        readings: Readings,
        timeout: float,
        waiting: list[WaitingOps],
    ) -> None:
        super().__init__(readings, t.us(5 * BUSY_SLICE))
        self._waiting = waiting
        self.path, self.shared, self.shared_file, self.timeout = path, shared, shared_file, timeout
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # the file that is open
        self._shortcuts = ALONE if readings.tick is not None else {}  # a counted fence takes a second statement
        self._swallowed: list[BaseException] = []  # by sqlite3, in next_fence()

    # -- the connection

    def _connect(self) -> None:
        if self.shared_file.broken:
            raise StoreUnavailable(f"the SQLite store {self.path} was in use during the fork of this process")
        with self.shared_file.opening:
            there = file_at(self.path)  # before: what takes its place from now on is another one
            connection, self.base = connect(self.path, self.shared, self.readings, self.timeout)
        self._file = there or file_at(self.path)
        self.fences = fences_for(self.readings, self.base)
        connection.create_function("next_fence", 0, fence_function(self.fences, self._swallowed))
        self.durable = False
        connection.execute("PRAGMA synchronous = NORMAL")
        self.execute, self.execute_many = connection.execute, connection.executemany
        self.change = connection.cursor().execute
        self._connection = connection  # last: what a signal handler's exception left half made is not used

    def _is_replaced(self) -> bool:
        return file_at(self.path) != self._file

    def disconnect(self) -> None:
        """Closes the connection; the next op opens a new one."""
        connection, self._connection = self._connection, None
        self.execute = self.execute_many = self.change = None
        if connection is not None:
            connection.close()

    def _wait_for_disk(self, durable: bool) -> None:
        """FULL: a commit is on the disk before it can be seen. NORMAL: it may be lost with the power, never torn."""
        if durable is not self.durable:
            self.durable = False  # while it is not known: a signal handler may raise behind the statement
            self.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self.durable = durable

    # -- ops

    def _alone(self, op: Any) -> Any:
        """The reply to one of the commonest ops, in one statement that is its own transaction, under the same lock as
        BEGIN IMMEDIATE; MISS if the long way must decide."""
        shortcut = self._shortcuts.get(type(op))
        shared_file = self.shared_file
        if shortcut is None or op.key in shared_file.contended:
            return MISS
        writing = shared_file.writing
        try:  # as SharedFile.enter(), without its call
            if not writing.acquire(False):
                self._enter()
        except BaseException:
            shared_file.stay_out()
            raise
        try:
            if self.durable:
                self._wait_for_disk(False)
            return shortcut(self, op)
        except sqlite3.Error as error:
            doubt(self.path, error)  # else nothing was performed: the long way tries again, or says why not
            return MISS
        finally:
            writing.release()

    def _pass_on(self) -> None:
        """Raises what a signal handler raised while a statement requested its fence; it got none, and did nothing."""
        if self._swallowed:
            raise self._swallowed.pop()

    def _lone(self, op: Any) -> Any:
        kind = type(op)
        if kind is Acquire or kind in _LOOK_FIRST or (kind is Take and op.client):  # who waits looks often
            try:
                return self._look([op])[0]
            except MustWrite:
                pass
        return self._transact([op])[0]

    def _batch(self, ops: Sequence[Op]) -> list[Any]:
        contended = self.shared_file.contended
        if all(isinstance(op, Read) or (isinstance(op, Acquire) and op.key in contended) for op in ops):
            try:
                return self._look(ops)
            except MustWrite:
                pass
        return self._transact(ops)

    def _look(self, ops: Sequence[Op]) -> list[Any]:
        """Answers from one snapshot, without the write lock; MustWrite if any op would change something."""
        self.fixed = self.looking = True
        try:
            if len(ops) > 1:
                self.execute("BEGIN")
            self.now = self.clocks()
            return [self._step(op) for op in ops]
        finally:
            self.fixed = self.looking = False
            if len(ops) > 1:
                self._roll_back()  # nothing was changed

    def _transact(self, ops: Sequence[Op]) -> list[Any]:
        if not DURABLE.isdisjoint(map(type, ops)):
            return self._transact_durably(ops)
        plain = exchange(ops) if len(ops) >= FEWEST else None
        self._enter()
        try:
            if plain is not None and self.shared_file.contended.isdisjoint(plain[1]):
                with suppress(NotFree):
                    return self._transaction(ops, False, lambda ops: exchange_clean(self, ops, *plain))
            return self._transaction(ops, False, self._steps)
        except MustSurvive:
            return self._transaction(ops, True, self._steps)
        finally:
            self.shared_file.writing.release()

    def _transact_durably(self, ops: Sequence[Op]) -> list[Any]:
        """One wait for the disk for all threads of the store that wait to write: the first of them writes for all."""
        mine = WaitingOps(ops)
        self._waiting.append(mine)
        try:
            self._enter()
        except BaseException:
            self._leave(mine)
            raise
        try:
            if mine.replies is None:
                self._leave(mine)
                mine.replies = self._transact_for_all(ops)
            return mine.replies
        finally:
            self.shared_file.writing.release()

    def _leave(self, mine: WaitingOps) -> None:
        """Takes the ops out of the line; Unanswered if another thread took them, and it is not known what became of
        them."""
        try:
            self._waiting.remove(mine)
        except ValueError:
            text = f"the SQLite store {self.path}: the thread that wrote this for others was interrupted, or takes long"
            raise Unanswered(text) from None

    def _transact_for_all(self, ops: Sequence[Op]) -> list[Any]:
        taken: list[tuple[WaitingOps, list[Any]]] = []
        try:
            replies = self._transaction(ops, True, lambda ops: self._steps(ops) + self._steps_of_others(ops, taken))
        except NotTogether:
            self._put_back(taken)
            return self._transaction(ops, True, self._steps)
        except Unanswered:
            raise
        except FAILURES:
            self._put_back(taken)
            raise
        for other, answers in taken:
            other.replies = answers
        return replies

    def _steps_of_others(self, ops: Sequence[Op], taken: list[tuple[WaitingOps, list[Any]]]) -> list[Any]:
        """Performs what other threads wait for, as far as it fits into the transaction, and returns no replies."""
        room = MAX_BATCH - len(ops)
        for other in list(self._waiting):
            if other.alone or len(other.ops) > room:
                continue
            self._waiting.remove(other)
            answers: list[Any] = []
            taken.append((other, answers))
            room -= len(other.ops)
            try:
                answers += self._steps(other.ops)
            except FAILURES:
                other.alone = True
                raise NotTogether from None
        return []

    def _put_back(self, taken: list[tuple[WaitingOps, list[Any]]]) -> None:
        self._waiting[:0] = [other for other, _ in taken]

    def _enter(self) -> None:
        if not self.shared_file.enter(self.timeout):
            raise StoreUnavailable(f"other threads write to the SQLite store {self.path} for longer than the timeout")

    def _transaction(self, ops: Sequence[Op], durable: bool, steps: StepFunction) -> list[Any]:
        self._wait_for_disk(durable)
        self.fixed = True
        try:
            self.execute("BEGIN IMMEDIATE")  # in here: a signal that comes while it waits is raised once it has begun
            replies = self.decide(ops, steps)
            self._commit()
            return replies
        except BaseException:
            self.hints.clear()
            self._roll_back()
            raise
        finally:
            self.fixed = False

    def _roll_back(self) -> None:
        """Leaves no transaction open."""
        if self._connection is not None and self._connection.in_transaction:
            self.execute("ROLLBACK")

    def _commit(self) -> None:
        try:
            self.execute("COMMIT")
        except sqlite3.Error as error:
            doubt(self.path, error)
            raise

    def _steps(self, ops: Sequence[Op]) -> list[Any]:
        return [self._step(op) for op in ops]

    def _step(self, op: Op) -> Any:
        kind = type(op)
        shortcut = SHORTCUTS.get(kind)
        if shortcut is not None and not self.looking:
            reply = shortcut(self, op)
            if reply is not MISS:
                return reply
            self._pass_on()
        answer: Any = STEPS[kind](self, op)
        if isinstance(op, Acquire):
            self._note(op, answer)
        return answer

    def _note(self, op: Acquire, entry: Entry) -> None:
        """Remembers whether the next Acquire of this key had better look before it writes."""
        if entry.owner != op.owner:
            self.shared_file.refused(op.key)
        elif not entry.waiters:
            self.shared_file.contended.discard(op.key)
