"""Every test is asked at its end what it left open, so that the guilty one fails and not the one in which the garbage
collector happens to find it: transports, sockets and files that were never closed, other descriptors, and tasks,
threads and programs that still run. Connections and threads that a fixture of the module may close are looked at when
that has ended; the failure then names the test in which each was opened."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import forkserver, resource_tracker
from typing import Any

import pytest
import uvloop

from tests.forked import shared_descriptors, shared_programs

# Tests between two looks at everything: what is alive after a test is not looked at again until then. Otherwise the
# collector would stop a test for up to half a second, since thousands of items and reports are alive in a run; and
# leases that are to be renewed within that time would be lost.
_WHOLE_AFTER = 200
_FIXTURE = "no_task_is_left"
# Seconds after which a task, a descriptor or a thread is left for good: what is closed by another thread, or ends with
# a connection, is gone within milliseconds, and only a guilty test waits so long.
GONE_WITHIN = 30.0
_LOOK_EVERY = 0.02  # seconds
# Begin the names of threads that one test starts for all: they are those of executors that live as long as a worker.
_SHARED_THREADS = (
    "server-starter", "blocking", "solely-data", "solely-resolve", "solely-patterns", "asyncio_", "ThreadPoolExecutor",
)  # fmt: skip
# pymongo's end within a second of the close of their client, and so do their connections: a module waits for it once.
_CLOSING_THREADS = ("pymongo_",)

# A thread, a program, or a descriptor with the device and number of its file.
Opened = threading.Thread | subprocess.Popen[Any] | tuple[int, int, int]
Open = set[Opened]


class Programs:
    """The programs that this process has started and that still run."""

    def __init__(self) -> None:
        self._started: weakref.WeakSet[subprocess.Popen[Any]] = weakref.WeakSet()
        self._guard = threading.Lock()

    def watch(self) -> None:
        """Notes each one that is started from now on."""
        start = subprocess.Popen.__init__

        def noted(program: subprocess.Popen[Any], *words: Any, **options: Any) -> None:
            start(program, *words, **options)
            with self._guard:
                self._started.add(program)

        subprocess.Popen.__init__ = noted  # type: ignore[assignment, method-assign]

    def running(self) -> set[subprocess.Popen[Any]]:
        with self._guard:
            return {each for each in self._started if self._runs(each)}

    def _runs(self, program: subprocess.Popen[Any]) -> bool:
        """True until it has ended; whoever waits for it still gets its exit code."""
        if program.returncode is not None:
            return False
        with suppress(ChildProcessError):  # somebody else has waited for it
            return os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return False


PROGRAMS = Programs()


def collected(whole: bool) -> list[str]:
    """Destroys what this test has left behind; returns what complained about not having been closed. If `whole`, also
    of what earlier tests have left, which something kept alive until now."""
    found: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda what: found.append(f"{what.exc_value} ({what.err_msg or 'in'} {what.object!r})")
    try:
        gc.collect()
        if whole:
            own = len(found)
            gc.unfreeze()
            gc.collect()
            found[own:] = [
                f"{each}; it may be of one of the {_WHOLE_AFTER} tests before this one" for each in found[own:]
            ]
    finally:
        sys.unraisablehook = before
    gc.freeze()
    return found


def opened() -> Open:
    """The threads and programs that run, and the descriptors that are open."""
    found: Open = {*threading.enumerate(), *PROGRAMS.running()}
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # that of the list itself is closed again
            file = os.fstat(int(name))
            found.add((int(name), file.st_dev, file.st_ino))
    return found


def is_closing(each: Opened) -> bool:
    return isinstance(each, threading.Thread) and each.name.startswith(_CLOSING_THREADS)


def is_socket(each: Opened) -> bool:
    return isinstance(each, tuple) and _link(each[0]).startswith("socket:")


def may_be_shared(each: Opened, item: pytest.Item) -> bool:
    """True if a fixture may have opened it for a test, and keeps it for the next: a connection, a thread, a server that
    was started again, or a file in a temporary folder that is not the test's own, such as that of a database."""
    if isinstance(each, threading.Thread | subprocess.Popen) or is_socket(each):
        return True
    begin, _, path = _link(each[0]).partition(f"{item.config._tmp_path_factory.getbasetemp()}/")  # type: ignore[attr-defined]
    own = re.sub(r"\W", "_", item.name)[:30]  # how pytest begins the name of `tmp_path`
    return begin == "" and path != "" and not path.startswith(own)


