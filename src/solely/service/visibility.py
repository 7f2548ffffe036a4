"""What callers see of the names that applications keep in the store. An application may hide names of its own from some
callers (`Application.hidden_from`); then all that reads for such a caller leaves them out, or refuses to read them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

from ..errors import NameReserved
from ..model import Entry
from ..names import reserved_name_of, reserved_name_of_op
from ..ops import READS, Op
from ..stores import AsyncStore

Hides = Callable[[str], bool]  # True for a reserved name that the caller must not see

_LAST = "\U0010ffff"  # sorts behind every id
_PAGE = 1000  # entries that one scan skips at most: what every store returns at once

_hides: ContextVar[Hides | None] = ContextVar("hides", default=None)


def see_as(hides: Hides | None) -> None:
    """From now on the current task, and all that it starts, reads for a caller from whom this is hidden."""
    _hides.set(hides)


def seen_by() -> Hides | None:
    """What is hidden from the current caller: two callers with the same see the same."""
    return _hides.get()


def is_hidden(key: str) -> bool:
    """True if the current caller must not see what has this stored key."""
    hides = _hides.get()
    return hides is not None and bool(name := reserved_name_of(key)) and hides(name)


def is_hidden_name(name: str) -> bool:
    """True if the current caller must not see what has this reserved name."""
    hides = _hides.get()
    return hides is not None and hides(name)


def check_read(op: Op) -> None:
    """Raises NameReserved if the op reads what the current caller must not see, whether or not it is there."""
    hides = _hides.get()
    if hides is not None and type(op) in READS and (name := reserved_name_of_op(op)) and hides(name):
        raise NameReserved(f"{name!r:.80} is reserved, and what it names is not visible to this token")


class _VisibleStore:
    """A store whose scans leave out what the current caller must not see."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self.perform = store.perform

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def polls(self) -> bool:
        """As the store; each acquire asks, and `__getattr__` takes long."""
        return self._store.polls

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        page = await self._store.scan(prefix, after, limit)
        if _hides.get() is None:
            return page
        found, most = list[Entry](), limit
        while True:
            found += [entry for entry in page if not is_hidden(entry.key)]
            if len(page) < most or len(found) >= limit:
                return found[:limit]
            most = _PAGE
            page = await self._store.scan(prefix, _next(page[-1].key), most)


def _next(key: str) -> str:
    """Where a scan goes on: after the queue, if its items are hidden."""
    kind, queue = [*key.split("/", 2), "", ""][:2]
    return f"{kind}/{queue}/{_LAST}" if kind == "item" and is_hidden(key) else key


def visible(store: AsyncStore) -> AsyncStore:
    """The store, whose scans leave out what the current caller must not see."""
    return cast(AsyncStore, _VisibleStore(store))
