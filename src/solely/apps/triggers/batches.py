"""Batches: what concurrent callers ask of SQL travels in one statement. While one is performed, all that ask meanwhile
wait for the next: a lone caller never waits for company."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Batches(Generic[A, R]):
    """Performs requests together, at most `most` at a time. `perform` returns a result for each request, in order; an
    Exception among them is raised to its caller, and one that `perform` raises to all of them."""

    def __init__(self, perform: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]], most: int) -> None:
        self._perform, self._most = perform, most
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, request: A) -> R:
        """The result of this request."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            try:
                results = await self._perform([request for request, _ in batch])
            except Exception as error:  # noqa: BLE001 - it belongs to those who asked
                results = [error] * len(batch)
            for (_, answer), result in zip(batch, results, strict=True):
                if answer.done():  # cancelled
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
