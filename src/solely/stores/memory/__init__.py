"""memory:// — the reference store, for tests and for one process: a mutex around `transitions`.

`memory://` is a fresh store per client; `memory://name` is shared by all clients of the process that name it.
`?max_size=` bounds it (default 10,000): finished entries make room for new ones, oldest first; held entries, queue
items, watermarks and limits never do, and when only those are left a new key is answered StoreFull.
"""

from __future__ import annotations

import threading
from urllib.parse import parse_qs, parse_qsl, urlsplit

from ...errors import InvalidInput
from ...urls import read_namespace
from .. import Clock
from .data import DEFAULT_MAX_SIZE, Memory
from .handles import AsyncMemoryStore, MemoryStore

__all__ = ["AsyncMemoryStore", "Memory", "MemoryStore", "open_async", "open_blocking"]

_shared: dict[tuple[str, str], Memory] = {}  # name and namespace → what is kept there
_sharing = threading.Lock()


def _open(url: str, clock: Clock | None) -> Memory:
    parts = urlsplit(url)
    namespace = read_namespace(parse_qsl(parts.query, keep_blank_values=True), default="")
    options = parse_qs(parts.query, keep_blank_values=True)
    options.pop("namespace", None)
    size = options.pop("max_size", [str(DEFAULT_MAX_SIZE)])[0]
    if options or not size.isdigit() or int(size) < 1:
        raise InvalidInput(f"memory:// takes max_size=<entries, at least 1> and namespace, not {parts.query!r}")
    if not parts.netloc:
        return Memory(clock=clock, max_size=int(size))
    with _sharing:
        return _shared.setdefault((parts.netloc, namespace), Memory(clock=clock, max_size=int(size)))


def open_blocking(url: str, *, clock: Clock | None, timeout: float) -> MemoryStore:
    """A blocking store on the memory that the URL names."""
    return MemoryStore(_open(url, clock))


def open_async(url: str, *, clock: Clock | None, timeout: float) -> AsyncMemoryStore:
    """An asyncio store on the memory that the URL names."""
    return AsyncMemoryStore(_open(url, clock))
