"""One test for every store and both modes at once: what mostly waits then takes the time of one, not of a dozen.

@concurrently()
async def test_a_lease_is_renewed_beyond_its_ttl(once: Any, observer: Observer) -> None: ...

Parameters with the name of a method of `Case` are made for each store and mode; all others are fixtures, made once.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

import solely
from solely import AsyncClient
from solely.testing.proxy import FaultProxy
from tests.client.modes import Observer, blocking
from tests.client.wire import before, through
from tests.client.worker import Worker
from tests.conftest import PATIENT, STORES, in_collection, in_schema, is_chosen, isolated
from tests.mongo_server import Mongod
from tests.postgres_server import Postgres
from tests.servers import Valkey, free_port

KINDS: dict[str, Callable[..., Any]] = {"blocking": blocking, "asyncio": AsyncClient}
Server = Valkey | Postgres | Mongod
Body = Callable[..., Coroutine[Any, Any, None]]

# Stores behind a network → the fixture of their server, which tests may pause and put a proxy before.
SERVERS = {
    "valkey": "valkey",
    "postgres": "postgres",
    "postgres-15": "debian_postgres",
    "mongo": "replica_set",
    "mongo-standalone": "standalone",
}


def fresh_url(server: Server) -> str:
    """The URL of an empty store on this server, with its tables or indexes: to make them may take long."""
    if isinstance(server, Mongod):
        url = in_collection(server.url_of("solely"))
    else:
        url = in_schema(server.url) if isinstance(server, Postgres) else isolated(server.url)
    Observer(url).close()
    return url


def at_port(url: str, port: int) -> str:
    return url.replace(f":{urlsplit(url).port}", f":{port}")


@contextmanager
def silent(url: str) -> Iterator[str]:
    """The same URL with a port on which a connection is neither refused nor made."""
    with ExitStack() as stack:
        listener, *crowd = (stack.enter_context(socket.socket()) for _ in range(4))
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for one in crowd:  # whoever comes now finds no room
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield at_port(url, listener.getsockname()[1])


class Case:
    """A store and a mode. Each method makes the parameter of its name, at most once; `close` ends what was opened."""

    def __init__(self, store: str, kind: str, request: pytest.FixtureRequest) -> None:
        self.name = f"{store}, {kind}"
        self._store = store
        self._kind = kind
        self._request = request
        self._made: dict[str, Any] = {}
        self._stack = AsyncExitStack()
        self.close = self._stack.aclose

    def get(self, parameter: str) -> Any:
        if parameter not in self._made:
            self._made[parameter] = getattr(self, parameter)()
        return self._made[parameter]

    def kind(self) -> str:
        return self._kind

    def open_client(self) -> Callable[..., Any]:
        def open_one(url: str, **options: Any) -> Any:
            client = KINDS[self._kind](url, **options)
            self._stack.push_async_callback(_closed, client)
            return client

        return open_one

    def store_url(self) -> str:
        return STORES[self._store](self._request)

    def once(self) -> Any:
        return self.get("open_client")(self.get("store_url"), timeout=PATIENT)

    def other(self) -> Any:
        return self.get("open_client")(self.get("store_url"), timeout=PATIENT)

    def observer(self) -> Observer:
        return self._observed("store_url")

    def shared_url(self) -> str:
        return str(self.get("store_url"))

    def start_worker(self) -> Callable[..., Worker]:
        def start(url: str, **options: Any) -> Worker:
            worker = Worker(url, **options)
            self._stack.callback(worker.end)
            return worker

        return start

    def server(self) -> Server:
        shared: Server = self._request.getfixturevalue(SERVERS[self._store])
        return shared

    def direct_url(self) -> str:
        return fresh_url(self.get("server"))

    def nowhere_url(self) -> str:
        return at_port(self.get("direct_url"), free_port())

    def silent_url(self) -> str:
        return self._stack.enter_context(silent(self.get("direct_url")))

    def proxy(self) -> FaultProxy:
        return self._stack.enter_context(before(self.get("direct_url")))

    def proxied_url(self) -> str:
        return through(self.get("proxy"), self.get("direct_url"))

    def beside(self) -> Observer:
        return self._observed("direct_url")

    def _observed(self, url: str) -> Observer:
        watching = Observer(self.get(url))
        self._stack.callback(watching.close)
        return watching


async def _closed(client: Any) -> None:
    with suppress(solely.StoreError):  # the test may have ended its server
        await client.close()


MADE = frozenset(name for name in vars(Case) if not name.startswith("_")) - {"get"}
BETWEEN_PROCESSES = frozenset(("shared_url", "start_worker"))
BEHIND_A_NETWORK = MADE - BETWEEN_PROCESSES - {"kind", "open_client", "store_url", "once", "other", "observer"}


def concurrently(*kinds: str) -> Callable[[Body], Callable[..., None]]:
    """Runs the body on all stores in these modes at once, or on all servers if it has parameters for that."""
    return lambda body: _concurrently(body, kinds or tuple(KINDS))


def _concurrently(body: Body, kinds: Sequence[str]) -> Callable[..., None]:
    signature = inspect.signature(body)
    made = [name for name in signature.parameters if name in MADE]
    stores, shared = (SERVERS, "server") if BEHIND_A_NETWORK.intersection(made) else (STORES, "store_url")
    unshared = {"memory"} if BETWEEN_PROCESSES.intersection(made) else set()

    def test(*, request: pytest.FixtureRequest, **given: Any) -> None:
        names = [name for name in stores if is_chosen(request.config, name) and name not in unshared]
        cases = [Case(name, kind, request) for name in names for kind in kinds]
        for case in cases:
            case.get(shared)  # here, since fixtures are made in the main thread only
        run_at_once({case.name: partial(_run, case, body, made, given) for case in cases})

    test.__name__, test.__qualname__, test.__module__ = body.__name__, body.__qualname__, body.__module__
    test.__doc__ = body.__doc__
    fixtures = [name for name in signature.parameters if name not in MADE]
    test.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("request", *fixtures)]
    )
    return test


async def _run(case: Case, body: Body, made: list[str], given: Mapping[str, Any]) -> None:
    try:
        await body(**{name: case.get(name) for name in made}, **given)
    finally:
        await case.close()


def run_at_once(bodies: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Runs all of them, each in a thread and a loop of its own; raises what failed, with its name."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        errors = dict(zip(bodies, threads.map(_error, bodies.values()), strict=True))
    failed = {name: error for name, error in errors.items() if error is not None}
    for name, error in failed.items():
        error.add_note(f"on {name}")
    if len(failed) == 1:
        raise next(iter(failed.values()))
    if failed:
        raise BaseExceptionGroup(f"failed on {', '.join(failed)}", list(failed.values()))


def _error(body: Callable[[], Coroutine[Any, Any, None]]) -> BaseException | None:
    try:
        asyncio.run(body())
    except BaseException as error:
        return error
    return None
