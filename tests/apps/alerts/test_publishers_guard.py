"""The guard against places that only we can reach: what is refused, and that the address that was checked is called."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import uvloop

import solely
from solely.apps.alerts.model import Alert, Notification
from solely.apps.alerts.publishers import Publisher, PublishFailed, WebhookSettings, build
from solely.apps.alerts.publishers.address_guard import is_public
from tests.apps.hooks import DROP, hooks
from tests.certificates import make_certificate, server_side

ALERT = Alert(name="n", severity="critical", source="s", fingerprint="f")
NOTIFICATION = Notification(id="msg_1", alert=ALERT, at=0.0)
LOOPBACK = ("127.0.0.0/8",)

Making = Callable[..., Publisher]


@pytest.fixture
async def guarded() -> AsyncIterator[Making]:
    """Makes webhooks that are guarded, and closes them."""
    made: list[Publisher] = []
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as once:

        def make(url: str, **given: Any) -> Publisher:
            made.extend(build([WebhookSettings(url=url, guard=True, **given)], once=once))
            return made[-1]

        yield make
        for publisher in made:
            await publisher.close()


class Resolver:
    """Answers each question about hooks.example with the next of these addresses, and the last of them for ever."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self._answers = list(answers)
        self.asked = 0
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *rest: Any, **options: Any) -> list[Any]:
        if host not in ("hooks.example", b"hooks.example"):
            return self._real(host, port, *rest, **options)
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answer]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",  # shared by customers of a provider
        "169.254.169.254",  # where clouds keep credentials
        "224.0.0.1",
        "239.1.2.3",
        "240.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "ff0e::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
        "2002:7f00:1::1",  # 6to4 of 127.0.0.1
        "2001:0:808:808::1",  # Teredo
        "2001:db8::1",
    ],
)
def test_what_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


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
]


@pytest.mark.parametrize("address", NOWHERE_FOR_US)
@pytest.mark.parametrize("by_name", [False, True])
async def test_no_connection_is_made_to_a_special_address(
    guarded: Making, monkeypatch: pytest.MonkeyPatch, address: str, by_name: bool
) -> None:
    called: list[Any] = []

    def connect(_: socket.socket, to: Any) -> None:
        called.append(to)
        raise ConnectionRefusedError("a test connects to nobody")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", Resolver((address,)))
    host = "hooks.example" if by_name else f"[{address}]" if ":" in address else address
    with pytest.raises(PublishFailed, match="not a public address: not called") as raised:
        await guarded(f"http://{host}/").publish(NOTIFICATION)
    assert raised.value.permanent
    assert called == []


async def test_a_connection_is_made_to_a_public_address(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above would see one."""
    called: list[Any] = []

    def connect(_: socket.socket, to: Any) -> None:
        called.append(to)
        raise ConnectionRefusedError("a test connects to nobody")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(PublishFailed, match="cannot connect"):
        await guarded("http://93.184.215.14/").publish(NOTIFICATION)
    assert ("93.184.215.14", 80) in called


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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0"])
async def test_however_it_is_written_it_is_not_called(guarded: Making, host: str) -> None:
    async with hooks() as receiver:
        with pytest.raises(PublishFailed, match=r"not a public address: not called; .* guard_allow") as raised:
            await guarded(f"http://{host}:{receiver.port}/").publish(NOTIFICATION)
        assert raised.value.permanent
        assert receiver.connections == 0


async def test_one_bad_address_among_good_ones_is_refused(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("93.184.215.14", "10.0.0.7")))
    with pytest.raises(PublishFailed, match=r"hooks.example is at 10\.0\.0\.7"):
        await guarded("http://hooks.example/").publish(NOTIFICATION)


async def test_the_address_that_was_checked_is_called(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's second answer would be refused, and a connection by name would go there: nobody asks for it."""
    resolver = Resolver(("127.0.0.1",), ("10.255.255.1",))
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    async with hooks() as receiver:
        await guarded(f"http://hooks.example:{receiver.port}/in?x=1", guard_allow=LOOPBACK).publish(NOTIFICATION)
        (came,) = receiver.received
        assert (came.path, came.headers["host"]) == ("/in?x=1", f"hooks.example:{receiver.port}")
        assert resolver.asked == 1


async def test_each_try_is_checked_anew(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.1",), ("10.255.255.1",)))
    async with hooks() as receiver:
        receiver.answers.append(DROP)
        with pytest.raises(PublishFailed, match=r"is at 10\.255\.255\.1"):
            await guarded(f"http://hooks.example:{receiver.port}/", guard_allow=LOOPBACK).publish(NOTIFICATION)
        assert len(receiver.received) == 1


async def test_the_next_try_goes_to_the_next_address(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.9", "127.0.0.1")))
    async with hooks() as receiver:  # listens at the second one only
        await guarded(f"http://hooks.example:{receiver.port}/", guard_allow=LOOPBACK).publish(NOTIFICATION)
        assert len(receiver.received) == 1


async def test_a_host_that_cannot_be_resolved_may_come_back(guarded: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(PublishFailed, match=r"hooks\.example cannot be resolved: .*not known") as raised:
        await guarded("http://hooks.example/").publish(NOTIFICATION)
    assert not raised.value.permanent


def test_it_guards_on_the_loop_of_the_service_too() -> None:
    async def guarding() -> None:
        async with hooks() as receiver, solely.AsyncClient("memory://") as once:
            allowed = WebhookSettings(
                url=f"http://localhost:{receiver.port}/", guard=True, guard_allow=(*LOOPBACK, "::1")
            )
            strict = WebhookSettings(name="strict", url=allowed.url, guard=True)
            good, bad = build([allowed, strict], once=once)
            await good.publish(NOTIFICATION)
            with pytest.raises(PublishFailed, match="not a public address"):
                await bad.publish(NOTIFICATION)
            await good.close()
            await bad.close()
            assert len(receiver.received) == 1

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
        trusting = {"guard_allow": LOOPBACK, "ca_file": str(certificate)}
        await guarded(f"https://hooks.example:{receiver.port}/", **trusting).publish(NOTIFICATION)
        assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"
        assert asked == ["hooks.example"]
        with pytest.raises(PublishFailed, match="certificate"):
            await guarded(f"https://127.0.0.1:{receiver.port}/", name="other", **trusting).publish(NOTIFICATION)
        with pytest.raises(PublishFailed, match="certificate"):
            await guarded(f"https://hooks.example:{receiver.port}/", name="strict", guard_allow=LOOPBACK).publish(
                NOTIFICATION
            )
        assert len(receiver.received) == 1
