"""No probe of any kind reaches an address that only the service can reach, unless the operator allows its network."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from solely.apps.probes.checks import Checker
from solely.apps.probes.model import ProbeTarget
from tests.apps.hooks import Answer, hooks
from tests.outgoing.resolver import Resolver
from tests.outgoing.test_guard import NOWHERE_FOR_US

SPELLINGS = (  # of addresses that the resolver of the system understands
    "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]",
    "[64:ff9b::7f00:1]", "[fe80::1]", "[fc00::1]", "localhost",
)  # fmt: skip
HOSTS = [*(f"[{each}]" if ":" in each else each for each in NOWHERE_FOR_US), *SPELLINGS]
REFUSED = ("which is not a public address", "cannot be resolved", "names a host that cannot be")
FORMS = ("http://{}/", "https://{}/latest/meta-data/", "tcp://{}:22", "tls://{}:443", "dns://{}/example.org")


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The places to which any socket of this process tries to connect, or to send; all of them refuse."""
    called: list[Any] = []

    def connect(_: socket.socket, to: Any, *__: Any) -> None:
        called.append(to)
        raise ConnectionRefusedError("a test connects to nobody")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, connect)
    return called


@pytest.fixture
async def checker() -> AsyncIterator[Checker]:
    it = Checker()
    yield it
    await it.close()


def target(url: str, **more: Any) -> ProbeTarget:
    return msgspec.convert({"name": "x", "url": url, "timeout": 20, **more}, ProbeTarget)


async def test_there_are_at_least_40_vectors() -> None:
    assert len(set(HOSTS)) >= 40


@pytest.mark.parametrize("form", FORMS)
async def test_no_socket_connects_to_an_internal_address(checker: Checker, connects: list[Any], form: str) -> None:
    for host in HOSTS:
        error = (await checker.check(target(form.format(host)))).error
        assert any(why in error for why in REFUSED), (host, error)
    assert connects == []


async def test_a_name_that_leads_inside_is_refused_for_every_kind(
    checker: Checker, connects: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for addresses in (("10.0.0.7",), ("93.184.216.34", "127.0.0.1")):
        monkeypatch.setattr(socket, "getaddrinfo", Resolver(addresses))
        for form in FORMS:
            error = (await checker.check(target(form.format("hooks.example")))).error
            assert "which is not a public address" in error, (addresses, form, error)
    assert connects == []


async def test_steps_and_redirects_are_guarded_as_well(checker: Checker, connects: list[Any]) -> None:
    steps = [{"name": "inside", "url": "http://169.254.169.254/latest/"}]
    error = (await checker.check(target("https://93.184.216.34/", steps=steps))).error
    assert "169.254.169.254, which is not a public address" in error
    assert connects == []


async def test_a_redirect_to_an_internal_address_is_not_followed() -> None:
    checker = Checker(guard_allow=("127.0.0.1/32",))
    async with hooks() as site, hooks() as inside:
        site.answers.append(Answer(302, (("location", f"http://127.0.0.2:{inside.port}/"),)))
        assert "127.0.0.2, which is not a public address" in (await checker.check(target(site.url))).error
        assert inside.connections == 0
    await checker.close()


async def test_an_operator_allows_private_targets_by_their_network() -> None:
    checker = Checker(guard_allow=("127.0.0.1/32",))
    async with hooks() as site:
        assert (await checker.check(target(site.url))).error == ""
        assert (await checker.check(target(f"tcp://127.0.0.1:{site.port}"))).error == ""
        other = await checker.check(target(f"tcp://127.0.0.3:{site.port}"))
        assert "add its network to guard_allow" in other.error
    await checker.close()
