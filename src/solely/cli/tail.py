"""Tail: the end of what a command says, kept while it is passed on."""

from __future__ import annotations

import os
import threading
from typing import IO

DRAIN = 1.0  # seconds for the last output to come through: it is in the pipe already; more may be a daemon that stays


class Tail:
    """Passes on what a pipe brings, in a thread, and keeps the last `most` bytes of it."""

    def __init__(self, source: IO[bytes], target: int, most: int) -> None:
        self._source, self._target, self._most = source, target, most
        self._kept = b""
        self._thread = threading.Thread(target=self._pass_on, name="solely-output", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """What was kept, once all has come through."""
        self._thread.join(DRAIN)
        return self._kept.decode(errors="replace")

    def _pass_on(self) -> None:
        with self._source:
            while more := os.read(self._source.fileno(), 1 << 16):
                self._kept = (self._kept + more)[-self._most :] if self._most else b""
                try:
                    while more:
                        more = more[os.write(self._target, more) :]
                except OSError:
                    continue  # nobody reads us any more; the command is not to suffer from it
