"""Both modes of a store, closed when the test ends: a test is written once and runs twice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from solely.stores import Store
from solely.testing.harness import BlockingAdapter


@contextmanager
def opening_stores(face: str, scheme: Any, *, timeout: float) -> Iterator[Callable[[str], Store]]:
    """Opens stores of one module of solely.stores, of either face, all of which are closed in the end."""
    opened: list[Any] = []

    def open_store(url: str) -> Store:
        if face == "blocking":
            opened.append(scheme.open_blocking(url, clock=None, timeout=timeout))
        else:
            opened.append(BlockingAdapter(lambda: scheme.open_async(url, clock=None, timeout=timeout)))
        return opened[-1]  # type: ignore[no-any-return]

    yield open_store
    for store in opened:
        store.close()
        if isinstance(store, BlockingAdapter):
            store.stop()


def underlying(store: Any) -> Any:
    """The store itself, of either face."""
    return store._store if isinstance(store, BlockingAdapter) else store
