"""Connections: a stranger who opens many shuts nobody out, whether it is silent, asks for health, or does not read."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
from starlette.responses import Response

from solely.errors import InvalidInput
from solely.service.connections import LOG_EVERY, address_of
from solely.service.health import ROUTES as HEALTH_ROUTES
from solely.service.routes import PUBLIC, Call, Route, Webhook
from solely.service.security import Scope, mint, same
from solely.service.serve import OWN_FILES
from tests.service.serving import LINES, TOKENS, Process, Running, bearer, running, settings, until
from tests.service.test_metrics import samples

MOST = 40  # connections per worker in these tests: enough to tell the bounds apart, few enough to be quick
STRANGER = "127.0.0.2"  # another address of loopback
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
SLOW = 60.0  # seconds for what takes milliseconds, on a machine that is busy with other things
soon = partial(until, seconds=SLOW)
_ESTABLISHED, _CLOSE_WAIT = "01", "08"  # states in /proc/net/tcp


def version(token: str) -> bytes:
    """A request that needs this token."""
    return b"GET /version HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n\r\n" % token.encode()


VERSION = version(TOKENS["read"])


class Served(Process):
    """`solely serve` with tokens and few connections."""

    def __init__(self, folder: Path, *flags: str, files: int = 0, **given: object) -> None:
        self.started, self.files = time.monotonic(), files
        pairs = {"max_connections": MOST, "receive_timeout": 2 * SLOW, "idle_timeout": 5 * SLOW, **given}
        options = [word for name, value in pairs.items() for word in ("--set", f"{name}={value}")]
        super().__init__(folder, *options, *flags, SOLELY_TOKENS=",".join(LINES))
        self.base = self.address()
        self.port = int(self.base.rpartition(":")[2])
        soon(self.ready)

    def ready(self) -> bool:
        try:
            return httpx2.get(f"{self.base}/readyz", timeout=SLOW).status_code == 200
        except httpx2.TransportError:
            return False

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SLOW, source_address=(source, 0))

    def accepted(self) -> int:
        """Connections that a worker has accepted and not closed; those that wait for that belong to no process yet."""
        return sum(state in (_ESTABLISHED, _CLOSE_WAIT) and inode != "0" for state, inode in self._sockets())

    def waiting(self) -> int:
        """Connections that wait to be accepted."""
        return sum(state == _ESTABLISHED and inode == "0" for state, inode in self._sockets())

    def _sockets(self) -> list[tuple[str, str]]:
        """State and inode of each connection, as the kernel lists the service's side of it."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [(row[3], row[9]) for row in rows if row[1].endswith(f":{self.port:04X}")]

    def client(self, scope: str = "write") -> httpx2.Client:
        return httpx2.Client(base_url=self.base, timeout=SLOW, headers=bearer(TOKENS[scope]))


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
        connection.settimeout(SLOW)


