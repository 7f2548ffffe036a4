"""The guard against places that only we can reach: what is refused, and that the address that was checked is called."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import uvloop

from solely import InvalidInput
from solely.outgoing import Caller, CallFailed, OutgoingSettings, Request
from solely.outgoing.guard import is_public
from tests.apps.hooks import DROP, Answer, hooks
from tests.certificates import make_certificate, server_side
from tests.outgoing.resolver import Resolver

LOOPBACK = ("127.0.0.0/8",)

Making = Callable[..., Caller]


def get(url: str) -> Request:
    return Request("GET", url)


@pytest.fixture
async def guarded() -> AsyncIterator[Making]:
    """Makes guarded callers, and closes them."""
    made: list[Caller] = []

    def make(**given: Any) -> Caller:
        made.append(Caller("guarded", OutgoingSettings(guard=True, **given)))
        return made[-1]

    yield make
    for caller in made:
        await caller.close()


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The places to which any socket of this process tries to connect; all of them refuse."""
    called: list[Any] = []

    def connect(_: socket.socket, to: Any) -> None:
        called.append(to)
        raise ConnectionRefusedError("a test connects to nobody")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    return called


NOWHERE_FOR_US = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",  # the metadata of Alibaba Cloud
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",  # the platform of Azure
    "169.254.169.254",
    "169.254.170.2",  # the credentials of a container at Amazon
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.8",
    "192.0.0.9",  # of 192.0.0.0/24, which ipaddress takes for public
    "192.0.0.10",
    "192.0.0.170",
    "192.0.0.192",  # the metadata of Oracle Cloud
    "192.0.2.1",
    "192.88.99.1",  # a relay of 6to4
    "192.88.99.255",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "233.252.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",  # IPv4-compatible: 127.0.0.1
    "::808:808",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:7f00:1",  # IPv4-translated
    "64:ff9b::1",
    "64:ff9b::808:808",  # NAT64
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "100::1",  # discarded
    "100:0:0:1::1",
    "2001::1",  # Teredo
    "2001:0:808:808::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:1ff::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",  # 6to4
    "3fff::1",
    "3fff:fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # the metadata of Amazon
    "fd20:ce::254",  # the metadata of Google
    "fe80::1",
    "febf::1",
    "fec0::1",
    "feff::1",
    "ff02::1",
    "ff0e::1",
    "127.9.9.9",
    "192.168.1.1",
    "2002:7f00:1::1",
    "239.1.2.3",
    "64:ff9b::7f00:1",
    "::ffff:8.8.8.8",
    "fe80::1%eth0",
]


@pytest.mark.parametrize("address", NOWHERE_FOR_US)
def test_what_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", NOWHERE_FOR_US)
@pytest.mark.parametrize("by_name", [False, True])
async def test_no_connection_is_made_to_a_special_address(
    guarded: Making, monkeypatch: pytest.MonkeyPatch, connects: list[Any], address: str, by_name: bool
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver((address,)))
    host = "hooks.example" if by_name else f"[{address}]" if ":" in address else address
    with pytest.raises((CallFailed, InvalidInput)) as raised:
        await guarded(retries=0).call(get(f"http://{host}/"))
    if "%" not in host:  # a zone is no part of a URL's host
        assert isinstance(raised.value, CallFailed)
        assert "not a public address: not called" in str(raised.value)
        assert raised.value.permanent
    assert connects == []


async def test_a_connection_is_made_to_a_public_address(guarded: Making, connects: list[Any]) -> None:
    """So that the test above would see one."""
    with pytest.raises(CallFailed, match="cannot connect"):
        await guarded(retries=0).call(get("http://93.184.215.14/"))
    assert ("93.184.215.14", 80) in connects


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.215.14",
        "100.63.255.255",
        "100.128.0.0",
        "168.63.129.15",
        "172.32.0.1",
        "192.0.1.1",
        "192.88.98.1",
        "192.88.100.1",
        "198.20.0.1",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "2a00:1450:4001::1",
        "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
    ],
)
def test_what_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0177.0.0.01",
        "0x7f000001",
        "0x7f.1",
        "0x7F.0x0.0x0.0x1",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1.",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "user@127.0.0.1",
        "93.184.215.14@127.0.0.1",
        "93.184.215.14:80@127.0.0.1",
        "93.184.215.14%40127.0.0.1",
        "93.184.215.14%23@127.0.0.1",
        "93.184.215.14\\@127.0.0.1",
        "127.0.0.1\\.93.184.215.14",
        "127.0.0.1%00.93.184.215.14",
        "①②⑦.0.0.1",
        "127。0。0。1",
    ],
)
async def test_however_it_is_written_it_is_not_called(guarded: Making, connects: list[Any], host: str) -> None:
    """Some of these are no host for us, others for no resolver, and the rest are at an address that is not public."""
    with pytest.raises((CallFailed, InvalidInput)):
        await guarded(retries=0).call(get(f"http://{host}:8765/"))
    assert connects == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0"])
async def test_the_refusal_says_what_to_do(guarded: Making, host: str) -> None:
    async with hooks() as receiver:
        with pytest.raises(CallFailed, match=r"not a public address: not called; .* guard_allow") as raised:
            await guarded().call(get(f"http://{host}:{receiver.port}/"))
        assert raised.value.permanent
        assert receiver.connections == 0


