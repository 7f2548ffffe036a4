"""Process groups that end as a whole, with the processes that left the group while the one that started them still ran.

Run as a script, this file is the guard of a program: it starts the program in a session of its own, and ends as the
program does. At the end of a pipe, which comes at the latest when the process that runs the guard is killed, it ends
the program's group. It knows the group before the program runs: there is no moment at which a kill leaves the program
behind. Signals for the program do not reach the guard. So it imports the standard library alone, and little of that.

On Linux the guard adopts the daemons that the program makes, so that it ends these too; and the program does not
outlive a guard that is killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_POLL = 0.02  # seconds between two looks whether it has ended: the guard waits for one program only
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NOT_STARTED = 127  # as in shells
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of prctl


class ProcessGroup:
    """A process group, and what its processes have started in groups of their own, as `timeout` and `setsid` do.

    On systems without /proc only the group is known. A daemon whose parent has ended is found if it is a descendant of
    `adopter`, the process that gets such orphans.
    """

    def __init__(self, id: int, adopter: int = 0) -> None:
        self.id = id
        self._adopter = adopter
        self._others: dict[int, bytes] = {}  # by pid, with the time of their start: another may get the pid later

    def send(self, number: int) -> None:
        """Sends the signal to all of them that run; those that were found once are remembered."""
        self._find_others()
        # The group first: a shell whose child has ended before its own signal came would run its next command.
        if number == signal.SIGKILL and os.getpgrp() == self.id:
            self._send_to_others(number)
            self._send_to_group(number)  # which ends this process, too
        else:
            self._send_to_group(number)
            self._send_to_others(number)

    def _send_to_group(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError for a zombie's group
            os.killpg(self.id, number)

    def _send_to_others(self, number: int) -> None:
        for pid, start in self._others.items():
            found = _status(pid)
            if found is not None and found[2] == start:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def _find_others(self) -> None:
        """Finds the processes outside the group whose parents, or theirs, are of the group or were found before."""
        try:
            pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        except OSError:
            return
        running = {pid: found for pid in pids if (found := _status(pid)) is not None}
        ours = {pid for pid, (_, group, start) in running.items() if group == self.id or self._others.get(pid) == start}
        ours |= running.keys() & {self._adopter}
        while more := {pid for pid, (parent, _, _) in running.items() if parent in ours} - ours:
            ours |= more
        ours -= {os.getpid()}
        self._others |= {pid: running[pid][2] for pid in ours if running[pid][1] != self.id}


def _status(pid: int) -> tuple[int, int, bytes] | None:
    """Its parent, its group, and when it started; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (int(fields[1]), int(fields[2]), fields[19])


def _guard(line: int, given: int, program: list[str]) -> None:
    content = os.pread(given, os.fstat(given).st_size, 0)
    environment = dict(each.split(b"=", 1) for each in content.split(b"\0") if each)
    os.ftruncate(given, 0)
    for file in (line, given):
        os.set_inheritable(file, False)
    for each in _IGNORED:
        signal.signal(each, signal.SIG_IGN)
    control = _process_control()
    control(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    exited, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    started, starts = os.pipe()
    child = os.fork()
    if child == 0:
        control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        _become(program, environment, given)
    os.close(starts)
    os.read(started, 1)
    _exit_like(_status_at_the_end(child, line, exited))


def _process_control() -> Any:
    """prctl; on systems without it, a function that does nothing."""
    try:
        import ctypes  # here, as only the guard needs it

        return ctypes.CDLL(None).prctl
    except (ImportError, AttributeError, OSError, TypeError):
        return lambda *arguments: None


def _status_at_the_end(child: int, line: int, exited: int) -> int:
    """The status of the child, once it has ended, or was ended at the end of the line. One that is stopped has not
    ended; its orphans that end are forgotten."""
    status = None
    while status is None:
        ready = select.select([line, exited], [], [])[0]
        if exited in ready:
            os.read(exited, 4096)
        status = _reaped(child)
        if status is None and line in ready:
            status = _end(child)
    return status


def _reaped(child: int) -> int | None:
    """The status of the child, if it has ended since the last call."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = ended[1] if ended[0] == child else status
    return status


def _become(program: list[str], environment: dict[bytes, bytes], given: int) -> None:
    """Runs the program in place of this process; the number of the error is left in the file."""
    try:
        os.setsid()
        for each in (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(each, signal.SIG_DFL)
        os.execvpe(program[0], program, environment)  # nosec B606 - the program comes from whoever started us
    except OSError as error:
        os.pwrite(given, str(error.errno).encode(), 0)
    finally:
        os._exit(_NOT_STARTED)


def _end(child: int) -> int:
    """Ends the group that the child leads: within the grace by itself, or else by force. Returns its status."""
    group = ProcessGroup(child, os.getpid())
    group.send(signal.SIGTERM)
    group.send(signal.SIGCONT)  # a stopped process does not handle SIGTERM
    until, status = time.monotonic() + GRACE, None
    while status is None and time.monotonic() < until:
        time.sleep(_POLL)
        status = _reaped(child)
    group.send(signal.SIGKILL)
    if status is None:
        status = os.waitpid(child, 0)[1]
    until += GRACE
    while _has_children() and time.monotonic() < until:  # orphans, and what began since we looked
        group.send(signal.SIGKILL)
        time.sleep(_POLL)
    return status


def _has_children() -> bool:
    """True if there are processes that this one started or adopted and that have not ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _exit_like(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource  # no core file of the guard

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
