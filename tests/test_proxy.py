"""Each fault of the proxy, against a server that echoes and records what it receives."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from solely.testing.proxy import FaultProxy

# Only waiting distinguishes withheld bytes from a slow network: 0.2 s is a thousand round trips.
SILENCE = 0.2


class EchoServer:
    """Echoes each chunk; `received` contains the chunks, `ends` how connections ended ("eof" or "reset")."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.ends: list[str] = []
        self.changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        end = "eof"
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    self._note(self.received, data)
                    connection.sendall(data)
            except OSError:
                end = "reset"
        self._note(self.ends, end)

    def _note(self, into: list[Any], what: object) -> None:
        with self.changed:
            into.append(what)
            self.changed.notify_all()

    def got(self, *expected: bytes) -> bool:
        """True once exactly `expected` arrived; False if not within 20 s."""
        with self.changed:
            return self.changed.wait_for(lambda: self.received == list(expected), 100)

    def ended(self, *expected: str) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.ends == list(expected), 100)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with closing(EchoServer()) as server:
        yield server


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        yield client


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=5)


def send(client: socket.socket, request: bytes) -> bytes:
    client.sendall(request)
    return client.recv(1 << 16)


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE)
    try:
        return not client.recv(1) and False
    except TimeoutError:
        return True
    finally:
        client.settimeout(5)


def test_forwards_unchanged_and_counts(proxy: FaultProxy, client: socket.socket) -> None:
    assert send(client, b"one") == b"one"
    assert send(client, b"two") == b"two"
    assert proxy.seen == {"connections": 1, "to_server": 2, "to_client": 2}


def test_forwards_more_than_a_chunk(client: socket.socket) -> None:
    sent = bytes(range(256)) * 4096
    threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
    received = b""
    while len(received) < len(sent):
        received += client.recv(1 << 16)
    assert received == sent


def test_a_disconnect_is_forwarded(server: EchoServer, client: socket.socket) -> None:
    send(client, b"one")
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    assert server.ended("eof")


def test_url_keeps_all_but_the_address() -> None:
    proxy = FaultProxy("127.0.0.1", 1)
    with proxy:
        url = proxy.url("redis://user:secret@127.0.0.1:6379/2?prefix=x:")
        assert url == f"redis://user:secret@127.0.0.1:{proxy.port}/2?prefix=x:"


