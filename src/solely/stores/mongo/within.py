"""Ops inside a transaction of the caller's: they commit or abort with what the caller writes there.

Others see nothing of them before the commit. Meanwhile a second transaction that touches the same key is aborted at
once by a conflict, and an op outside of any transaction waits for the commit, as long as its timeout allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bson.errors import BSONError
from pymongo.errors import PyMongoError

from ...errors import InvalidInput, SolelyError, StoreError, StoreUnavailable
from ...ops import Op, Reply
from .batch import CommandSteps, MongoBatch
from .commands import Commands
from .faults import ABORTED, aborted


class Aborted(StoreUnavailable, PyMongoError):
    """A StoreUnavailable on which pymongo's with_transaction runs the transaction again, as on an error of its own."""

    def __init__(self, message: str) -> None:
        StoreUnavailable.__init__(self, message)
        PyMongoError.__init__(self, message, error_labels=(ABORTED,))


@contextmanager
def repeatable() -> Iterator[None]:
    """Raises Aborted where it would be StoreUnavailable: nothing of the transaction was performed."""
    try:
        yield
    except StoreUnavailable as error:
        raise Aborted(str(error)) from None


class InTransaction(MongoBatch):
    """A batch whose commands belong to a transaction: an error ends all of it, and then nothing was performed."""

    def __init__(self, commands: Commands, server: str, session: Any, kind: type[Any]) -> None:
        super().__init__(commands.in_transaction(), server, None)
        if not isinstance(session, kind):
            raise InvalidInput(
                "within() on MongoDB takes pymongo's ClientSession (of a Client) or AsyncClientSession (of an "
                f"AsyncClient): here a {kind.__name__}, not {type(session).__name__}"
            )
        if not session.in_transaction:
            raise InvalidInput("the session is in no transaction; begin one with session.start_transaction()")

    def perform_all(self, ops: Sequence[Op]) -> CommandSteps[list[Reply]]:
        """One reply per op; raises StoreUnavailable if the transaction was aborted and is to be run again."""
        replies: list[Reply] = []
        for reply in (yield from self.perform(ops)):
            if isinstance(reply, StoreError):
                raise reply
            replies.append(reply)
        return replies

    def _fault(self, error: PyMongoError | BSONError) -> SolelyError:
        return aborted(self._server, error)
