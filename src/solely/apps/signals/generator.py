"""IdempotentSignalGenerator: wraps an existing generator, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, Self, TypeVar

from ... import AsyncClient, Breaker, Client, LetterOutcome, LetterReplay
from ...kit import finished, get_logger, items_function, plain_function, work_function
from .deciding import SignalGeneratorBase
from .metrics import SignalAlert
from .model import GroupResult, PendingSignal, Signal, SignalGroup, SignalOptions, fresh_id
from .places import letters_url, locks_url
from .steps import run, run_async

log = get_logger("solely.signals")
Groups = Iterable[tuple[str, str]]
_ASYNC = "use an AsyncIdempotentSignalGenerator"

C = TypeVar("C", Client, AsyncClient)


def clients_of(kind: type[C], store: C | str | None, dead_letters: C | None) -> tuple[C, C, list[C]]:
    """The client of locks and marks, that of dead letters, and those of them that were opened here."""
    if isinstance(store, kind):
        return store, dead_letters or store, []
    url = None if store is None else str(store)
    once = kind(locks_url(url))
    if dead_letters is not None or letters_url(url) == locks_url(url):
        return once, dead_letters or once, [once]
    letters = kind(letters_url(url))
    return once, letters, [once, letters]


class IdempotentSignalGenerator(SignalGeneratorBase):
    """Writes each signal once per credential and window, however many threads, processes and hosts poll; for threads.

    `generate(group, context)` is the existing generator, unchanged: it returns the signals of a group. `write(signal,
    id)` writes one, and does nothing if the id exists. `store` is a client, or a URL for clients that `close` closes.
    With a `transaction`, a function that returns a context manager with a connection to the store's database,
    `write(signal, id, connection)` and the mark commit together. `unprotected(signal)` is the existing write, for the
    flag `use_idempotent_signals=False` and for `on_outage="unprotected"`.
    """

    def __init__(
        self,
        generate: Callable[[SignalGroup, Any], Iterable[Signal]],
        write: Callable[..., object],
        store: Client | str | None = None,
        *,
        dead_letters: Client | None = None,
        unprotected: Callable[[Signal], object] | None = None,
        transaction: Callable[[], Any] | None = None,
        use_idempotent_signals: bool = True,
        breaker: Breaker | None = None,
        on_alert: Callable[[SignalAlert], object] | None = None,
        options: SignalOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        items_function("generate", generate, _ASYNC)
        once, letters, self._opened = clients_of(Client, store, dead_letters)
        super().__init__(
            generate, write, once=once, letters=letters, unprotected=unprotected, transaction=transaction,
            use_idempotent_signals=use_idempotent_signals, breaker=breaker, on_alert=on_alert,
            options=options or SignalOptions(), clock=clock,
        )  # fmt: skip

    def generate_group(self, group: tuple[str, str], context: Any = None) -> GroupResult:
        """What became of the group (house, game). Raises StoreUnavailable if the store is unreachable, unless the old
        path was chosen for that; and what `generate` raises."""
        return run(self._generating(group, context))

    def generate_signals(self, groups: Groups, context: Any = None) -> list[GroupResult]:
        """`generate_group` for each group. An error stops no other group: it is logged, and is the result's `error`."""
        return [self._result(group, context) for group in groups]

    def _result(self, group: tuple[str, str], context: Any) -> GroupResult:
        try:
            return self.generate_group(group, context)
        except Exception as error:  # noqa: BLE001 - logged and returned
            return failed_group(group, error)

    def replay(self, id: str) -> LetterReplay:
        """Writes the signal of this dead letter, unless its credential got one within the window; see `DeadLetters`."""
        return self._letters.replay(id, self.write_letter)  # type: ignore[no-any-return]  # of either client

    def replay_all(self) -> Counter[LetterOutcome]:
        """Replays all dead letters; returns how many had which outcome."""
        return self._letters.replay_all(self.write_letter)  # type: ignore[no-any-return]  # of either client

    def write_letter(self, payload: dict[str, Any]) -> str:
        """Writes the signal of a dead letter, and returns `generated` or `deduplicated`; raises what fails."""
        return run(self._replaying(payload))

    def close(self) -> None:
        """Closes the clients that the generator opened; safe to call twice."""
        for client in self._opened:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    def _checked(self, what: str, write: Callable[..., Any]) -> Callable[..., Any]:
        plain_function(what, write, _ASYNC)
        return lambda *given: finished(what, write(*given))

    def _collect(self, group: SignalGroup, context: Any) -> list[Signal]:
        return list(self._generate(group, context))

    def _write_unguarded(self, signal: Signal) -> None:
        if self._transaction is None:
            self._write(signal, fresh_id())
        else:
            with self._transaction() as connection:
                self._write(signal, fresh_id(), connection)

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _commit(self, pending: Sequence[PendingSignal]) -> list[bool]:
        assert self._transaction is not None
        with self._transaction() as connection:
            first = self._once.within(connection).first_many([each.key for each in pending], ttl=self._options.window)
            for each, is_first in zip(pending, first, strict=True):
                if is_first:
                    self._write(each.signal, fresh_id(), connection)
        return first  # type: ignore[no-any-return]  # of either client


