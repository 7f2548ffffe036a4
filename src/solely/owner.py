"""Owner ids: 128 random bits per attempt, never a host name or a pid, never the same in two processes."""

from __future__ import annotations

import os

_AT_ONCE = 256  # ids drawn per system call, which can cost as much as a round trip


class Owners:
    """Generates ids on any thread; the child of a fork draws its own."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def fresh(self) -> str:
        """A new id: 128 random bits as 32 hex digits."""
        try:
            return self._drawn.pop()
        except IndexError:
            text = os.urandom(16 * _AT_ONCE).hex()
            ids = [text[at : at + 32] for at in range(32, len(text), 32)]
            self._drawn.extend(ids)
            return text[:32]

    def forget(self) -> None:
        """Discards the ids drawn so far: in the child of a fork they belong to the parent."""
        self._drawn = []


_owners = Owners()
fresh_owner = _owners.fresh
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_owners.forget)