def test_drop_requests(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    fault = proxy.drop_requests(where=lambda data: b"lost" in data)
    assert send(client, b"kept") == b"kept"
    client.sendall(b"lost")
    assert fault.wait()
    client.sendall(b"after a gap TCP delivers nothing")
    assert is_silent(client)
    with connect(proxy) as other:
        assert send(other, b"lost but only once") == b"lost but only once"
    assert server.got(b"kept", b"lost but only once")
    assert fault.hits == 1


def test_drop_replies_and_hang(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    fault = proxy.drop_replies()
    client.sendall(b"performed")
    assert server.got(b"performed")
    assert is_silent(client)
    assert fault.hits == 1


def test_drop_replies_and_reset(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    proxy.drop_replies(then="reset")
    with pytest.raises(ConnectionResetError):
        send(client, b"performed")
    assert server.got(b"performed")


def test_drop_replies_and_close(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    proxy.drop_replies(then="close")
    assert send(client, b"performed") == b""
    assert server.got(b"performed")


def test_drop_replies_answering_a_request(proxy: FaultProxy, client: socket.socket) -> None:
    fault = proxy.drop_replies(answering=lambda request: request.startswith(b"EVALSHA"), then="close")
    assert send(client, b"PING") == b"PING"
    assert send(client, b"EVALSHA") == b""
    assert fault.hits == 1


def test_drops_the_next_n(proxy: FaultProxy) -> None:
    fault = proxy.drop_replies(n=2, then="close")
    answers = []
    for request in (b"1", b"2", b"3"):
        with connect(proxy) as client:
            answers.append(send(client, request))
    assert answers == [b"", b"", b"3"]
    assert fault.hits == 2


def test_delay_by_seconds(proxy: FaultProxy, client: socket.socket) -> None:
    fault = proxy.delay("to_client", SILENCE * 2)
    client.sendall(b"late")
    assert is_silent(client)
    assert client.recv(16) == b"late"
    assert fault.hits == 1


def test_a_delayed_request_arrives_after_its_sender_disconnected_and_is_overtaken(
    proxy: FaultProxy, server: EchoServer
) -> None:
    fault = proxy.delay("to_server", where=lambda data: data == b"acquire")
    with connect(proxy) as impatient:
        impatient.sendall(b"acquire")
        assert fault.wait()
    with connect(proxy) as other:
        assert send(other, b"release") == b"release"
    assert server.got(b"release")
    proxy.release()
    assert server.got(b"release", b"acquire")


def test_release_delivers_only_what_is_held_now(proxy: FaultProxy, client: socket.socket) -> None:
    fault = proxy.delay("to_server", n=2)
    client.sendall(b"one")
    assert fault.wait()
    proxy.release()
    assert client.recv(16) == b"one"
    client.sendall(b"two")
    assert is_silent(client)
    proxy.release()
    assert client.recv(16) == b"two"


def test_reset(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    send(client, b"one")
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert server.ended("reset")
    with connect(proxy) as other:
        assert send(other, b"two") == b"two"


def test_reset_on_a_request(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    fault = proxy.reset_on("to_server", lambda data: b"bad" in data)
    assert send(client, b"good") == b"good"
    with pytest.raises(ConnectionResetError):
        send(client, b"bad")
    assert server.ended("reset")
    assert server.received == [b"good"]
    assert fault.hits == 1


def test_reset_on_a_reply(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    proxy.reset_on("to_client")
    with pytest.raises(ConnectionResetError):
        send(client, b"performed")
    assert server.got(b"performed")


def test_cut_reply(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    fault = proxy.cut_reply(3)
    assert send(client, b"performed") == b"per"
    with pytest.raises(ConnectionResetError):
        client.recv(16)
    assert server.got(b"performed")
    assert fault.hits == 1


def test_half_open_then_heal(proxy: FaultProxy, server: EchoServer, client: socket.socket) -> None:
    send(client, b"one")
    proxy.half_open()
    client.sendall(b"two")
    with connect(proxy) as newcomer:
        newcomer.sendall(b"three")
        assert is_silent(client)
        assert is_silent(newcomer)
        assert server.received == [b"one"]
        proxy.heal()
        assert client.recv(16) == b"two"
        assert newcomer.recv(16) == b"three"


def test_half_open_does_not_forward_a_disconnect(proxy: FaultProxy, server: EchoServer) -> None:
    with connect(proxy) as client:
        send(client, b"one")
        proxy.half_open()
    with server.changed:
        assert not server.changed.wait_for(lambda: server.ends, SILENCE)
    proxy.heal()
    assert server.ended("eof")


def test_a_half_open_proxy_can_be_reset_and_closed(server: EchoServer) -> None:
    with FaultProxy("127.0.0.1", server.port) as proxy, connect(proxy) as client, connect(proxy):
        send(client, b"one")
        proxy.half_open()
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_refuse_then_heal(proxy: FaultProxy, client: socket.socket) -> None:
    assert send(client, b"one") == b"one"
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert send(client, b"existing connections work") == b"existing connections work"
    proxy.heal()
    with connect(proxy) as other:
        assert send(other, b"two") == b"two"


def test_heal_disarms(proxy: FaultProxy, client: socket.socket) -> None:
    fault = proxy.drop_requests(n=100)
    proxy.heal()
    assert send(client, b"one") == b"one"
    assert fault.hits == 0


def test_an_absent_server_resets_the_client() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        # The reset may arrive before connect() returns, so either call may raise it.
        with FaultProxy(*nobody.getsockname()) as proxy, pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(1)


def test_an_exception_in_a_predicate_is_raised_in_the_test(server: EchoServer) -> None:
    def broken(data: bytes) -> bool:
        raise LookupError("typo in the predicate")

    with pytest.raises(ExceptionGroup) as caught, FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.drop_requests(where=broken)
        with connect(proxy) as client:
            assert send(client, b"one") == b""
    assert caught.group_contains(LookupError)


async def test_works_with_asyncio(proxy: FaultProxy, server: EchoServer) -> None:
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    fault = proxy.delay("to_client")
    writer.write(b"held")
    assert await asyncio.to_thread(fault.wait)
    proxy.release()
    assert await reader.readexactly(4) == b"held"
    writer.close()
    await writer.wait_closed()