async def test_one_bad_address_among_good_ones_is_refused(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("93.184.215.14", "10.0.0.7")))
    with pytest.raises(CallFailed, match=r"hooks.example is at 10\.0\.0\.7"):
        await guarded().call(get("http://hooks.example/"))


async def test_the_address_that_was_checked_is_called(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's second answer would be refused, and a connection by name would go there: nobody asks for it."""
    resolver = Resolver(("127.0.0.1",), ("10.255.255.1",))
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    async with hooks() as receiver:
        await guarded(guard_allow=LOOPBACK).call_ok(get(f"http://hooks.example:{receiver.port}/in?x=1"))
        (came,) = receiver.received
        assert (came.path, came.headers["host"]) == ("/in?x=1", f"hooks.example:{receiver.port}")
        assert resolver.asked == 1


async def test_each_try_is_checked_anew(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",), ("10.255.255.1",)))
    async with hooks() as receiver:
        receiver.answers.append(DROP)
        with pytest.raises(CallFailed, match=r"is at 10\.255\.255\.1"):
            await guarded(guard_allow=LOOPBACK).call(get(f"http://hooks.example:{receiver.port}/"))
        assert len(receiver.received) == 1


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.7/",
        "//10.0.0.7/",
        "http://127.0.0.2/",
        "http://2130706434/",
        "http://0x7f.2/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/latest/meta-data",
        "http://169.254.169.254/latest/meta-data",
        "http://hooks.example/",
        "http://hooks.example./",
        "http://user@10.0.0.7/",
        "http://93.184.215.14@10.0.0.7/",
        "ftp://10.0.0.7/",
        "file:///etc/passwd",
        "gopher://10.0.0.7/",
    ],
)
async def test_a_redirect_leads_to_no_special_address(
    guarded: Making, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("10.0.0.7",)))
    called: list[Any] = []
    real = socket.socket.connect

    def connect(self: socket.socket, to: Any) -> None:
        called.append(to)
        real(self, to)

    async with hooks() as receiver:
        receiver.answers.append(Answer(307, (("Location", location),)))
        monkeypatch.setattr(socket.socket, "connect", connect)
        with pytest.raises(CallFailed, match=r"not a public address|redirects to an invalid URL") as raised:
            await guarded(guard_allow=("127.0.0.1",)).call(get(receiver.url))
        assert raised.value.permanent
        assert called == [("127.0.0.1", receiver.port)]


async def test_if_an_address_does_not_answer_the_next_is_called(
    guarded: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.9", "127.0.0.1")))
    async with hooks() as receiver:  # listens at the second one only
        caller = guarded(guard_allow=LOOPBACK, retries=0)
        response = await caller.call_ok(get(f"http://hooks.example:{receiver.port}/"))
        assert response.address == "127.0.0.1"
        assert len(receiver.received) == 1


async def test_a_host_that_cannot_be_resolved_may_come_back(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(CallFailed, match=r"hooks\.example cannot be resolved: .*not known") as raised:
        await guarded().call(get("http://hooks.example/"))
    assert (raised.value.permanent, raised.value.phase) == (False, "resolve")


def test_it_guards_on_the_loop_of_the_service_too() -> None:
    async def guarding() -> None:
        settings = OutgoingSettings(guard=True, guard_allow=(*LOOPBACK, "::1"))
        async with hooks() as receiver, Caller("good", settings) as good:
            url = f"http://localhost:{receiver.port}/"
            await good.call_ok(get(url))
            async with Caller("bad", OutgoingSettings(guard=True)) as bad:
                with pytest.raises(CallFailed, match="not a public address"):
                    await bad.call(get(url))
            assert receiver.connections == 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(guarding())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "hooks.example")


async def test_the_certificate_must_be_of_the_name(
    guarded: Making, monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    tls = server_side(certificate)
    asked: list[str | None] = []
    tls.sni_callback = lambda _, name, __: asked.append(name)
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",)))
    async with hooks(tls) as receiver:
        trusting = {"guard_allow": LOOPBACK, "ca_file": str(certificate), "retries": 0}
        await guarded(**trusting).call_ok(get(f"https://hooks.example:{receiver.port}/"))
        assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"
        assert asked == ["hooks.example"]
        for caller, host in ((guarded(**trusting), "127.0.0.1"), (guarded(guard_allow=LOOPBACK), "hooks.example")):
            with pytest.raises(CallFailed, match="certificate") as raised:
                await caller.call(get(f"https://{host}:{receiver.port}/"))
            assert raised.value.phase == "tls"
        assert len(receiver.received) == 1


async def test_two_names_at_one_address_share_no_connection(
    guarded: Making, monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    """Else the second name would be called over a connection whose certificate is that of the first."""
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",)))
    async with hooks(server_side(certificate)) as receiver:
        caller = guarded(guard_allow=LOOPBACK, ca_file=str(certificate), retries=0)
        await caller.call_ok(get(f"https://hooks.example:{receiver.port}/"))
        with pytest.raises(CallFailed, match="certificate"):
            await caller.call(get(f"https://127.0.0.1:{receiver.port}/"))


async def test_a_name_with_the_dot_of_the_root_is_the_same_name(
    guarded: Making, monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",)))
    async with hooks(server_side(certificate)) as receiver:
        caller = guarded(guard_allow=LOOPBACK, ca_file=str(certificate))
        assert (await caller.call(get(f"https://hooks.example.:{receiver.port}/"))).ok
