"""Triggers over HTTP on Redis and PostgreSQL: how many a worker accepts per second.

**A burst** has 2,000 triggers from 64 connections. One service has the gate, so that most of them are buffered; the
other has none, so that each is inserted before it is answered. A machine that accepts hardly 500 per second shows
little: the gate trips at 100 in 200 ms. The benchmark waits until the buffer is drained before the next burst, and
checks that every accepted run is in SQL then.

**A key** costs a look-up in SQL, a claim and its publication. It is measured without the gate: each trigger has a key
of its own, against triggers without one.

The service has one worker, on the core of the servers; the client has the other core.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter

import psycopg

from tests.postgres_server import Postgres
from tests.service.serving import Process

from .harness import Case, Effort, Figures, Goal, Place, interleave, pin, print_medians, ratios, valkey
from .http import READY_WITHIN, Caller
from .postgres import postgres
from .workers import Loop

BURST = 2_000  # triggers
CONNECTIONS = 64  # enough that the worker always has some to accept
_numbers = count()


class Side:
    """A service, and the connections to it."""

    def __init__(self, loop: Loop, port: int, database: str, schema: str) -> None:
        self._loop, self._database, self._schema = loop, database, schema
        self._callers = loop.enter(_callers(port))
        self._accepted = 0

    def burst(self, *, keyed: bool = False) -> float:
        """Triggers accepted per second; all of them are in SQL when it returns."""
        rate = self._loop.run(self._send(keyed))
        self._accepted += BURST
        self._await_stored()
        return rate

    async def _send(self, keyed: bool) -> float:
        left, begun = iter(range(BURST)), perf_counter()

        async def caller(each: Caller) -> None:
            for _ in left:
                options = {"idempotencyKey": f"key-{next(_numbers)}"} if keyed else {}
                answer = await each.post("/api/v1/tasks/bench/trigger", {"payload": {"n": 1}, "options": options})
                assert not answer["isCached"], answer

        await asyncio.gather(*map(caller, self._callers))
        return BURST / (perf_counter() - begun)

    def _await_stored(self) -> None:
        ends, stored = monotonic() + READY_WITHIN, -1
        with psycopg.connect(self._database, autocommit=True) as connection:
            while stored != self._accepted:
                assert monotonic() < ends, f"{stored} of {self._accepted} accepted runs are stored"
                found = connection.execute(f'SELECT count(*) FROM "{self._schema}".triggers_runs').fetchone()
                stored = found[0] if found else 0


@asynccontextmanager
async def _callers(port: int) -> AsyncIterator[list[Caller]]:
    callers = [await Caller.open(port) for _ in range(CONNECTIONS)]
    yield callers
    for caller in callers:
        caller.transport.close()


@contextmanager
def _sides(place: Place, settings: dict[str, dict[str, str]]) -> Iterator[dict[str, Side]]:
    """A service for each of these settings, on the same servers."""
    with ExitStack() as stack:
        store, database = stack.enter_context(valkey(place)), stack.enter_context(postgres(place))
        loop = stack.enter_context(Loop())
        yield {name: _side(stack, loop, store.url, database, name, given) for name, given in settings.items()}


def _side(stack: ExitStack, loop: Loop, store: str, database: Postgres, name: str, given: dict[str, str]) -> Side:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    place = f"{store}?namespace={name}", f"{database.url}{'&' if '?' in database.url else '?'}namespace={name}"
    environ = {f"SOLELY_TRIGGERS_{key.upper()}": value for key, value in given.items()}
    flags = ("--url", place[0], "--data-url", place[1], "--workers", "1", "--set", "apps=triggers")
    service = stack.enter_context(Process(folder, *flags, **environ))
    port = int(service.address().rpartition(":")[2])
    pin(service.pid, 1)
    return Side(loop, port, database.url, name)


def _bursts(place: Place, effort: Effort) -> Figures:
    with _sides(place, {"buffered": {}, "direct": {"gate": "off"}}) as sides:
        measured = interleave({name: side.burst for name, side in sides.items()}, effort.repetitions)
    print_medians(measured)
    return {"triggers.redis_postgres.burst.vs_direct": ratios(measured["buffered"], measured["direct"])}


def _keys(place: Place, effort: Effort) -> Figures:
    with _sides(place, {"direct": {"gate": "off"}}) as sides:
        direct = sides["direct"]
        work: dict[str, Callable[[], float]] = {"keyed": lambda: direct.burst(keyed=True), "unkeyed": direct.burst}
        measured = interleave(work, effort.repetitions)
    print_medians(measured)
    return {"triggers.redis_postgres.keyed.vs_unkeyed": ratios(measured["keyed"], measured["unkeyed"])}


_BURST = "accepted per second in a burst of 2,000, against the same API inserting directly"
_KEYED = "accepted per second with a key of its own each, against triggers without one"
CASES = [
    Case([Goal("triggers.redis_postgres.burst.vs_direct", 1.5, _BURST)], Place.APART, _bursts),
    Case([Goal("triggers.redis_postgres.keyed.vs_unkeyed", 0.5, _KEYED)], Place.APART, _keys),
]
