"""Rotation: the file of tokens is read again when it changes, in every worker, without a restart."""

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

LOOK = 1.0  # seconds between looks at the file: who removes a token waits no longer than that for its end
Seen = tuple[int, int, int] | None  # inode, size and time of change: the file as it was; None if it was not there


async def keep_reading(service: Service) -> None:
    """Looks at the file every LOOK seconds; returns at once if there is none."""
    watch = TokensWatch(service)
    while service.settings.tokens_file:
        await watch.look()
        await asyncio.sleep(LOOK)


class TokensWatch:
    """The file of tokens as this worker saw it last."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: Seen = (0, 0, 0)  # as no file is: the first look reads it, should it have changed since the start

    async def look(self) -> None:
        """Takes the tokens of the file over if it changed. One that cannot be keeps the old ones valid, and is told
        once, until it changes again."""
        path = self._service.settings.tokens_file
        seen = await asyncio.to_thread(_seen, path)  # not on the loop: the file may be on a network that hangs
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take_over(await asyncio.to_thread(self._service.settings.token_lines))
        except InvalidInput as error:
            log.error("tokens_not_read", file=path, error=f"{error}; until that is right, the old tokens stay valid")

    def _take_over(self, lines: list[str]) -> None:
        service = self._service
        if service.tokens and not lines:
            raise InvalidInput("no token would be left, and everybody could do everything; to have none, restart")
        before = set(service.tokens.principals)
        service.tokens.replace(lines)
        after = set(service.tokens.principals)
        if before != after:
            service.connections.recheck(service.tokens)
            service.openapi = {}  # which says whether tokens are needed
            log.warning("tokens_changed", added=_names(after - before), removed=_names(before - after))


def _seen(path: str) -> Seen:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _names(principals: set[Principal]) -> list[str]:
    return sorted(each.name for each in principals)
