"""Terminal: given to the command's process group when it needs it, and taken back, as a shell does with its jobs."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress


class Terminal:
    """The controlling terminal, if there is one. Until it is given away, ^C and ^Z reach us, and we pass them on."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._given = False
        try:
            self._tty = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            self._tty = -1

    def stopped(self, by: int) -> None:
        """Handles a command that was stopped by this signal: gives it the terminal if it needs it, else stops as well.

        A command that is stopped by SIGSTOP keeps its lease: whoever stopped it intends to continue it.
        """
        if by in (signal.SIGTTIN, signal.SIGTTOU) and self._is_ours():
            self._give(self._group)
            self._given = True
            os.killpg(self._group, signal.SIGCONT)
        elif by != signal.SIGSTOP:
            self._suspend()

    def close(self) -> None:
        """Takes the terminal back."""
        self._take_back()
        if self._tty >= 0:
            os.close(self._tty)

    def _suspend(self) -> None:
        """Stops this process, so that the shell shows its prompt; the lease is not renewed meanwhile."""
        self._take_back()
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        # Returns when we are continued; at once without job control, since the kernel then ignores the signal.
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        os.killpg(self._group, signal.SIGCONT)

    def _is_ours(self) -> bool:
        with suppress(OSError):
            return os.tcgetpgrp(self._tty) == os.getpgrp()
        return False

    def _take_back(self) -> None:
        if self._given:
            self._given = False
            self._give(os.getpgrp())

    def _give(self, group: int) -> None:
        # Only for this call: a command that we start would inherit an ignored signal.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):  # the terminal was hung up
            os.tcsetpgrp(self._tty, group)
        signal.signal(signal.SIGTTOU, before)
