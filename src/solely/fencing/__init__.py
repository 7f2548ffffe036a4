"""Fencing guards: the resource itself refuses a stale holder.

No lease can stop a process that was paused at the wrong moment from acting on a lease that it has lost. The resource
that it writes to can, by comparing fences: each guard stores the highest fence it has seen, accepts an equal or greater
one, and refuses a smaller one with StaleFence. Guard one resource by the fences of one lock key of one store: others
are not comparable. Each guard is imported at its first use, so the package depends on no driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import StaleFence, missing_extra

if TYPE_CHECKING:
    from .file import FencedFile
    from .http import (
        HEADER,
        BlockingStoreFenceBook,
        FenceBook,
        FenceMiddleware,
        MemoryFenceBook,
        StoreFenceBook,
        headers,
    )
    from .mongo import fenced, fenced_update, fenced_update_async, with_fence
    from .redis import AsyncFencedRedis, FencedRedis
    from .sql import condition, create_fences, create_fences_async, guard, guard_async

__all__ = [
    "HEADER",
    "AsyncFencedRedis",
    "BlockingStoreFenceBook",
    "FenceBook",
    "FenceMiddleware",
    "FencedFile",
    "FencedRedis",
    "MemoryFenceBook",
    "StaleFence",
    "StoreFenceBook",
    "condition",
    "create_fences",
    "create_fences_async",
    "fenced",
    "fenced_update",
    "fenced_update_async",
    "guard",
    "guard_async",
    "headers",
    "with_fence",
]

_HTTP = ("HEADER", "BlockingStoreFenceBook", "FenceBook", "FenceMiddleware", "MemoryFenceBook", "StoreFenceBook")
_MODULES = {
    **dict.fromkeys(("condition", "create_fences", "create_fences_async", "guard", "guard_async"), "sql"),
    **dict.fromkeys(("FencedRedis", "AsyncFencedRedis"), "redis"),
    **dict.fromkeys(("fenced", "fenced_update", "fenced_update_async", "with_fence"), "mongo"),
    **dict.fromkeys(("FencedFile",), "file"),
    **dict.fromkeys((*_HTTP, "headers"), "http"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if module != "mongo":  # the only guard that imports its driver: the others get a connection
            raise
        raise missing_extra(name, error.name, "mongo") from error
