"""How a call performs ops on one connection: tries again while others write, lets a fork pass, sweeps now and then."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from ...errors import StoreError, StoreUnavailable
from ...model import Entry, Finding
from ...ops import MAX_BATCH, Ack, Finish, Op, Release, Renew, Reply, Resume, Return
from .clock import Readings
from .connection import fit_log
from .faults import explain, is_busy
from .health import findings, log_replaced
from .rows import page
from .shared_file import SharedFile
from .steps import MISS
from .sweep import EVERY, Sweep
from .transactions import FAILURES, FileTransactions, WaitingOps

# Ops that rest on what was granted before. A file that was taken away must not answer them, so each looks at the path.
_REST_ON_A_GRANT = frozenset({Ack, Finish, Release, Renew, Resume, Return})
CLOSE_PATIENCE = 2.0  # seconds beyond the timeout that close() waits for others: a transaction and its checkpoint
LOOK_EVERY = 1.0  # seconds that a file which was replaced may go unnoticed; a look takes a tenth of an op's time

Found = TypeVar("Found")


class Session(FileTransactions):
    """Used by one thread at a time. Every failure is a StoreError; what failed was not performed, unless Unanswered."""

    def __init__(
        self,
        path: str,
        shared: bool,
        shared_file: SharedFile,
        readings: Readings,
        timeout: float,
        waiting: list[WaitingOps] | None = None,
    ) -> None:
        super().__init__(path, shared, shared_file, readings, timeout, [] if waiting is None else waiting)
        self.lock = threading.Lock()
        self._look_again = 0.0  # when to look whether the open file is still at the path, and no transaction is open
        self._sweep = Sweep()
        self._until_sweep = EVERY
        with shared_file.opening:
            shared_file.sessions.add(self)

    def disconnect(self) -> None:
        """Closes the connection; the next op opens a new one."""
        self._look_again = 0.0
        super().disconnect()

    # -- the connection

    def _make_ready(self) -> None:
        """A connection to the file that is at the path now, and in no transaction."""
        self._roll_back()  # of a call that two signals cut short
        if self._connection is not None and self._is_replaced():
            log_replaced(self.path)
            self.disconnect()
        if self._connection is None:
            self._connect()
        self._look_again = monotonic() + LOOK_EVERY

    # -- performing

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        """One reply per op. Hints are delivered when what they report is committed."""
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
            self.shared_file.notify(client, key)
        return replies

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
            except FAILURES as error:
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
        """The StoreError in the op's place; raised if the store is unavailable."""
        explained = error if isinstance(error, StoreError) else explain(self.path, error)
        if isinstance(explained, StoreUnavailable):
            raise explained from error
        return explained

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
