"""Retry: repeat a call after errors that may be temporary."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar, overload

from ..functions import begun, coroutine_function, finished, is_coroutine_function, work_function
from .backoff import RETRY

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]


@overload
def retry(
    call: Callable[[], Coroutine[Any, Any, T]],
    *,
    on: Errors,
    backoff: Iterable[float] = RETRY,
    sleep: Callable[[float], Awaitable[object]] = ...,
) -> Coroutine[Any, Any, T]: ...


@overload
def retry(
    call: Callable[[], T],
    *,
    on: Errors,
    backoff: Iterable[float] = RETRY,
    sleep: Callable[[float], object] = time.sleep,
) -> T: ...


def retry(
    call: Callable[[], Any],
    *,
    on: Errors,
    backoff: Iterable[float] = RETRY,
    sleep: Callable[[float], Any] | None = None,
) -> Any:
    """The result of the call, which is repeated after each pause of `backoff` while it raises an error in `on`.

    Raises the last error when there are no more pauses, and any other error at once. If `call` returns a coroutine,
    await the result. `sleep` is of the same kind as `call`.
    """
    work_function("call", call)
    if sleep is not None:
        check = coroutine_function if is_coroutine_function(call) else work_function
        check("sleep", sleep)
    pauses = iter(backoff)
    while True:
        try:
            result = call()
        except on as error:
            finished("sleep", (sleep or time.sleep)(_next(pauses, error)))
        else:
            return _awaited(result, call, on, pauses, sleep) if inspect.iscoroutine(result) else result


async def _awaited(
    result: Awaitable[T],
    call: Callable[[], Awaitable[T]],
    on: Errors,
    pauses: Iterator[float],
    sleep: Callable[[float], Awaitable[object]] | None,
) -> T:
    import asyncio  # here, as threads do not need it, and it takes long to import

    while True:
        try:
            return await result
        except on as error:
            await begun("sleep", (sleep or asyncio.sleep)(_next(pauses, error)))
            result = call()


def _next(pauses: Iterator[float], error: Exception) -> float:
    for pause in pauses:
        return pause
    raise error
