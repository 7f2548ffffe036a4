"""Any store, with a switch: while it is away no op is answered, and none reaches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from solely.errors import StoreUnavailable
from solely.ops import Op, Release
from solely.stores import open_async_store, open_store

PATIENT, HASTY = 20.0, 0.05  # seconds of timeout: for a store that is there, and for one that will not answer


class _Switched:
    def __init__(self, store: Any) -> None:
        self._store = store
        self._away = False
        self._drivers: list[Any] = []
        self.asked: list[Op] = []  # but for what is undone, which may go on behind the caller's back

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def away(self) -> bool:
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        self._away = away
        for driver in self._drivers:
            driver.timeout = HASTY if away else PATIENT

    def opened(self, open_client: Callable[..., Any], **options: Any) -> Any:
        """A client of this store that loses no time while it is away, and is patient while it is there."""
        client = open_client("", store=self, timeout=PATIENT, **options)
        self._drivers.append(client._driver)
        return client

    def _ask(self, ops: Sequence[Op]) -> None:
        self.asked += [op for op in ops if type(op) is not Release]
        if self.away:
            raise StoreUnavailable("the test's switch is off")


class SwitchedStore(_Switched):
    """For threads."""

    def perform(self, ops: Sequence[Op]) -> Any:
        self._ask(ops)
        return self._store.perform(ops)


class AsyncSwitchedStore(_Switched):
    """For asyncio."""

    async def perform(self, ops: Sequence[Op]) -> Any:
        self._ask(ops)
        return await self._store.perform(ops)


def switched(kind: str, url: str, **options: Any) -> Any:
    """A store of the kind, `blocking` or `asyncio`, whose `away` can be set."""
    if kind == "blocking":
        return SwitchedStore(open_store(url, **options))
    return AsyncSwitchedStore(open_async_store(url, **options))
