"""A file that a stale holder cannot overwrite, on any file system that supports flock.

Beside `report.json` are `report.json.fence` (the highest fence so far) and `report.json.lock` (held during a write).
Do not delete either while a holder may still write.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import Busy, StoreFailed
from ..rules import Seconds, wait_seconds
from .order import encoded, stale

RETRY = 0.005  # seconds between tries for the lock: a small file is written and synced in about that time


class FencedFile:
    """A file that is replaced as a whole or not at all, and never by a stale holder.

    `write` raises StaleFence for such a holder, and Busy if another process is in its own `write` for `wait` seconds.
    A process that is killed leaves the old content or the new one, and a fence that is never too small.
    """

    def __init__(self, path: str | os.PathLike[str], *, wait: Seconds = 10.0) -> None:
        self.path = Path(os.path.realpath(path))  # replaces the target of a link, not the link
        self._wait = wait_seconds(wait)

    def write(self, data: bytes, *, fence: int) -> None:
        """Returns when the content is on the disk."""
        offered = encoded(fence)
        with self._locked():
            stored = self.fence()
            if stored > fence:
                raise stale(str(self.path), fence, stored)
            if stored < fence:  # first: a crash before the content is written then refuses too much, never too little
                _replace(self._beside("fence"), offered)
            _replace(self.path, data)

    def read(self) -> bytes:
        """The content; FileNotFoundError if there is none."""
        return self.path.read_bytes()

    def fence(self) -> int:
        """The highest fence so far; 0 if there was none."""
        file = self._beside("fence")
        try:
            return int(file.read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError:
            raise StoreFailed(f"{file} holds no fence: another program wrote it; restore it", key=str(file)) from None

    def _beside(self, kind: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{kind}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock, which the kernel releases if the process dies."""
        descriptor = os.open(self._beside("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        ends = time.monotonic() + self._wait
        while True:
            with suppress(BlockingIOError):
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.monotonic() >= ends:
                text = f"{self.path} has been in another process's write for {self._wait:g} s, which may be paused"
                raise Busy(text, key=str(self.path))
            time.sleep(RETRY)


def _replace(path: Path, data: bytes) -> None:
    """Replaces the file atomically, on the disk. The caller holds the lock, so a partial draft is overwritten."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("wb") as file:
        with suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
