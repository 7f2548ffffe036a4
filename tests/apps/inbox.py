"""A receiver of signed webhooks that knows which process calls it, and can be made to do something at that moment.

It runs on threads, so that one delivery can be kept waiting while all others are answered.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

SECRET_BYTES = b"a secret of 32 bytes for webhooks"[:32]
SECRET = f"whsec_{base64.b64encode(SECRET_BYTES).decode()}"
_ESTABLISHED = "01"  # a state in /proc/net/tcp


class Delivery(NamedTuple):
    """One webhook as it came, with what it is about; `port` is the caller's, by which it can be found while it waits
    for its answer."""

    id: str
    subject: str
    data: dict[str, Any]
    port: int


Meeting = Callable[[Delivery], bool]


class Inbox:
    """What came and was genuine, and what was answered of it. `subject` is the field of the data that says what a
    webhook is about."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.deliveries: list[Delivery] = []
        self.answered: list[Delivery] = []
        self.forged = 0  # deliveries whose signature is not by our secret
        self._meetings: deque[tuple[Meeting, bool]] = deque()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.inbox = self
        self.port: int = self._server.server_address[1]

    @property
    def publisher(self) -> dict[str, Any]:
        """The settings of a publisher that calls us."""
        return {"type": "webhook", "name": "inbox", "url": f"http://127.0.0.1:{self.port}/", "secrets": [SECRET]}

    def of(self, subject: str) -> list[Delivery]:
        """What came of this subject, in order."""
        return [each for each in list(self.deliveries) if each.subject == subject]

    def ids(self, subject: str) -> set[str]:
        """The distinct ids under which this subject was sent."""
        return {each.id for each in self.of(subject)}

    def distinct(self, *fields: str) -> dict[tuple[str, ...], set[str]]:
        """The distinct ids, by the values of these fields of the data."""
        found: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for each in list(self.deliveries):
            found[tuple(str(each.data[field]) for field in fields)].add(each.id)
        return found

    def meet_next(self, meeting: Meeting, *, kept: bool) -> None:
        """The next delivery that nobody waits for meets this function, on its own thread, before it is answered: True
        goes on, False drops the connection. If it is `kept`, we have it by then; else we get it only if that is True.
        """
        self._meetings.append((meeting, kept))

    def take(self, delivery: Delivery) -> bool:
        """True if it is to be answered."""
        try:
            meeting, kept = self._meetings.popleft()
        except IndexError:
            self.deliveries.append(delivery)
            return True
        if kept:
            self.deliveries.append(delivery)
        goes_on = meeting(delivery)
        if goes_on and not kept:
            self.deliveries.append(delivery)
        return goes_on

    def has_read_answer(self, delivery: Delivery) -> bool:
        """True once its caller has taken our answer out of its socket."""
        end = end_of(delivery.port, self.port)
        return delivery in self.answered and end is not None and end.unread == 0

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256  # four workers begin with twenty connections each
    inbox: Inbox

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if not is_genuine(self.headers, body):
            self.server.inbox.forged += 1
            self.send_error(401)
            return
        inbox, data = self.server.inbox, json.loads(body)["data"]
        delivery = Delivery(self.headers["webhook-id"], str(data[inbox.subject]), data, self.client_address[1])
        if not inbox.take(delivery):
            self.close_connection = True
            return
        self.send_response(204)
        self.end_headers()
        inbox.answered.append(delivery)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what matters is kept."""


def is_genuine(headers: Any, body: bytes) -> bool:
    """True if the headers have a signature of this body by our secret, of just now."""
    if abs(time.time() - int(headers["webhook-timestamp"])) > 60:
        return False
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(SECRET_BYTES, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(each, expected) for each in headers["webhook-signature"].split())


@contextmanager
def inbox(subject: str) -> Iterator[Inbox]:
    """A receiver on loopback, until the test is over; `subject` is the field that says what a webhook is about."""
    it = Inbox(subject)
    thread = threading.Thread(target=it.serve)
    thread.start()
    try:
        yield it
    finally:
        it.close()
        thread.join(10)


# -- who calls


class Connection(NamedTuple):
    """One end of a connection, as the kernel reports it."""

    inode: str
    unread: int  # bytes that came and were not read there


def connections(port: int) -> Iterator[tuple[int, Connection]]:
    """All connections of this port, with the port of the other end."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == f"0100007F:{port:04X}" and fields[3] == _ESTABLISHED:
            unread = int(fields[4].partition(":")[2], 16)
            yield int(fields[2].partition(":")[2], 16), Connection(fields[9], unread)


def end_of(port: int, other: int) -> Connection | None:
    """The end on this port of a connection with the other port; None if there is none any more."""
    return next((connection for far, connection in connections(port) if far == other), None)


def process_of(connection: Connection, among: list[int]) -> int | None:
    """Which of these processes has that end."""
    for pid in among:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if descriptor.readlink().name == f"socket:[{connection.inode}]":
                    return pid
            except FileNotFoundError:  # closed since
                continue
    return None
