"""Clients of both kinds on every store of the table, closed when the test ends."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import solely
from solely.testing.proxy import FaultProxy
from tests.client.concurrently import KINDS, SERVERS, Server, at_port, fresh_url, silent
from tests.client.modes import Observer
from tests.client.wire import before, through
from tests.client.worker import Worker
from tests.conftest import LACKING, PATIENT, STORES
from tests.servers import free_port


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """blocking, then asyncio."""
    return str(request.param)


@pytest.fixture
async def open_client(kind: str) -> AsyncIterator[Callable[..., Any]]:
    """Opens a client of the kind at hand: `open_client(url, **options)`."""
    opened: list[Any] = []

    def open_one(url: str, **options: Any) -> Any:
        opened.append(KINDS[kind](url, **options))
        return opened[-1]

    yield open_one
    for client in opened:
        with suppress(solely.StoreError):  # the test may have ended its server
            await client.close()


@pytest.fixture
def once(open_client: Callable[..., Any], store_url: str) -> Any:
    """A client of the kind and store at hand."""
    return open_client(store_url, timeout=PATIENT)


@pytest.fixture
def other(open_client: Callable[..., Any], store_url: str) -> Any:
    """A second client of the same store, as another process would have."""
    return open_client(store_url, timeout=PATIENT)


@pytest.fixture
def observer(store_url: str) -> Iterator[Observer]:
    """Reads the store at hand directly."""
    watching = Observer(store_url)
    yield watching
    watching.close()


@pytest.fixture(params=[name for name in STORES if name != "memory"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh store that several processes can share."""
    return STORES[request.param](request)


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Worker]]:
    """Starts a real process with a client of its own: `start_worker(url, **options)`."""
    started: list[Worker] = []

    def start(url: str, **options: Any) -> Worker:
        started.append(Worker(url, **options))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


@pytest.fixture(params=[name for name, fixture in SERVERS.items() if not LACKING.get(fixture)])
def server(request: pytest.FixtureRequest) -> Server:
    """A server that the tests of a worker share, of each store behind a network in turn."""
    shared: Server = request.getfixturevalue(SERVERS[request.param])
    return shared


@pytest.fixture
def direct_url(server: Server) -> str:
    """The URL of a fresh store on that server, without the proxy."""
    return fresh_url(server)


@pytest.fixture
def nowhere_url(direct_url: str) -> str:
    """The same URL with a port on which nobody listens."""
    return at_port(direct_url, free_port())


@pytest.fixture
def silent_url(direct_url: str) -> Iterator[str]:
    """The same URL with a port on which a connection is neither refused nor made."""
    with silent(direct_url) as url:
        yield url


@pytest.fixture
def proxy(direct_url: str) -> Iterator[FaultProxy]:
    """A network of its own before the server of `direct_url`."""
    with before(direct_url) as network:
        yield network


@pytest.fixture
def proxied_url(direct_url: str, proxy: FaultProxy) -> str:
    """The same data as `direct_url`, through the proxy."""
    return through(proxy, direct_url)


@pytest.fixture
def beside(direct_url: str) -> Iterator[Observer]:
    """Reads what `direct_url` and `proxied_url` share, past the proxy."""
    watching = Observer(direct_url)
    yield watching
    watching.close()
