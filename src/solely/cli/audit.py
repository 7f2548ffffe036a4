"""Writes the commands that change what others hold to the audit log of the store, which the service writes too."""

from __future__ import annotations

import json
import os
import pwd
import socket

from ..audit import KEPT, PREFIX, QUEUE, dropping, new_record
from ..errors import StoreError
from ..ops import MAX_BATCH, Op, Push
from ..stores import Store, capabilities

_HOST = 64  # characters of a host's name: as many as Linux allows


class CommandAudit:
    """The audit log of this store. Record an action before you do it; if that fails, do not do it.

    A service that is used as a store writes the log itself, under the name of the caller's token.
    """

    def __init__(self, url: str, store: Store) -> None:
        self._store = store
        self._by_service = capabilities(url).audits
        self._trimmed = False

    def record(self, action: str, key: str, reason: str) -> None:
        """Writes the record; StoreError if that fails."""
        if self._by_service:
            return
        made = new_record(whoami(), action, key, reason)
        self._perform([Push(QUEUE, made["id"], json.dumps(made).encode())])
        if not self._trimmed:  # once per command: commands are rare, and each adds few records
            self._trimmed = True
            self._trim()

    def _trim(self) -> None:
        """Removes all but the newest KEPT records."""
        newest = self._store.scan(PREFIX, "", KEPT)
        older = self._store.scan(PREFIX, newest[-1].key, MAX_BATCH) if len(newest) == KEPT else []
        if older:
            self._perform(dropping(older))

    def _perform(self, ops: list[Op]) -> None:
        for reply in self._store.perform(ops):
            if isinstance(reply, StoreError):
                raise reply


def whoami() -> str:
    """`cli:user@host`: the owner of this process, regardless of the environment."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in containers that run under a bare user id
        user = str(os.getuid())
    return f"cli:{user}@{socket.gethostname()[:_HOST]}"
