"""Token rotation: every worker reads the token file again when it changes, without a restart."""

from __future__ import annotations

import asyncio
import os

import structlog

from ..errors import InvalidInput
from .connections import Connections
from .security import Principal, Tokens
from .settings import Settings

log = structlog.get_logger("solely.tokens")

CHECK_EVERY = 1.0  # seconds between checks of the file: a removed token is invalid after that
FileState = tuple[int, int, int] | None  # inode, size and time of change; None if there is no file


class TokenFileWatch:
    """The token file as this worker last read it."""

    def __init__(self, settings: Settings, tokens: Tokens, connections: Connections) -> None:
        self._settings = settings
        self._tokens = tokens
        self._connections = connections
        self._state: FileState = (0, 0, 0)  # of no file, so that the first check reads it

    async def run(self) -> None:
        """Checks the file every CHECK_EVERY seconds; returns at once if the settings name none."""
        while self._settings.tokens_file:
            await self.check()
            await asyncio.sleep(CHECK_EVERY)

    async def check(self) -> None:
        """Replaces the tokens if the file changed. If it is invalid, the old tokens stay valid, and one error is logged
        until it changes again."""
        path = self._settings.tokens_file
        state = await asyncio.to_thread(_state, path)  # not on the loop: the file may be on a network that hangs
        if state == self._state:
            return
        self._state = state
        try:
            self._replace(await asyncio.to_thread(self._settings.token_lines))
        except InvalidInput as error:
            log.error("tokens_not_read", file=path, error=f"{error}; the old tokens stay valid until this is fixed")

    def _replace(self, lines: list[str]) -> None:
        if self._tokens and not lines:
            raise InvalidInput("no token would be left, and everybody could do everything; to have none, restart")
        before = set(self._tokens.principals)
        self._tokens.replace(lines)
        after = set(self._tokens.principals)
        if before != after:
            self._connections.recheck(self._tokens)
            log.warning("tokens_changed", added=_names(after - before), removed=_names(before - after))


def _state(path: str) -> FileState:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _names(principals: set[Principal]) -> list[str]:
    return sorted(each.name for each in principals)