def is_closed(connection: socket.socket) -> bool:
    return not is_open(connection)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_renewal_succeeds_while_a_stranger_opens_silent_connections(workers: int, tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", str(workers)) as service, service.client() as holder:
        lease = holder.post("/v1/locks/acquire", json={"key": "deploy", "ttl": 60}).json()["token"]
        with flood(service, "127.0.0.1") as opened:
            renewals: list[int] = []
            while opened[0] < 10 * MOST * workers or len(renewals) < 21:
                renewals.append(holder.post("/v1/locks/renew", json={"token": lease, "ttl": 60}).status_code)
            assert set(renewals) == {200}
        assert holder.post("/v1/locks/release", json={"token": lease}).json() == {"outcome": "released"}


@pytest.mark.parametrize("workers", [1, 2])
def test_health_and_new_callers_are_answered_while_a_stranger_floods(workers: int, tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", str(workers)) as service, flood(service, STRANGER) as opened:
        soon(lambda: opened[0] > 3 * MOST * workers)
        for number in range(10):  # each on a connection of its own
            for path in ("/healthz", "/readyz"):
                assert httpx2.get(f"{service.base}{path}", timeout=SLOW).status_code == 200
            body = {"key": f"k{number}"}
            with service.client() as caller:
                taken = caller.post("/v1/locks/acquire", json=body)
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
        for number in range(10 * MOST):
            with suppress(OSError):
                stack.enter_context(service.connect())
            if number % MOST == 0:  # to look takes long where a machine has many connections
                seen.append(service.accepted())
        soon(lambda: not service.waiting())
        seen.append(service.accepted())
        assert max(seen) <= most
        assert httpx2.get(f"{service.base}/healthz", timeout=SLOW).status_code == 200


# -- whose places they are


def test_callers_beyond_the_cap_are_refused_and_health_is_answered(tmp_path: Path) -> None:
    with Served(tmp_path, max_connections=12) as service, ExitStack() as stack:
        known = []
        for _ in range(12 - 12 // 4):
            known.append(stack.enter_context(service.connect()))
            assert b" 200 " in ask(known[-1], VERSION)
        caller = stack.enter_context(service.connect())
        head, _, body = ask(caller, VERSION).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"content-type: application/problem+json" in head
        assert b"retry-after: 1" in head
        assert json.loads(body)["type"] == "/policy#too-many-connections"
        for path in (b"/healthz", b"/readyz"):
            probe = stack.enter_context(service.connect())
            assert b" 200 " in ask(probe, HEALTH.replace(b"/healthz", path))
        for each in known:
            assert b" 200 " in ask(each, VERSION), "whoever has a place keeps it"
        known[0].close()
        soon(lambda: b" 200 " in ask(stack.enter_context(service.connect()), VERSION))


def test_a_connection_is_refused_while_the_worker_answers_as_many_requests_as_it_may_have_connections() -> None:
    async def hang(call: Call[None, None]) -> None:
        await call.service.stopping.wait()

    hung = Route("GET", "/hang", PUBLIC, hang, "Hangs")
    with running([hung, *HEALTH_ROUTES], max_connections=10) as it, ExitStack() as stack:
        stack.callback(it.on_loop, it.service.stop)
        for number in range(1, 11):
            stack.enter_context(it.connect()).sendall(b"GET /hang HTTP/1.1\r\nhost: localhost\r\n\r\n")
            soon(partial(has_in_flight, it, number))
        refused = stack.enter_context(it.connect())
        head, _, body = answer(refused).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"content-type: application/problem+json" in head
        assert b"retry-after: 1" in head
        assert b"connection: close" in head
        assert json.loads(body)["type"] == "/policy#too-many-connections"
        assert refused.recv(1) == b""


def has_in_flight(it: Running, wanted: int) -> bool:
    """True if the service has begun so many requests and not answered them."""
    counted: list[int] = []
    it.on_loop(lambda: counted.append(sum("run_asgi" in repr(task.get_coro()) for task in asyncio.all_tasks())))
    return counted[0] == wanted


def test_an_address_takes_no_place_of_another(tmp_path: Path) -> None:
    bound = MOST // 8
    with Served(tmp_path, max_per_address=bound) as service, ExitStack() as stack:
        ours = [stack.enter_context(service.connect()) for _ in range(bound)]
        for each in ours:
            assert b" 200 " in ask(each)
        theirs = [stack.enter_context(service.connect(STRANGER)) for _ in range(MOST)]
        soon(lambda: [is_open(each) for each in theirs] == [False] * (MOST - bound) + [True] * bound)
        for each in ours:
            assert b" 200 " in ask(each)


def test_one_address_may_have_all_places_unless_it_is_bounded(tmp_path: Path) -> None:
    with Served(tmp_path, max_unauthenticated=12) as service, ExitStack() as stack:
        behind_a_proxy = [stack.enter_context(service.connect()) for _ in range(12)]
        for _ in range(2):
            for each in behind_a_proxy:
                assert b" 200 " in ask(each)


def test_one_place_for_strangers_is_enough(tmp_path: Path) -> None:
    with Served(tmp_path, max_unauthenticated=1) as service, ExitStack() as stack:
        for request in (HEALTH, VERSION) * 3:
            assert b" 200 " in ask(stack.enter_context(service.connect()), request)


def test_whoever_needs_no_token_is_known_by_a_request_that_is_not_for_health() -> None:
    with running(max_connections=20) as it, ExitStack() as stack:
        worker = stack.enter_context(it.connect())
        assert b" 200 " in ask(worker, b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n")
        probe = stack.enter_context(it.connect())
        assert b" 200 " in ask(probe)
        for _ in range(20):
            assert b" 200 " in ask(stack.enter_context(it.connect()))
        soon(lambda: not is_open(probe))
        assert is_open(worker)


def test_a_webhook_is_known_by_its_signature() -> None:
    async def take(call: Call[None, None]) -> None:
        pass

    signed = Webhook(lambda call: same(call.header("x-signature"), "right"), "the header X-Signature")
    hook = Route("POST", "/hook", signed, take, "Takes")
    request = b"POST /hook HTTP/1.1\r\nhost: localhost\r\nx-signature: %b\r\ncontent-length: 2\r\n\r\n{}"
    with running([hook, *HEALTH_ROUTES], tokens=LINES, max_connections=MOST) as it, ExitStack() as stack:
        sender, forger = (stack.enter_context(it.connect()) for _ in range(2))
        sender.sendall(request % b"right")
        assert b" 204 " in sender.recv(65536)
        assert b" 401 " in ask(forger, request % b"wrong")
        for _ in range(MOST):
            assert b" 200 " in ask(stack.enter_context(it.connect()))
        soon(partial(is_closed, forger))
        assert is_open(sender)


def test_a_connection_whose_token_was_withdrawn_is_a_strangers_again(tmp_path: Path) -> None:
    (old, old_line), (new, new_line) = mint("ci", Scope.READ), mint("ci", Scope.READ)
    file = tmp_path / "tokens"
    file.write_text(f"{old_line}\n{new_line}\n")
    with running(tokens_file=str(file), max_connections=MOST) as it, ExitStack() as stack:
        by_old, by_new, moved = (stack.enter_context(it.connect()) for _ in range(3))
        for connection, token in ((by_old, old), (by_new, new), (moved, old)):
            assert b" 200 " in ask(connection, version(token))
        file.write_text(f"{new_line}\n")
        soon(lambda: it.get("/version", headers=bearer(old)).status_code == 401)
        assert b" 200 " in ask(moved, version(new)), "it was not closed, and is known again"
        for _ in range(MOST):
            assert b" 200 " in ask(stack.enter_context(it.connect()))
        soon(lambda: not is_open(by_old))
        assert is_open(by_new)
        assert is_open(moved)


# -- which goes first


def test_the_connection_whose_last_request_is_longest_ago_goes_first(tmp_path: Path) -> None:
    with Served(tmp_path, max_unauthenticated=4, max_per_address=4) as service, ExitStack() as stack:
        silent, first, second, third = (stack.enter_context(service.connect()) for _ in range(4))
        for each in (second, third, first):
            assert b" 200 " in ask(each)
        in_order = [silent, second, third, first]
        for number in range(4):
            assert all(map(is_open, in_order[number:]))
            stack.enter_context(service.connect())
            soon(partial(is_closed, in_order[number]))


@pytest.mark.parametrize(
    "begun",
    [b"", b"\r\n", b"P", b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nt"],
    ids=["silent", "blank", "line", "body"],
)
def test_requests_that_do_not_arrive_lock_nobody_out(begun: bytes) -> None:
    with running(tokens=LINES, max_connections=20) as it, ExitStack() as stack:
        for _ in range(20):
            unfinished = stack.enter_context(it.connect())
            with suppress(ConnectionError):
                unfinished.sendall(begun)
        for request in (HEALTH, VERSION):
            assert b" 200 " in ask(stack.enter_context(it.connect()), request)


def test_peers_that_do_not_read_lock_nobody_out() -> None:
    async def lots(call: Call[None, None]) -> Response:
        return Response(b"x" * 20_000_000)  # more than the kernel takes from us

    large = Route("GET", "/lots", PUBLIC, lots, "Lots")
    with running([large, *HEALTH_ROUTES], max_connections=20) as it, ExitStack() as stack:
        twice = b"GET /lots HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2
        for _ in range(2):  # as many as one address may have
            unread = stack.enter_context(it.connect())
            unread.sendall(twice)
            assert unread.recv(1) == b"H"
        soon(partial(has_in_flight, it, 2))
        for _ in range(20):
            assert b" 200 " in ask(stack.enter_context(it.connect()))
        soon(partial(has_in_flight, it, 0))


# -- what is reported


def test_evictions_are_counted_and_logged_once(tmp_path: Path) -> None:
    bound = MOST // 8
    with Served(tmp_path, max_per_address=bound) as service, ExitStack() as stack, service.client("read") as reader:
        for _ in range(MOST):
            assert b" 200 " in ask(stack.enter_context(service.connect()))
        told = samples(reader.get("/metrics").content)
        assert told['solely_connections_evicted_total{"bound": "address"}'] >= MOST - bound
        assert told['solely_connections{"state": "authenticated"}'] == 1
        assert told['solely_connections{"state": "unauthenticated"}'] <= bound
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
        full = [line for line in lines if line["event"] == "connections_full"]
        assert (full[0]["address"], full[0]["evicted"]) == ("127.0.0.1", 1)
        assert len(full) <= 1 + (time.monotonic() - service.started) / LOG_EVERY


def test_there_are_fewer_connections_where_fewer_files_may_be_open(tmp_path: Path) -> None:
    with Served(tmp_path, files=300, max_connections=2000) as service, ExitStack() as stack, service.client() as holder:
        lease = holder.post("/v1/locks/acquire", json={"key": "deploy", "ttl": 60}).json()["token"]
        for _ in range(400):
            with suppress(OSError):
                stack.enter_context(service.connect())
        assert holder.post("/v1/locks/renew", json={"token": lease, "ttl": 60}).status_code == 200
        soon(lambda: not service.waiting())
        assert service.accepted() <= 300 - OWN_FILES
        assert "fewer_connections" in service.log.read_text()


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
    ],
)
def test_an_ipv6_host_is_counted_by_its_prefix(host: str, counted: str) -> None:
    assert address_of((host, 1)) == counted


def test_strangers_cannot_be_given_all_connections() -> None:
    with pytest.raises(InvalidInput, match="max_unauthenticated=50 leaves no connection"):
        settings(max_connections=50, max_unauthenticated=50)