def _link(descriptor: int) -> str:
    with suppress(OSError):  # it is closed again
        return os.readlink(f"/dev/fd/{descriptor}")
    return ""


def left_open(known: Open, *, stays: Callable[[Open], Open] = lambda left: set()) -> tuple[Open, list[str]]:
    """What is open beside what is known and what may stay; and the errors of the threads that end meanwhile."""
    found: list[str] = []
    ends = time.monotonic() + GONE_WITHIN
    with _thread_errors(found):
        while True:
            left = {each for each in opened() - known if not _is_shared(each)}
            left -= stays(left)
            if not left or time.monotonic() > ends:
                return left, found
            time.sleep(_LOOK_EVERY)


def _is_shared(each: Opened) -> bool:
    if isinstance(each, threading.Thread):
        return each.name.startswith(_SHARED_THREADS)
    if isinstance(each, subprocess.Popen):
        return each in shared_programs
    # The process from which `multiprocessing` forks, and the one that removes what others leave, end with this one.
    forks = (forkserver._forkserver._forkserver_alive_fd, resource_tracker._resource_tracker._fd)  # type: ignore[attr-defined]
    return each[0] in shared_descriptors or each[0] in forks


def described(each: Opened) -> str:
    if isinstance(each, threading.Thread):
        return f"a thread that still runs: {each!r}"
    if isinstance(each, subprocess.Popen):
        return f"a program that still runs: {each.pid} {each.args!r:.200}"
    return f"descriptor {each[0]}: {_link(each[0]) or 'closed meanwhile'}"


@contextmanager
def _thread_errors(found: list[str]) -> Iterator[None]:
    before = threading.excepthook
    threading.excepthook = lambda what: found.append(f"a thread raised {what.exc_value!r}: {what.thread!r}")
    try:
        yield
    finally:
        threading.excepthook = before


async def all_tasks_ended() -> None:
    """Returns once this task is the only one of its event loop; fails if others do not end."""
    ends = time.monotonic() + GONE_WITHIN
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        if time.monotonic() > ends:
            pytest.fail("tasks still run: " + ", ".join(sorted(repr(each) for each in others)), pytrace=False)
        await asyncio.wait(others, timeout=GONE_WITHIN)


class LeakCheck:
    """The plugin of pytest."""

    def __init__(self) -> None:
        PROGRAMS.watch()
        self._ended = 0
        self._known: Open = set()  # what was open before the test, or belongs to fixtures that outlive it
        self._is_shared = False  # True while a fixture of the module has something open
        # What such fixtures, or pymongo, close later; and the test in which it was opened.
        self._later: dict[Opened, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Has every test that runs in an event loop looked at there, after all its other fixtures have ended."""
        for item in items:
            if isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.obj):
                item.fixturenames.insert(0, _FIXTURE)

    def pytest_collection_finish(self) -> None:
        uvloop.new_event_loop().close()  # the first one opens a pipe for all
        collected(whole=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self._known = opened()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = opened()
        try:
            return (yield)
        finally:
            new = opened() - before
            self._known |= new
            self._is_shared |= bool(new) and fixturedef.scope != "session"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        is_last = nextitem is None or nextitem.path != item.path  # of its module, whose fixtures end with it
        later = self._later
        try:
            yield
        finally:
            if is_last:
                self._known -= later.keys()
                self._is_shared, self._later = False, {}
        self._ended += 1
        found = collected(whole=self._ended % _WHOLE_AFTER == 0)
        left, errors = left_open(self._known, stays=(lambda left: set()) if is_last else partial(self._stays, item))
        if not is_last:
            kept = {each for each in opened() - self._known - left if not _is_shared(each)}
            self._later |= dict.fromkeys(kept, item.nodeid)
        found += errors + sorted(described(each) + _opened_in(later.get(each, item.nodeid), item) for each in left)
        if found:
            pytest.fail(f"{item.nodeid} left open:\n" + "\n".join(found), pytrace=False)

    def _stays(self, item: pytest.Item, left: Open) -> Open:
        """What is closed later: what a fixture of the module has opened; threads and connections of pymongo."""
        if self._is_shared:
            return {each for each in left if may_be_shared(each, item)}
        return {each for each in left if is_closing(each) or is_socket(each)} if any(map(is_closing, left)) else set()


def _opened_in(test: str, item: pytest.Item) -> str:
    return "" if test == item.nodeid else f", opened in {test}"
