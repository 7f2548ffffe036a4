"""Faces: what a client offers, one module per side of the entry, each once blocking and once awaited.

`Client` and `AsyncClient` inherit them all. To add one: a flow in flows/, a module here, a base class in client.py.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from ..core import Core
from ..flows.requests import Flow
from ..stores import AsyncStore, Store

T = TypeVar("T")


class Run(Protocol):
    """Performs a flow on the caller's thread."""

    def __call__(self, flow: Flow[T], /) -> T: ...


class AsyncRun(Protocol):
    """Performs a flow in the caller's task."""

    def __call__(self, flow: Flow[T], /) -> Coroutine[Any, Any, T]: ...


class Face:
    """What every blocking face stands on."""

    _core: Core
    _store: Store
    _run: Run


class AsyncFace:
    """What every awaited face stands on."""

    _core: Core
    _store: AsyncStore
    _run: AsyncRun
