"""Connections: a stranger who opens many shuts nobody out, whether it is silent, asks for health, or does not read."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.service.serving import LINES, TOKENS, Process, bearer, until

MOST = 40  # connections per worker in these tests: enough to tell the bounds apart, few enough to be quick
STRANGER = "127.0.0.2"  # another address of loopback
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
VERSION = b"GET /version HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n\r\n" % TOKENS["read"].encode()
_ESTABLISHED, _CLOSE_WAIT = "01", "08"  # states in /proc/net/tcp


class Served(Process):
    """`solely serve` with tokens and few connections."""

    def __init__(self, folder: Path, *flags: str, files: int = 0, **given: object) -> None:
        pairs = {"max_connections": MOST, **given}
        options = [word for name, value in pairs.items() for word in ("--set", f"{name}={value}")]
        super().__init__(folder, *options, *flags, files=files, SOLELY_TOKENS=",".join(LINES))
        self.base = self.address()
        self.port = int(self.base.rpartition(":")[2])
        until(self.ready, 40)

    def ready(self) -> bool:
        try:
            return httpx2.get(f"{self.base}/readyz", timeout=20).status_code == 200
        except httpx2.TransportError:
            return False

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20.0, source_address=(source, 0))

    def accepted(self) -> int:
        """Connections that a worker has accepted and not closed; those that wait for that belong to no process yet."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        here = f":{self.port:04X}"
        return sum(row[1].endswith(here) and row[3] in (_ESTABLISHED, _CLOSE_WAIT) and row[9] != "0" for row in rows)

    def waiting(self) -> int:
        """Connections that wait to be accepted."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        here = f":{self.port:04X}"
        return sum(row[1].endswith(here) and row[3] == _ESTABLISHED and row[9] == "0" for row in rows)

    def client(self, scope: str = "write") -> httpx2.Client:
        return httpx2.Client(base_url=self.base, timeout=20.0, headers=bearer(TOKENS[scope]))


@contextmanager
def flood(service: Served, source: str) -> Iterator[list[int]]:
    """A stranger who opens silent connections, 300 a second and more where the machine is quick, and keeps the latest
    200 of them. Counts them in the list's only item."""
    stop, opened = threading.Event(), [0]

    def run() -> None:
        kept: deque[socket.socket] = deque()
        while not stop.wait(1 / 300):
            with suppress(OSError):  # refused, or no time to accept it
                kept.append(service.connect(source))
                opened[0] += 1
            if len(kept) > 200:
                kept.popleft().close()
        for each in kept:
            each.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield opened
    finally:
        stop.set()
        thread.join()


def ask(connection: socket.socket, request: bytes = HEALTH) -> bytes:
    """The head and the body of the answer; b"" if the other side has hung up."""
    with suppress(ConnectionError):
        connection.sendall(request)
        return answer(connection)
    return b""


def answer(connection: socket.socket) -> bytes:
    seen = b""
    while b"}" not in seen:
        piece = connection.recv(65536)
        if not piece:
            break
        seen += piece
    return seen


def is_open(connection: socket.socket) -> bool:
    """False once the other side has hung up."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        connection.settimeout(20.0)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_renewal_succeeds_while_a_stranger_opens_silent_connections(workers: int, tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", str(workers)) as service, service.client() as holder:
        lease = holder.post("/v1/locks/acquire", json={"key": "deploy", "ttl": 60}).json()["token"]
        with flood(service, "127.0.0.1") as opened:
            renewals = []
            while opened[0] < 10 * MOST * workers or len(renewals) < 21:
                renewals.append(holder.post("/v1/locks/renew", json={"token": lease, "ttl": 60}).status_code)
            assert set(renewals) == {200}
        assert holder.post("/v1/locks/release", json={"token": lease}).json() == {"outcome": "released"}


@pytest.mark.parametrize("workers", [1, 2])
def test_health_and_new_callers_are_answered_while_a_stranger_floods(workers: int, tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", str(workers)) as service, flood(service, STRANGER) as opened:
        until(lambda: opened[0] > 3 * MOST * workers, 60)
        for number in range(10):  # each on a connection of its own
            for path in ("/healthz", "/readyz"):
                assert httpx2.get(f"{service.base}{path}", timeout=20).status_code == 200
            body = {"key": f"k{number}"}
            taken = httpx2.post(f"{service.base}/v1/locks/acquire", json=body, headers=bearer(TOKENS["write"]))
            assert taken.status_code == 200


def test_kept_alive_health_calls_lock_no_new_caller_out(tmp_path: Path) -> None:
    with Served(tmp_path) as service, ExitStack() as stack:
        strangers = [stack.enter_context(service.connect()) for _ in range(MOST - 1)]
        for each in strangers:
            ask(each)
        for number in range(MOST):
            caller = stack.enter_context(service.connect())
            assert b" 200 " in ask(caller, VERSION if number % 2 else HEALTH)


@pytest.mark.parametrize("workers", [1, 2])
def test_connections_beyond_the_cap_are_not_accepted(workers: int, tmp_path: Path) -> None:
    most = (MOST + 1) * workers  # one more for a moment: a connection is accepted before another is closed for it
    with Served(tmp_path, "--workers", str(workers)) as service, ExitStack() as stack:
        seen = []
        for _ in range(10 * MOST):
            with suppress(OSError):
                stack.enter_context(service.connect())
            seen.append(service.accepted())
        until(lambda: not service.waiting(), 30)
        seen.append(service.accepted())
        assert max(seen) <= most
        assert httpx2.get(f"{service.base}/healthz").status_code == 200
