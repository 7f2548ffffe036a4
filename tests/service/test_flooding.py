"""One connection without a token, however much it sends and in whatever part of a request, takes a bounded amount of
memory and of callbacks. Memory is that of a real process, as the kernel counts it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from solely.service.protocol import MAX_HEADERS, MAX_PIPELINED, BoundedProtocol
from solely.service.routes import PUBLIC, Call, Route
from solely.service.settings import Settings
from tests.service.serving import LINES, Running, running
from tests.service.test_connections import HEALTH, Served, ask, is_open, soon

MIB = 1 << 20
FLOOD_BYTES = 64 * MIB  # what a stranger tries to send: far more than the service may keep
KEPT_BYTES = 24 * MIB  # by which the process may grow at most: buffers of sockets, garbage not yet collected
HEADERS = b"host: localhost\r\n"
CHUNKED = b"GET /healthz HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n"
UPGRADE = b"GET /healthz HTTP/1.1\r\n" + HEADERS + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"

# What is sent first, and what is sent again and again after it.
FLOODS = {
    "trailers": (CHUNKED + b"0\r\n", b"x: y\r\n" * 8192),
    "one trailer's name": (CHUNKED + b"0\r\n", b"x" * 65_536),
    "one trailer's value": (CHUNKED + b"0\r\nx: ", b"y" * 65_536),
    "chunk extensions": (CHUNKED + b"1", b";x=y" * 16_384),
    "one extension's name": (CHUNKED + b"1;", b"x" * 65_536),
    "tiny chunks": (CHUNKED, b"1\r\nx\r\n" * 8192),
    "zeros of a chunk's size": (CHUNKED, b"0" * 65_536),
    "headers": (b"GET /healthz HTTP/1.1\r\n", b"x: y\r\n" * 8192),
    "the request line": (b"GET /", b"x" * 65_536),
    "pipelined requests": (b"", b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n" * 2048),
    "blank lines": (b"", b"\r\n" * 32_768),
    "an upgraded connection": (UPGRADE, b"x" * 65_536),
    "an unread body": (CHUNKED.replace(b"transfer-encoding: chunked", b"content-length: 99999999"), b"x" * 65_536),
    "a login": (CHUNKED.replace(b"GET /healthz", b"POST /login"), b"ffff\r\n" + b"x" * 65_535 + b"\r\n"),
}  # fmt: skip


def peak_bytes(pid: int) -> int:
    """The most memory that the process had so far."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024


def forget_peak(pid: int) -> int:
    """Has the kernel count the peak anew; returns the memory that the process has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_bytes(pid)


def pour(connection: socket.socket, first: bytes, then: bytes, most: int = FLOOD_BYTES) -> int:
    """Sends as much as the other side takes, without reading what it answers; returns how much that was."""
    sent = 0
    with suppress(OSError):
        connection.sendall(first)
        while sent < most:
            connection.settimeout(2.0)
            sent += connection.send(then)
    return sent


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("flooded"), receive_timeout=10) as service:
        yield service


@pytest.mark.parametrize("name", FLOODS)
def test_a_stranger_that_sends_without_end_takes_no_memory(name: str, served: Served) -> None:
    before = forget_peak(served.pid)
    with served.connect() as connection:
        sent = pour(connection, *FLOODS[name])
    assert peak_bytes(served.pid) - before < KEPT_BYTES, f"after {sent} bytes"
    with served.connect() as other:
        assert b" 200 " in ask(other)


def test_no_flood_is_an_error_of_the_service(served: Served) -> None:
    """Responses to a stranger who has been refused, or has gone, are dropped: nothing of that fills the log."""
    document = b"GET /openapi.json HTTP/1.1\r\n" + HEADERS + b"\r\n"
    for first, then in (*FLOODS.values(), (document * 60, document), (HEALTH * 60, b"x" * 4096), (HEALTH * 100, b"")):
        for _ in range(5):
            with served.connect() as connection, suppress(OSError):
                connection.sendall(first + then)
    with served.connect() as other:
        assert b" 200 " in ask(other)
    log = served.log.read_text()
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]
    assert "ASGI callable" not in log


# -- what is refused, and what is not


async def _echo(call: Call[None, None]) -> dict[str, list[str]]:
    """The headers of the request, once its body has arrived."""
    while (await call.receive()).get("more_body"):
        pass
    return {"headers": [name.decode() for name, _ in call.scope["headers"]]}


ECHO = Route("POST", "/echo", PUBLIC, _echo, "Echoes")
TO_ECHO = b"POST /echo HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def echoing() -> Iterator[Running]:
    with running([ECHO], tokens=LINES) as it:
        yield it


@pytest.mark.parametrize(
    ("flood", "status", "said"),
    [
        ((TO_ECHO + b"0\r\n", b"x: y\r\n" * 16_384), b" 413 ", b"trailers"),
        ((TO_ECHO + b"1", b";x=y" * 16_384), b" 413 ", b"extensions"),
        ((TO_ECHO, b"1\r\nx\r\n" * 16_384), b" 413 ", b"larger chunks"),
        ((b"GET / HTTP/1.1\r\n", b"x: y\r\n" * (MAX_HEADERS + 2)), b" 431 ", b"more than 200 headers"),
    ],
    ids=["trailers", "extensions", "tiny chunks", "headers"],
)
def test_what_is_too_much_is_refused_with_the_reason(
    flood: tuple[bytes, bytes], status: bytes, said: bytes, echoing: Running
) -> None:
    with echoing.connect() as connection:
        answer = ask(connection, b"".join(flood))
    assert status in answer[:20]
    assert said in answer


def test_a_trailer_is_no_header(echoing: Running) -> None:
    with echoing.connect() as connection:
        answer = ask(connection, TO_ECHO + b"1\r\nx\r\n0\r\nauthorization: Bearer x\r\nx-late: y\r\n\r\n")
    assert answer.endswith(b'{"headers":["host","transfer-encoding"]}')


@pytest.mark.parametrize("size", [50, 1000])
def test_a_body_of_small_chunks_arrives(size: int, echoing: Running) -> None:
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    with echoing.connect() as connection:
        connection.sendall(TO_ECHO + chunk * 20_000)
        assert b" 200 " in ask(connection, b"0\r\n\r\n")


def test_tiny_chunks_cost_a_bounded_number_of_callbacks(monkeypatch: pytest.MonkeyPatch, echoing: Running) -> None:
    calls = [0]
    through = BoundedProtocol.on_body

    def counted(connection: BoundedProtocol, body: bytes) -> None:
        calls[0] += 1
        through(connection, body)

    monkeypatch.setattr(BoundedProtocol, "on_body", counted)
    with echoing.connect() as connection:
        pour(connection, TO_ECHO, b"1\r\nx\r\n" * 8192, most=4 * MIB)
    assert 0 < calls[0] < 4 * Settings().max_header  # of 700,000 chunks


def test_requests_ahead_of_their_responses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [0]
    through = BoundedProtocol.on_headers_complete

    def counted(connection: BoundedProtocol) -> None:
        try:
            through(connection)
        finally:
            seen[0] = max(seen[0], len(connection.pipeline))

    monkeypatch.setattr(BoundedProtocol, "on_headers_complete", counted)

    async def hang(call: Call[None, None]) -> None:
        await call.service.stopping.wait()

    with running([Route("GET", "/healthz", PUBLIC, hang, "Hangs")]) as it, it.connect() as connection:
        pour(connection, b"", HEALTH * 2048, most=4 * MIB)
        soon(lambda: not is_open(connection))
        it.on_loop(it.service.stop)
    assert MAX_PIPELINED < seen[0] <= MAX_PIPELINED + 1
