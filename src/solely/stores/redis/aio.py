"""The asyncio face: all tasks share one connection per server, and a batch is one write and one future.

Nobody's cancellation stops a batch: the answer of a cancelled one is taken out of the line when it comes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

import hiredis

from ...errors import ClientClosed, InvalidInput, StoreError, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op, Read
from .. import SCANS, Clock, Tell
from .aio_connection import AsyncWire, fail
from .aio_listener import AsyncEar, EarWire
from .batch import MOST_ROUNDS, Batch, Part, calls
from .codec import LOAD, Codec, chunks, waits
from .faults import NotPrimary
from .health import admit, read_info
from .queries import Question, Routes, check, find_keys, find_routes, page
from .replies import Answers, decode, lacks_script
from .settings import Address, Settings

T = TypeVar("T")
W = TypeVar("W", bound=AsyncWire)

_parents: list[object] = []  # what a forked child must not touch, not even by collecting it


class AsyncRedisStore:
    """A store for one event loop on one server, a primary that Sentinel names, or a cluster."""

    polls = False
    portion = 16  # a call of the script costs the server what two ops do; 16 keep it busy while the client goes on
    max_limit = MAX_LIMIT

    def __init__(self, settings: Settings, *, clock: Clock | None, timeout: float) -> None:
        self.client = os.urandom(16).hex()
        self._settings = settings
        self._timeout = timeout
        self._codec = Codec(settings.prefix, clock, cluster=settings.cluster)
        self._closed = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._routes: Routes | None = None
        self._scans = asyncio.Semaphore(SCANS)
        self._home: AsyncWire | None = None  # the one wire of a store that is no cluster, while it is up
        self._wires: dict[Address, AsyncWire] = {}
        self._connecting: dict[Address, asyncio.Task[AsyncWire]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ear = AsyncEar(self._connect_ear, self._codec.wake_channel(self.client), self._timeout)

    def __repr__(self) -> str:
        return f"<AsyncRedisStore {self._settings}>"

    # -- the protocol

    def perform(self, ops: Sequence[Op]) -> Awaitable[Answers]:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        try:
            check_ops(ops)
        except InvalidInput as error:
            refused: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
        wire = self._home
        if wire is None or len(ops) > MAX_BATCH or (not self._ear.ready and waits(ops)):
            return self._start(self._perform(ops))
        return wire.call(self._codec.command(ops), self._finish, ops)

    def listen(self, tell: Tell) -> None:
        self._ear.tell = tell

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        found: list[Entry] = []
        async with self._scans:
            for keys in chunks(await self._drive(find_keys(await self._all_routes(), self._codec, prefix, after))):
                found += page(await self.perform([Read(key) for key in keys]), limit - len(found))
                if len(found) >= limit:
                    break
        return found

    async def check(self) -> list[Finding]:
        """Reachable? Clock? Settings that break a promise? Raises only StoreError."""
        return await self._drive(check(await self._all_routes(), self._codec))

    async def close(self) -> None:
        """Lets go of all connections; safe to call twice."""
        self._closed = True
        for task in [*self._connecting.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._connecting.values(), *self._tasks, return_exceptions=True)
        await asyncio.gather(self._ear.close(), *(wire.close() for wire in list(self._wires.values())))

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's, and its loop's tasks, are left as they are."""
        _parents.append((self._home, self._wires, self._connecting, self._tasks, self._ear))
        tell = self._ear.tell
        self.client = os.urandom(16).hex()
        self._start_anew()
        self._ear.tell = tell

    # -- batches

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that is kept until it ends, and whose error is not reported as forgotten if nobody awaits it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _perform(self, ops: Sequence[Op]) -> Answers:
        if not self._settings.cluster:
            wire = await self._connected(await self._primary())
        if not self._ear.ready and waits(ops):
            await self._ear.prepare()
        if self._settings.cluster or len(ops) > MAX_BATCH:
            return await self._in_parts(ops)
        answers: Answers = await wire.call(self._codec.command(ops), self._finish, ops)
        return answers

    def _finish(self, future: asyncio.Future[Any], ops: Sequence[Op], raw: Any) -> None:
        if lacks_script(raw):
            again = self._start(self._load_and_repeat(ops))
            again.add_done_callback(lambda done: _pass_on(done, future))
            return
        failures: list[StoreError] = []
        answers = decode(ops, raw, failures)
        error = self._look_at(failures, len(ops)) if failures else None
        if error is None:
            future.set_result(answers)
        else:
            fail(future, error)

    async def _load_and_repeat(self, ops: Sequence[Op]) -> Answers:
        wire = await self._connected(await self._primary())
        wire.call(LOAD)
        answers: Answers = await wire.call(self._codec.command(ops), self._finish, ops)
        return answers

    async def _in_parts(self, ops: Sequence[Op]) -> Answers:
        batch = Batch(ops, self._codec)
        for _ in range(MOST_ROUNDS):
            groups = batch.groups(await self._all_routes())
            results = await asyncio.gather(*(self._send(address, parts) for address, parts in groups))
            for (_, parts), raws in zip(groups, results, strict=True):
                for part, raw in zip(parts, raws, strict=True):
                    batch.put(part, raw)
            if batch.moved:
                self._routes = None
            if not batch.open:
                break
        failures = batch.failures()
        error = self._look_at(failures, len(ops)) if failures else None
        if error is not None:
            raise error
        return batch.answers

    async def _send(self, address: Address, parts: list[Part]) -> list[Any]:
        """The answers to these parts, one each; why there is none in the place of one."""
        try:
            wire = await self._connected(address)
            commands = calls(parts, self._codec)
            answers = await asyncio.gather(*wire.call_all(commands), return_exceptions=True)
            for place in [place for place, answer in enumerate(answers) if lacks_script(answer)]:
                wire.call(LOAD)
                answers[place] = await wire.call(commands[place])
        except StoreUnavailable as error:
            return [error] * len(parts)
        return answers[-len(parts) :]

    def _look_at(self, failures: list[StoreError], asked: int) -> StoreError | None:
        """Leaves a server that may not write; answers the error of the whole batch if nothing at all was performed."""
        if any(isinstance(failure, NotPrimary) for failure in failures):
            self._routes = None
            self._ear.drop()
            for wire in list(self._wires.values()):
                wire.abort("another server is the primary now")
        if len(failures) == asked and all(isinstance(failure, StoreUnavailable) for failure in failures):
            return failures[0]
        return None

    # -- connections

    async def _connected(self, address: Address) -> AsyncWire:
        """The wire to this server; those who ask at the same time share one try."""
        wire = self._wires.get(address)
        if wire is not None and not wire.lost.done():
            return wire
        task = self._connecting.get(address)
        if task is None:
            task = self._connecting[address] = self._start(self._connect(AsyncWire, address))
            task.add_done_callback(lambda done: self._connecting.pop(address, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ClientClosed("the client was closed; open a new one") from None
            raise

    async def _connect(self, kind: type[W], address: Address) -> W:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        try:
            wire = await kind.connect(self._settings, address, self._timeout)
            try:
                admit(self._settings, address, read_info(await wire.ask("INFO")))
            except BaseException:
                wire.abort("it may not be used")
                raise
        except StoreUnavailable as error:
            self._routes = None  # perhaps another one is the primary by now
            raise StoreUnavailable(str(error)) from None  # not Unanswered: no op was sent
        if kind is AsyncWire:
            self._wires[address] = wire
            self._home = None if self._settings.cluster else wire
            wire.lost.add_done_callback(lambda _: self._lost(wire))
        return wire

    async def _connect_ear(self) -> EarWire:
        return await self._connect(EarWire, await self._primary())

    def _lost(self, wire: AsyncWire) -> None:
        self._routes = None
        if self._home is wire:
            self._home = None
        if self._wires.get(wire.address) is wire:
            del self._wires[wire.address]

    # -- who serves what

    async def _primary(self) -> Address:
        routes = await self._all_routes()
        return routes[0] or self._settings.seeds[0]

    async def _all_routes(self) -> Routes:
        routes = self._routes
        if routes is None:
            known = set(self._wires) if self._settings.cluster else set[Address]()
            self._routes = routes = await self._drive(find_routes(self._settings, known))
            self._ear.follow(routes[0] or self._settings.seeds[0])
        return routes

    async def _drive(self, asking: Generator[Question, Any, T]) -> T:
        """Performs the questions of a generator and returns what it makes of the answers."""
        try:
            question = next(asking)
            while True:
                try:
                    answer = await self._ask(question)
                except StoreUnavailable as error:
                    question = asking.throw(error)
                else:
                    question = asking.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _ask(self, question: Question) -> Any:
        if not question.seed:
            wire = await self._connected(question.address)
            return await wire.call(hiredis.pack_command(question.command))
        wire = await AsyncWire.connect(self._settings, question.address, self._timeout, seed=True)
        try:
            return await wire.ask(*question.command)
        finally:
            await wire.close()


def _pass_on(done: asyncio.Task[Answers], future: asyncio.Future[Any]) -> None:
    """Finishes the future as the task ended; a task that was cancelled, perhaps before it began, had no answer."""
    error = asyncio.CancelledError() if done.cancelled() else done.exception()
    if isinstance(error, StoreError):
        fail(future, error)
    elif error is not None:
        fail(future, Unanswered("the client was closed before the script was loaded again"))
    elif not future.done():
        future.set_result(done.result())
