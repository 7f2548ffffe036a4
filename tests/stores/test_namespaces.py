"""One option of every URL keeps applications apart that share a server: `?namespace=NAME`."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

import solely
from solely.stores import open_store
from solely.stores.mongo.settings import parse as mongo
from solely.stores.postgres.settings import parse as postgres
from solely.stores.redis.settings import parse as redis
from tests.conftest import STORES

SHARED: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "memory": lambda request: f"memory://{secrets.token_hex(8)}",
    "valkey": lambda request: str(request.getfixturevalue("valkey").url),
    "postgres": lambda request: str(request.getfixturevalue("postgres").url),
    "mongo": lambda request: str(request.getfixturevalue("replica_set").url_of("solely")),
}
SCHEMES = ["memory", "redis", "postgresql", "mongodb"]
CANNOT_BE = ["", "a b", "1a", "a:b", "a{b}", 'a"b', "a$b", "a/b", "system.users", "ä", "x" * 41]


@pytest.fixture(params=[name for name in SHARED if name in STORES])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The URL of a server, with no options."""
    return SHARED[str(request.param)](request)


def within(url: str, namespace: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}namespace={namespace}"


def test_namespaces_of_one_server_share_nothing(shared_url: str) -> None:
    names = [f"t{secrets.token_hex(6)}", f"t-{secrets.token_hex(6)}"]
    with solely.Client(within(shared_url, names[0])) as one, solely.Client(within(shared_url, names[1])) as two:
        held = one.lock("a", wait=0)
        other = two.lock("a", wait=0)
        assert one.first("m")
        assert two.first("m")
        one.queue("q").push("1", "only of one")
        assert two.queue("q").take(ttl=10) is None
        with solely.Client(within(shared_url, names[0])) as again, pytest.raises(solely.Busy):
            again.lock("a", wait=0)
        assert two.clear_lock("a", reason="of two alone") is True
        held.ensure(1.0)
        assert other.release() == "cleared"
        assert held.release() == "released"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", CANNOT_BE)
def test_a_name_that_not_every_store_can_have_is_refused(scheme: str, name: str) -> None:
    with pytest.raises(solely.InvalidInput, match=r"namespace must be 1 to 40 letters"):
        open_store(f"{scheme}://host/1?namespace={name}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_namespace_is_given_once(scheme: str) -> None:
    with pytest.raises(solely.InvalidInput, match="namespace"):
        open_store(f"{scheme}://host/1?namespace=a&namespace=b")


def test_what_the_namespace_is_in_each_store() -> None:
    assert redis("redis://h").prefix == redis("redis://h?namespace=solely").prefix == "solely:"
    assert redis("redis://h?namespace=a").prefix == "a:"
    assert postgres("postgresql://h/d").schema == mongo("mongodb://h/d").collection == "solely"
    assert postgres("postgresql://h/d?namespace=a").schema == "a"
    assert mongo("mongodb://h/d?namespace=a").collection == "a"
    assert "namespace" not in mongo("mongodb://h/d?namespace=a&replicaSet=x").url


def test_where_there_is_no_namespace_to_choose_the_error_says_what_to_do() -> None:
    with pytest.raises(solely.InvalidInput, match=r"a namespace of its own.*name another file"):
        open_store("sqlite:///solely.db?namespace=a")
    with pytest.raises(solely.InvalidInput, match="the URL of the service's own store"):
        open_store("http://localhost:8765?namespace=a")
