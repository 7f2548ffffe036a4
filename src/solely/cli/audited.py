"""What the command line does to what others hold goes into the audit log of the store, beside what the service did."""

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


class Audit:
    """Writes the audit log of this store. An action whose record cannot be written is not to be done.

    A service that is used as a store keeps the log itself, under the name of the token that it was given.
    """

    def __init__(self, url: str, store: Store) -> None:
        self._store = store
        self._by_service = capabilities(url).audits
        self._trimmed = False

    def record(self, action: str, key: str, reason: str) -> None:
        """Keeps the record before the action is done; StoreError if it cannot."""
        if self._by_service:
            return
        made = new_record(whoami(), action, key, reason)
        self._perform([Push(QUEUE, made["id"], json.dumps(made).encode())])
        if not self._trimmed:  # once a command: it is rare, and each may leave only few behind
            self._trimmed = True
            self._trim()

    def _trim(self) -> None:
        """Drops what is older than the newest KEPT records."""
        newest = self._store.scan(PREFIX, "", KEPT)
        older = self._store.scan(PREFIX, newest[-1].key, MAX_BATCH) if len(newest) == KEPT else []
        if older:
            self._perform(dropping(older))

    def _perform(self, ops: list[Op]) -> None:
        for reply in self._store.perform(ops):
            if isinstance(reply, StoreError):
                raise reply


def whoami() -> str:
    """`cli:user@host`: whose process this is, whatever the environment says."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in containers that run under a number
        user = str(os.getuid())
    return f"cli:{user}@{socket.gethostname()[:_HOST]}"
