"""sqlite:///path — one file, shared by all processes of one host. The default where there is no server.

`sqlite:///relative/path` and `sqlite:////absolute/path`; percent-escapes are decoded. The folder must exist. With
`?shared=true` the file may be another program's: our tables then stand beside its own, for marks within its
transactions, and its header is left alone. Every batch is one `BEGIN IMMEDIATE` transaction in WAL mode around
`transitions`; what must survive the loss of power is on the disk before it is answered; leases run on the boot clock
and are void after a reboot.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ...errors import InvalidInput, StoreMisconfigured
from .. import Clock
from .blocking import SqliteStore
from .clock import readings
from .health import log_wal_reset_bug

if TYPE_CHECKING:
    from .aio import AsyncSqliteStore

__all__ = ["SqliteStore", "open_async", "open_blocking"]

_OPTIONS = {"": False, "shared=false": False, "shared=true": True}  # the query of a URL → whether the file is shared


def path_of(url: str) -> str:
    """The absolute path in the URL; InvalidInput if there is none, StoreMisconfigured if there can be no such file."""
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if "namespace=" in parts.query:
        raise InvalidInput(f"{url!r:.200}: a SQLite file is a namespace of its own; name another file instead")
    if parts.netloc or parts.query not in _OPTIONS or parts.fragment or not path or "\0" in path or path == ":memory:":
        raise InvalidInput(
            f"{url!r:.200} names no file; write sqlite:///relative/path or sqlite:////absolute/path, with no option"
            " but ?shared=true (for a store in memory: memory://)"
        )
    path = os.path.abspath(path)
    if os.path.isdir(path):
        raise StoreMisconfigured(f"the SQLite store {path} is a folder; give the path of a file")
    if not os.path.isdir(os.path.dirname(path)):
        raise StoreMisconfigured(f"the SQLite store {path} cannot be created: its folder does not exist; create it")
    return path


def open_blocking(url: str, *, clock: Clock | None, timeout: float) -> SqliteStore:
    """A blocking store on the file that the URL names, which is opened at the first op."""
    log_wal_reset_bug()
    return SqliteStore(path_of(url), readings(clock), timeout, shared=_OPTIONS[urlsplit(url).query])


def open_async(url: str, *, clock: Clock | None, timeout: float) -> AsyncSqliteStore:
    """An asyncio store on the file that the URL names, which is opened at the first op."""
    from .aio import AsyncSqliteStore  # here, as threads do not need asyncio, which takes long to import

    log_wal_reset_bug()
    return AsyncSqliteStore(path_of(url), readings(clock), timeout, shared=_OPTIONS[urlsplit(url).query])