class AsyncIdempotentSignalGenerator(SignalGeneratorBase):
    """`IdempotentSignalGenerator` for asyncio. `generate` may be a coroutine function or an async generator, `write`,
    `unprotected` and the transaction asynchronous; the signals of a group are written at once."""

    def __init__(
        self,
        generate: Callable[[SignalGroup, Any], Any],
        write: Callable[..., Any],
        store: AsyncClient | str | None = None,
        *,
        dead_letters: AsyncClient | None = None,
        unprotected: Callable[[Signal], Any] | None = None,
        transaction: Callable[[], Any] | None = None,
        use_idempotent_signals: bool = True,
        breaker: Breaker | None = None,
        on_alert: Callable[[SignalAlert], object] | None = None,
        options: SignalOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        once, letters, self._opened = clients_of(AsyncClient, store, dead_letters)
        super().__init__(
            generate, write, once=once, letters=letters, unprotected=unprotected, transaction=transaction,
            use_idempotent_signals=use_idempotent_signals, breaker=breaker, on_alert=on_alert,
            options=options or SignalOptions(), clock=clock,
        )  # fmt: skip

    async def generate_group(self, group: tuple[str, str], context: Any = None) -> GroupResult:
        """What became of the group (house, game). Raises StoreUnavailable if the store is unreachable, unless the old
        path was chosen for that; and what `generate` raises."""
        return await run_async(self._generating(group, context))

    async def generate_signals(self, groups: Groups, context: Any = None) -> list[GroupResult]:
        """`generate_group` for each group. An error stops no other group: it is logged, and is the result's `error`."""
        return [await self._result(group, context) for group in groups]

    async def _result(self, group: tuple[str, str], context: Any) -> GroupResult:
        try:
            return await self.generate_group(group, context)
        except Exception as error:  # noqa: BLE001 - logged and returned
            return failed_group(group, error)

    async def replay(self, id: str) -> LetterReplay:
        """Writes the signal of this dead letter, unless its credential got one within the window; see `DeadLetters`."""
        return await self._letters.replay(id, self.write_letter)  # type: ignore[no-any-return]  # of either client

    async def replay_all(self) -> Counter[LetterOutcome]:
        """Replays all dead letters; returns how many had which outcome."""
        return await self._letters.replay_all(self.write_letter)  # type: ignore[no-any-return]  # of either client

    async def write_letter(self, payload: dict[str, Any]) -> str:
        """Writes the signal of a dead letter, and returns `generated` or `deduplicated`; raises what fails."""
        return await run_async(self._replaying(payload))

    async def close(self) -> None:
        """Closes the clients that the generator opened; safe to call twice."""
        for client in self._opened:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *how: object) -> None:
        await self.close()

    def _checked(self, what: str, write: Callable[..., Any]) -> Callable[..., Any]:
        work_function(what, write)

        async def checked(*given: Any) -> Any:
            return finished(what, await _reply(write(*given)))

        return checked

    async def _collect(self, group: SignalGroup, context: Any) -> list[Signal]:
        made = await _reply(self._generate(group, context))
        return [each async for each in made] if isinstance(made, AsyncIterable) else list(made)

    async def _write_unguarded(self, signal: Signal) -> None:
        if self._transaction is None:
            await _reply(self._write(signal, fresh_id()))
        else:
            async with self._transaction() as connection:
                await _reply(self._write(signal, fresh_id(), connection))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _commit(self, pending: Sequence[PendingSignal]) -> list[bool]:
        assert self._transaction is not None
        async with self._transaction() as connection:
            within, window = self._once.within(connection), self._options.window
            first = await within.first_many([each.key for each in pending], ttl=window)
            for each, is_first in zip(pending, first, strict=True):
                if is_first:
                    await _reply(self._write(each.signal, fresh_id(), connection))
        return first  # type: ignore[no-any-return]  # of either client


async def _reply(given: Any) -> Any:
    """What a function of the caller's returns, which may have to be awaited."""
    return await given if isawaitable(given) else given


def failed_group(group: tuple[str, str], error: Exception) -> GroupResult:
    """The result of a group whose error is not raised."""
    log.warning("signal_group_failed: %s/%s: %s: %s", *group, type(error).__name__, error)
    return GroupResult(SignalGroup(*group), "refused", error=error)
