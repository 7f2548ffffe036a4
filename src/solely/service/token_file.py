"""Token rotation: every worker reads the token file again when it changes, without a restart."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import structlog

from ..errors import InvalidInput

if TYPE_CHECKING:
    from .security import Principal
    from .service import Service

log = structlog.get_logger("solely.tokens")

CHECK_EVERY = 1.0  # seconds between checks of the file: a removed token is invalid after that
FileState = tuple[int, int, int] | None  # inode, size and time of change; None if there is no file


async def watch_token_file(service: Service) -> None:
    """Checks the file every CHECK_EVERY seconds; returns at once if the settings name none."""
    watch = TokenFileWatch(service)
    while service.settings.tokens_file:
        await watch.check()
        await asyncio.sleep(CHECK_EVERY)


class TokenFileWatch:
    """The token file as this worker last read it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._state: FileState = (0, 0, 0)  # of no file, so that the first check reads it

    async def check(self) -> None:
        """Replaces the tokens if the file changed. If it is invalid, the old tokens stay valid, and one error is logged
        until it changes again."""
        path = self._service.settings.tokens_file
        state = await asyncio.to_thread(_state, path)  # not on the loop: the file may be on a network that hangs
        if state == self._state:
            return
        self._state = state
        try:
            self._replace(await asyncio.to_thread(self._service.settings.token_lines))
        except InvalidInput as error:
            log.error("tokens_not_read", file=path, error=f"{error}; the old tokens stay valid until this is fixed")

    def _replace(self, lines: list[str]) -> None:
        service = self._service
        if service.tokens and not lines:
            raise InvalidInput("no token would be left, and everybody could do everything; to have none, restart")
        before = set(service.tokens.principals)
        service.tokens.replace(lines)
        after = set(service.tokens.principals)
        if before != after:
            service.connections.recheck(service.tokens)
            service.openapi = {}  # it says whether tokens are required
            log.warning("tokens_changed", added=_names(after - before), removed=_names(before - after))


def _state(path: str) -> FileState:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _names(principals: set[Principal]) -> list[str]:
    return sorted(each.name for each in principals)
