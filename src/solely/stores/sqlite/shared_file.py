"""What all handles of one file in one process share: who listens, who may write, and how to come through a fork.

SQLite keeps the locks of a process in tables of its own that a fork copies although the locks themselves stay with
the parent: a child that opens the file again would believe in locks that it does not have, and the file could be
damaged. So all connections are closed just before a fork, and each side opens new ones.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from time import monotonic
from typing import Protocol

from .. import OnHint

FORK_PATIENCE = 10.0  # seconds that a fork waits for calls in progress: twice the default timeout of one
MAX_CONTENDED = 4_096  # keys known to be contended; to forget them costs one look each


class SessionLike(Protocol):
    """What a shared file must know of a session."""

    lock: threading.Lock

    def disconnect(self) -> None: ...


class SharedFile:
    """One file, in this process."""

    def __init__(self) -> None:
        self.listeners: dict[str, OnHint] = {}
        self.contended: set[str] = set()  # keys whose last Acquire was refused: look before writing
        self.sessions: weakref.WeakSet[SessionLike] = weakref.WeakSet()
        self.broken = False  # True in a child that was forked while a connection could not be closed
        self.abandoned: list[SessionLike] = []  # then its sessions: kept, so that nothing of the parent is finalized
        self.free_locks()

    def free_locks(self) -> None:
        # Threads queue here instead of sleeping in SQLite's busy handler. It knows its owner, which stay_out() needs.
        self.writing = threading.RLock()
        self.opening = threading.Lock()  # while it is held nobody opens a connection; taken behind a session's lock
        self.gate = threading.Lock()  # held by a fork from its beginning to its end; taken before a session's lock
        self.forking = False  # True while a fork holds `gate`
        self.shut = False  # True while a fork holds `opening`
        self.stopped: list[SessionLike] = []  # sessions whose locks a fork holds

    def enter(self, timeout: float) -> bool:
        """True if this thread may write, until it calls `writing.release()`; False if others did for that long.

        A signal handler may raise as soon as the lock is ours: then it is not ours any more. Behind the return CPython
        looks for no signal before the next call, so a `try` right behind it is entered.
        """
        try:
            return self.writing.acquire(timeout=timeout)
        except BaseException:
            self.stay_out()
            raise

    def stay_out(self) -> None:
        """Gives up the right to write, if this thread came to have it."""
        with suppress(RuntimeError):  # it has not
            self.writing.release()

    def notify(self, client: str, key: str) -> None:
        """Gives a hint to a client of this process; clients of other processes poll."""
        listener = self.listeners.get(client)
        if listener is not None:
            listener(key)

    def refused(self, key: str) -> None:
        if len(self.contended) >= MAX_CONTENDED:
            self.contended.clear()
        self.contended.add(key)

    def wait_for_fork(self) -> None:
        """Returns when no fork is in progress; its caller holds no lock of a session.

        Without this, threads that call again and again would take the sessions' locks ahead of the fork.
        """
        with self.gate:
            pass

    def before_fork(self) -> None:
        """Closes every connection and lets nobody open one until the fork is over.

        The locks are taken in the order in which a call takes them: a session's, then `opening`. A session that was
        made meanwhile is closed in a further round.
        """
        self.gate.acquire()
        self.forking = True
        end = monotonic() + FORK_PATIENCE
        while self.opening.acquire(timeout=max(0.0, end - monotonic())):
            self.shut = True
            in_use = self._in_use()
            if not in_use or monotonic() >= end:
                return
            self.shut = False
            self.opening.release()
            for session in in_use:
                if session.lock.acquire(timeout=max(0.0, end - monotonic())):
                    self.stopped.append(session)
                    session.disconnect()

    def _in_use(self) -> list[SessionLike]:
        return [session for session in self.sessions if session not in self.stopped]

    def after_in_parent(self) -> None:
        stopped, self.stopped = self.stopped, []
        for session in stopped:
            session.lock.release()
        if self.shut:
            self.shut = False
            self.opening.release()
        if self.forking:
            self.forking = False
            self.gate.release()

    def after_in_child(self) -> None:
        if not self.shut or self._in_use():
            self.broken = True
            self.abandoned += self.sessions
        for session in self.sessions:
            session.lock = threading.Lock()
        self.free_locks()


_shared_files: weakref.WeakValueDictionary[str, SharedFile] = weakref.WeakValueDictionary()
_finding = threading.Lock()


def shared_file_of(path: str) -> SharedFile:
    """The SharedFile of this path: one for all, as long as anyone uses it."""
    with _finding:
        return _shared_files.setdefault(os.path.realpath(path), SharedFile())


def _before_fork() -> None:
    _finding.acquire()
    for shared_file in list(_shared_files.values()):
        shared_file.before_fork()


def _after_in_parent() -> None:
    for shared_file in list(_shared_files.values()):
        shared_file.after_in_parent()
    _finding.release()


def _after_in_child() -> None:
    global _finding
    _finding = threading.Lock()
    for shared_file in list(_shared_files.values()):
        shared_file.after_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
