"""URLs that name several PostgreSQL servers, some of which are away, silent or replicas."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from solely.errors import StoreMisconfigured, StoreUnavailable
from solely.model import Entry
from solely.ops import Acquire, Read
from solely.stores import NotPrimary, Store
from solely.stores.postgres import connect, open_async, open_blocking
from solely.testing.harness import BlockingAdapter, fresh
from tests.postgres_server import URL_PASSWORD, Postgres, replica_of

REFUSED = "127.0.0.1:1"
UNKNOWN = "no..host"  # needs no name server to be refused


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


@pytest.fixture
def silent() -> Iterator[str]:
    """A host that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def at(*hosts: str, options: str = "", password: str = URL_PASSWORD) -> str:
    return f"postgresql://postgres:{password}@{','.join(hosts)}/postgres?{options}"


def place(server: Postgres) -> str:
    return f"{server.host}:{server.port}"


def faces(url: str, timeout: float) -> Iterator[Store]:
    """Both faces of the store, one after the other."""
    blocking = open_blocking(url, clock=None, timeout=timeout)
    yield blocking
    blocking.close()
    tasks = BlockingAdapter(lambda: open_async(url, clock=None, timeout=timeout))
    yield tasks
    tasks.close()
    tasks.stop()


def takes(store: Store) -> bool:
    [entry] = store.perform([Acquire(fresh("lock/hosts"), "me", 10)])
    return isinstance(entry, Entry) and entry.owner == "me"


@pytest.fixture
def migrated(server: Postgres) -> Postgres:
    """What makes the tables opens a connection of its own, in its own time."""
    store = open_blocking(server.url, clock=None, timeout=20.0)
    store.perform([Read("lock/a")])
    store.close()
    return server


@pytest.mark.parametrize("options", ["connect_timeout=1", "target_session_attrs=read-write"])
def test_a_silent_host_does_not_take_the_time_of_the_next(migrated: Postgres, silent: str, options: str) -> None:
    for store in faces(at(silent, place(migrated), options=options), timeout=4.0):
        assert takes(store)


def test_hosts_that_are_away_silent_or_unknown_are_passed_by(migrated: Postgres, silent: str) -> None:
    for store in faces(at(REFUSED, silent, UNKNOWN, place(migrated)), timeout=6.0):
        assert takes(store)


def test_the_url_bounds_each_attempt(migrated: Postgres, silent: str) -> None:
    store = open_blocking(at(silent, place(migrated), options="connect_timeout=1"), clock=None, timeout=40.0)
    started = time.monotonic()
    assert takes(store)
    assert time.monotonic() - started < 15  # half of the timeout would be 20
    store.close()


def test_the_tables_of_a_new_database_are_made_past_a_silent_host(server: Postgres, silent: str) -> None:
    server.ask("CREATE DATABASE new")
    store = open_blocking(at(silent, place(server)).replace("/postgres?", "/new?"), clock=None, timeout=4.0)
    started = time.monotonic()
    assert takes(store)
    assert time.monotonic() - started < 25  # half of the minute that migrating may take would be 30
    store.close()


def test_each_host_tells_its_reason(silent: str) -> None:
    for store in faces(at(REFUSED, silent, UNKNOWN), timeout=1.0):
        with pytest.raises(StoreUnavailable, match=f"port 1 failed.*; {silent}: no answer within.*; .*{UNKNOWN}"):
            store.perform([Read("lock/a")])


def test_a_wrong_password_at_one_of_several_is_told_and_not_shown(server: Postgres) -> None:
    store = open_blocking(at(REFUSED, place(server), password="hunter2"), clock=None, timeout=5.0)
    with pytest.raises(StoreMisconfigured, match="password is wrong") as caught:
        store.perform([Read("lock/a")])
    assert "hunter2" not in str(caught.value)
    store.close()


def test_the_role_that_the_url_asks_for_decides_on_the_host(migrated: Postgres, silent: str) -> None:
    with replica_of(migrated) as replica:
        for hosts in ([place(replica), place(migrated)], [place(migrated), place(replica)]):
            for role in ("read-write", "primary"):
                for store in faces(at(*hosts, options=f"target_session_attrs={role}"), timeout=5.0):
                    assert takes(store)
            for role in ("prefer-standby", "standby", "read-only"):
                store = open_blocking(at(*hosts, options=f"target_session_attrs={role}"), clock=None, timeout=5.0)
                with pytest.raises(NotPrimary):
                    store.perform([Read("lock/a")])
        with pytest.raises(NotPrimary):
            alone = at(silent, place(replica), options="target_session_attrs=read-write")
            open_blocking(alone, clock=None, timeout=4.0).perform([Read("lock/a")])
    for store in faces(at(REFUSED, place(migrated), options="target_session_attrs=prefer-standby"), timeout=5.0):
        assert takes(store)


def test_names_and_unix_sockets() -> None:
    folder = Path("/tmp") / fresh("solely-socket").replace("/", "-")
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    try:
        with Postgres(unix_socket_directories=str(folder)) as server:
            for url in (
                at(f"{quote(str(folder), safe='')}:{server.port}"),
                at(REFUSED, f"{quote(str(folder), safe='')}:{server.port}"),
                at(f"localhost:{server.port}"),
                at(f"localhost:{server.port}", options="load_balance_hosts=random"),
                at("", options=f"host=&hostaddr=127.0.0.1&port={server.port}"),
            ):
                for store in faces(url, timeout=5.0):
                    assert takes(store), url
    finally:
        folder.rmdir()


def hosts_of(conninfo: str) -> list[tuple[str | None, ...]]:
    return [tuple(place.get(name) for name in ("host", "hostaddr", "port")) for place in connect.candidates(conninfo)]


def test_hosts_are_paired_with_their_addresses_and_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hosts_of("host=a,,c port=1,2,3") == [("a", None, "1"), ("", None, "2"), ("c", None, "3")]
    assert hosts_of("host=a,b port=7") == [("a", None, "7"), ("b", None, "7")]
    assert hosts_of("host=a,b hostaddr=::1, port=7") == [("a", "::1", "7"), ("b", "", "7")]
    assert hosts_of("host=a,b port=1,2,3") == [("a,b", None, "1,2,3")]  # libpq says what is wrong with it
    assert hosts_of("dbname=x") == [(None, None, None)]
    monkeypatch.setenv("PGHOST", "a,b")
    monkeypatch.setenv("PGPORT", "8,9")
    assert hosts_of("dbname=x") == [("a", None, "8"), ("b", None, "9")]
    assert hosts_of("service=x") == [(None, None, None)]
    roles = [
        place["target_session_attrs"] for place in connect.candidates("host=a,b target_session_attrs=prefer-standby")
    ]
    assert roles == ["standby", "standby", "any", "any"]
