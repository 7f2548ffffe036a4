"""Writes the commands that change what others hold to the audit log of the store, which the service writes too; and
`solely audit`, which lists it."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import click

from ..audit import DONE, FAILED, KEPT, PREFIX, appending, completing, dropping, new_record
from ..errors import StoreError
from ..formats import read_record
from ..ops import MAX_BATCH, Op
from ..stores import Store, capabilities
from .help import Command
from .options import StoreOptions, at_store, in_form
from .output import Form, Row, talk

_HOST = 64  # characters of a host's name: as many as Linux allows


class CommandAct:
    """An act that is under way: set its outcome, which is `done` otherwise."""

    outcome = DONE


class CommandAudit:
    """The audit log of this store. A service that is used as a store writes the log itself, under the name of the
    caller's token."""

    def __init__(self, url: str, store: Store) -> None:
        self._store = store
        self._by_service = capabilities(url).audits
        self._trimmed = False

    @contextmanager
    def acting(self, action: str, key: str, reason: str) -> Iterator[CommandAct]:
        """Writes the record before the action is done, and its outcome afterwards; an error is the outcome, too. Raises
        StoreError, and the action is not done, if the record cannot be written."""
        act, record = CommandAct(), new_record(whoami(), action, key, reason)
        if self._by_service:
            yield act
            return
        self._perform([appending(record)])
        if not self._trimmed:  # once per command: commands are rare, and each adds few records
            self._trimmed = True
            self._trim()
        try:
            yield act
        except Exception as error:
            self._complete(record, f"{FAILED}{error}")
            raise
        self._complete(record, act.outcome)

    def _complete(self, record: Row, outcome: str) -> None:
        """Writes the outcome; if that fails, says so: the action is over."""
        try:
            self._perform([completing(record, outcome)])
        except StoreError as error:
            talk(f"solely: the audit log does not have the outcome, {outcome}: {error}")

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


@click.command(cls=Command, examples=["solely audit", "solely audit --limit 10 --json"])
@click.option("--after", default="", metavar="ID", help="Start after this record.")
@click.option("--limit", type=click.IntRange(1, KEPT), default=50, show_default=True, help="Number of rows.")
@in_form
@at_store
def audit(options: StoreOptions, form: Form, after: str, limit: int) -> None:
    """Who changed what others hold, why, and what became of it, newest first. One that stays `started` was interrupted:
    it may have been done."""
    with closing(options.store()) as store:
        found = store.scan(PREFIX, PREFIX + after if after else "", limit)
    rows = [_row(entry.key.removeprefix(PREFIX), entry.value or b"") for entry in found]
    form.rows(rows, ("at", "who", "action", "key", "outcome", "reason"), ("id",))
    if len(found) == limit:
        talk(f"there may be more: --after {rows[-1]['id']!r}")


def _row(id: str, value: bytes) -> Row:
    """The record; for an unreadable one, the reason says so."""
    try:
        facts = read_record(value)
    except ValueError as error:
        return {
            "id": id,
            "at": None,
            "who": "",
            "action": "",
            "key": "",
            "reason": f"unreadable: {error}",
            "outcome": "",
        }
    return {"outcome": "", **facts, "at": datetime.fromtimestamp(facts["at"], UTC)}
