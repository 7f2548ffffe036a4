"""One connection and how it performs ops: a lone op in one statement where it can, else one transaction per batch."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from ...errors import StoreError, StoreUnavailable
from ...model import Entry, Finding
from ...ops import MAX_BATCH, Ack, Acquire, Advance, Finish, Mark, Op, Read, Release, Renew, Reply, Return
from .. import transitions as t
from ..batches import exchange
from .clock import Readings
from .connection import BUSY_SLICE, connect, file_at, fit_log
from .faults import doubt, explain, is_busy
from .fences import asked, fences_for
from .health import findings, log_replaced
from .rows import MustWrite, RowView, StepFunction, page
from .shared_file import SharedFile
from .steps import ALONE, DURABLE, MISS, SHORTCUTS, STEPS, MustSurvive, NotFree, exchange_clean
from .sweep import EVERY, Sweep

# Ops that rest on what was granted before. A file that was taken away must not answer them, so each looks at the path.
_REST_ON_A_GRANT = frozenset({Ack, Finish, Release, Renew, Return})
_LOOK_FIRST = frozenset({Mark, Read, Advance})  # often answered without a change: then no writer is waited for
CLOSE_PATIENCE = 2.0  # seconds beyond the timeout that close() waits for others: a transaction and its checkpoint
FEWEST = 4  # ops that are worth asking whether they are an exchange
LOOK_EVERY = 1.0  # seconds that a file which was replaced may go unnoticed; a look takes a tenth of an op's time

Found = TypeVar("Found")


class Session(RowView):
    """Used by one thread at a time. Every failure is a StoreError; what failed was not performed, unless Unanswered."""

    def __init__(self, path: str, shared: bool, shared_file: SharedFile, readings: Readings, timeout: float) -> None:
        super().__init__(readings, t.us(5 * BUSY_SLICE))
        self.path, self.shared, self.shared_file, self.timeout = path, shared, shared_file, timeout
        self.lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # the file that is open
        self._look_again = 0.0  # when to look whether that is still the one at the path, and no transaction is open
        self._shortcuts = ALONE if readings.tick is not None else {}  # a counted fence takes a second statement
        self._swallowed: list[BaseException] = []  # by sqlite3, in next_fence()
        self._sweep = Sweep()
        self._until_sweep = EVERY
        with shared_file.opening:
            shared_file.sessions.add(self)

    # -- the connection

    def _connect(self) -> None:
        if self.shared_file.broken:
            raise StoreUnavailable(f"the SQLite store {self.path} was in use during the fork of this process")
        with self.shared_file.opening:
            there = file_at(self.path)  # before: what takes its place from now on is another one
            connection, self.base = connect(self.path, self.shared, self.readings, self.timeout)
        self._file = there or file_at(self.path)
        self.fences = fences_for(self.readings, self.base)
        connection.create_function("next_fence", 0, asked(self.fences, self._swallowed))
        self.durable = False
        connection.execute("PRAGMA synchronous = NORMAL")
        self.execute, self.execute_many = connection.execute, connection.executemany
        self.change = connection.cursor().execute
        self._connection = connection  # last: what a signal handler's exception left half made is not used

    def _make_ready(self) -> None:
        """A connection to the file that is at the path now, and in no transaction."""
        self._roll_back()  # of a call that two signals cut short
        if self._connection is not None and self._is_replaced():
            log_replaced(self.path)
            self.disconnect()
        if self._connection is None:
            self._connect()
        self._look_again = monotonic() + LOOK_EVERY

    def _is_replaced(self) -> bool:
        return file_at(self.path) != self._file

    def disconnect(self) -> None:
        """Closes the connection; the next op opens a new one."""
        connection, self._connection = self._connection, None
        self._look_again = 0.0
        self.execute = self.execute_many = self.change = None
        if connection is not None:
            connection.close()

    def _wait_for_disk(self, durable: bool) -> None:
        """FULL: a commit is on the disk before it can be seen. NORMAL: it may be lost with the power, never torn."""
        if durable is not self.durable:
            self.durable = False  # while it is not known: a signal handler may raise behind the statement
            self.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self.durable = durable

    # -- performing

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        """One reply per op. Hints go out when what they tell of is committed."""
        if self.shared_file.forking:
            self.shared_file.wait_for_fork()
        with self.lock:
            try:
                looks = monotonic() >= self._look_again or not _REST_ON_A_GRANT.isdisjoint(map(type, ops))
                if looks and (failed := self._first_look()):
                    return [failed] * len(ops)
                if len(ops) == 1 and self._until_sweep > 0:  # the commonest call, in as few steps as there can be
                    reply = self._alone(ops[0])
                    if reply is not MISS:
                        self._until_sweep -= 1
                        return [reply]
                    self._pass_on()
                replies = self._together(ops) if len(ops) <= MAX_BATCH else self._in_portions(ops)
                self._until_sweep -= len(ops)
                if self._until_sweep <= 0:
                    self._sweep_some()
                hints, self.hints = self.hints, []
            except BaseException:
                self._look_again = 0.0
                self._roll_back()
                raise
        for client, key in hints:
            self.shared_file.tell(client, key)
        return replies

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
        """Raises what a signal handler raised while a statement asked for its fence; it got none, and did nothing."""
        if self._swallowed:
            raise self._swallowed.pop()

    def _in_portions(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        starts = range(0, len(ops), MAX_BATCH)
        return [reply for start in starts for reply in self._in_place(ops[start : start + MAX_BATCH])]

    def _first_look(self) -> StoreError | None:
        try:
            self._make_ready()
        except StoreUnavailable:
            raise
        except (StoreError, sqlite3.Error) as error:
            return self._explained(error)
        return None

    def _together(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        end = 0.0
        while True:
            try:
                if end:
                    self._let_fork_pass()
                if self._connection is None:
                    self._make_ready()
                return [self._lone(ops[0])] if len(ops) == 1 else self._batch(ops)
            except StoreUnavailable:
                raise
            except (StoreError, sqlite3.Error, ValueError, OverflowError) as error:
                if is_busy(error):
                    end = end or monotonic() + self.timeout
                    if monotonic() < end:
                        continue
                explained = self._explained(error)
                if len(ops) == 1:
                    return [explained]
                return [reply for op in ops for reply in self._in_place([op])]  # each stands or fails alone

    def _let_fork_pass(self) -> None:
        """Between two tries, when no transaction is open: a fork need not wait for the processes that keep us busy."""
        if self.shared_file.forking:
            self.lock.release()
            try:
                self.shared_file.wait_for_fork()
            finally:
                self.lock.acquire()

    def _in_place(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        """As one of several transactions: what another one has performed stands, so nothing may be raised."""
        try:
            return self._together(ops)
        except StoreUnavailable as error:
            return [error for _ in ops]

    def _explained(self, error: Exception) -> StoreError:
        """The StoreError in the op's place; raised if it is that the store cannot be had at all."""
        explained = error if isinstance(error, StoreError) else explain(self.path, error)
        if isinstance(explained, StoreUnavailable):
            raise explained from error
        return explained

    def _lone(self, op: Any) -> Any:
        kind = type(op)
        if kind is Acquire or kind in _LOOK_FIRST:
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
        plain = exchange(ops) if len(ops) >= FEWEST else None
        self._enter()
        try:
            if plain is not None and self.shared_file.contended.isdisjoint(plain[1]):
                with suppress(NotFree):
                    return self._transaction(ops, False, lambda ops: exchange_clean(self, ops, *plain))
            return self._transaction(ops, not DURABLE.isdisjoint(map(type, ops)), self._steps)
        except MustSurvive:
            return self._transaction(ops, True, self._steps)
        finally:
            self.shared_file.writing.release()

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

    # -- beside ops

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """A page of entries in key order, as of now."""
        return self._beside(lambda: page(self.execute, self.clocks(), prefix, after, limit))

    def check(self) -> list[Finding]:
        """What is known of the file, its disk and its clock."""
        self.shared_file.wait_for_fork()
        with self.lock:
            replaced = self._connection is not None and self._is_replaced()
        return self._beside(lambda: findings(self.path, replaced, self.execute, self.readings))

    def _beside(self, look: Callable[[], Found]) -> Found:
        end = monotonic() + self.timeout
        self.shared_file.wait_for_fork()
        with self.lock:
            while True:
                try:
                    self._make_ready()
                    return look()
                except sqlite3.Error as error:
                    if not is_busy(error) or monotonic() > end:
                        raise explain(self.path, error) from error
                self._let_fork_pass()

    def _sweep_some(self) -> None:
        """Forgets a few rows that no longer matter. What hinders it hinders no op: the next sweep tries again."""
        self._until_sweep = EVERY
        if not self.shared_file.enter(0.0):
            return
        try:
            self._wait_for_disk(False)
            self.now = self.clocks()
            self._sweep.run(self.execute, self.now)
            fit_log(self.execute)
        except BaseException as error:
            self._roll_back()
            if not isinstance(error, sqlite3.Error):
                raise
        finally:
            self.shared_file.writing.release()
