"""Connections without HTTP: guarded, timed, and closed after their block."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from solely.outgoing import Caller, CallFailed, GuardedConnector, OutgoingSettings, Request
from tests.apps.hooks import hooks
from tests.certificates import make_certificate, server_side
from tests.outgoing.resolver import Resolver
from tests.streams import served


async def test_a_stream_is_timed_and_closed_after_its_block() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)

    async with served(echo) as port, GuardedConnector("test").stream("127.0.0.1", port) as stream:
        stream.writer.write(b"hello\n")
        assert await stream.reader.readline() == b"hello\n"
        assert (stream.address, stream.certificate_expires, stream.timings.tls) == ("127.0.0.1", None, 0.0)
        assert stream.timings.connect > 0


async def test_a_host_is_tried_at_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hooks() as site:
        monkeypatch.setattr(socket, "getaddrinfo", Resolver(("127.0.0.9", "127.0.0.1")))
        async with GuardedConnector("test").stream("hooks.example", site.port) as stream:
            assert stream.address == "127.0.0.1"


async def test_tls_checks_the_name_of_the_host(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "localhost")
    connector = GuardedConnector("test", OutgoingSettings(ca_file=str(certificate)))
    async with hooks(server_side(certificate)) as site:
        async with connector.stream("localhost", site.port, tls=True) as stream:
            assert stream.certificate_expires is not None
            assert stream.timings.tls > 0
        with pytest.raises(CallFailed, match=r"no TLS connection to 127\.0\.0\.1"):
            async with connector.stream("127.0.0.1", site.port, tls=True):
                raise AssertionError


async def test_an_internal_address_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    connects: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, to: connects.append(to))
    connector = GuardedConnector("test", OutgoingSettings(guard=True))
    with pytest.raises(CallFailed, match="not a public address"):
        async with connector.stream("10.0.0.1", 22):
            raise AssertionError
    with pytest.raises(CallFailed, match="not a public address"):
        await connector.ask("127.0.0.1", 53, b"?")
    assert connects == []


async def test_nobody_there_is_a_failure_that_says_so() -> None:
    async with hooks() as site:
        port = site.port
    with pytest.raises(CallFailed, match=r"cannot connect to 127\.0\.0\.1: Connection refused"):
        async with GuardedConnector("test").stream("127.0.0.1", port):
            raise AssertionError
    with pytest.raises(CallFailed, match="did not answer: Connection refused"):
        await GuardedConnector("test").ask("127.0.0.1", port, b"?")


async def test_name_servers_that_hang_delay_no_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer blocks a thread; the threads of the event loop are few."""
    import threading

    leave, real = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *rest: Any, **options: Any) -> Any:
        if host == "slow.example":
            leave.wait(60)
            raise OSError("no answer")
        return real(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def call(host: str, port: int) -> str:
        async with GuardedConnector("test").stream(host, port) as stream:
            return stream.address

    async with hooks() as site:
        hanging = [asyncio.create_task(call("slow.example", 80)) for _ in range(40)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(call("localhost", site.port), 60) in ("127.0.0.1", "::1")
        leave.set()
        assert all(isinstance(each, CallFailed) for each in await asyncio.gather(*hanging, return_exceptions=True))


async def test_a_tls_handshake_that_takes_too_long_leaves_no_connection_open() -> None:
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()

    async with served(silent) as port, Caller("test", OutgoingSettings(timeout=0.3, retries=0)) as caller:
        with pytest.raises(CallFailed, match="no answer within"):
            await caller.call(Request("GET", f"https://127.0.0.1:{port}/"))
        await asyncio.wait_for(left.wait(), 30)
