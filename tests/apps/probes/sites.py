"""Servers that are probed: one that counts who probes what at the same time, a name server, and Django's own login."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, make_server

from tests.servers import listener
from tests.streams import closed


class Visit(NamedTuple):
    """A request for a path: when it came, and when it was answered."""

    path: str
    began: float
    ended: float


class CountingSite:
    """Answers 200 to every path after `pause` seconds, and knows how many requests for one path there were at once."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.port = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.visits: list[Visit] = []
        self.at_once: Counter[str] = Counter()
        self.most: defaultdict[str, int] = defaultdict(int)
        self.peers: dict[str, int] = {}  # path → the port of the last one that requested it
        self.hold = asyncio.Event()  # while it is clear, nothing is answered
        self.hold.set()
        self._over = asyncio.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def answer(self, answering: bool) -> None:
        """Has requests wait for their answers, or answers them; from another thread."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.hold.set if answering else self.hold.clear)

    def end(self) -> None:
        """Ends every pause, and answers; from another thread."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._over.set)

    def counts(self) -> Counter[str]:
        """How often each path was requested."""
        return Counter(visit.path for visit in [*self.visits])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path, began = head.split(b" ", 2)[1].decode().strip("/"), time.time()
            self.at_once[path] += 1
            self.peers[path] = writer.get_extra_info("peername")[1]
            self.most[path] = max(self.most[path], self.at_once[path])
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), self.pause)
                await self._answered_or_left(reader)
            finally:
                self.at_once[path] -= 1
                self.visits.append(Visit(path, began, time.time()))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answered_or_left(self, reader: asyncio.StreamReader) -> None:
        """Returns when it may answer, or when the prober has gone."""
        both = [asyncio.ensure_future(self.hold.wait()), asyncio.ensure_future(reader.read())]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in both:
            each.cancel()


@contextmanager
def counting_site(pause: float = 0.0) -> Iterator[CountingSite]:
    """A counting site on a thread of its own."""
    loop, site = asyncio.new_event_loop(), CountingSite(pause)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving, writers = set[asyncio.Task[None]](), list[asyncio.StreamWriter]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        serving.add(asyncio.create_task(site.serve(reader, writer)))

    async def begin() -> asyncio.Server:
        site.loop = loop
        listening = listener(backlog=1024)
        site.port = listening.getsockname()[1]
        return await asyncio.start_server(connected, sock=listening)

    async def end() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await closed(writers)  # also one whose task was cancelled before it began

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
    try:
        yield site
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


class NameServer(asyncio.DatagramProtocol):
    """Answers each question with this code and these addresses."""

    def __init__(self, code: int = 0, *addresses: str) -> None:
        self.code, self.addresses, self.asked = code, addresses, list[bytes]()
        self.port = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, packet: bytes, sender: Any) -> None:
        self.asked.append(packet)
        head = packet[:2] + struct.pack("!5H", 0x8180 | self.code, 1, len(self.addresses), 0, 0)
        records = (b"\xc0\x0c" + struct.pack("!2HIH", 1, 1, 60, 4) + socket.inet_aton(each) for each in self.addresses)
        self._transport.sendto(head + packet[12:] + b"".join(records), sender)


class ZoneServer(NameServer):
    """Answers each question with the SOA record of the zone."""

    def __init__(self, serial: int) -> None:
        super().__init__()
        self.serial = serial

    def datagram_received(self, packet: bytes, sender: Any) -> None:
        data = b"\x02ns\xc0\x0c\x05admin\xc0\x0c" + struct.pack("!5I", self.serial, 3600, 600, 86_400, 60)
        record = b"\xc0\x0c" + struct.pack("!2HIH", 6, 1, 60, len(data)) + data
        head = packet[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0)
        self._transport.sendto(head + packet[12:] + record, sender)


class StringsServer(NameServer):
    """Answers with one TXT record of these strings; with `truncated`, a datagram says only that it does not fit."""

    def __init__(self, *strings: bytes, truncated: bool = False) -> None:
        super().__init__()
        self.strings, self.truncated = strings, truncated

    def datagram_received(self, packet: bytes, sender: Any) -> None:
        self.asked.append(packet)
        reply = (
            packet[:2] + struct.pack("!5H", 0x8380, 1, 0, 0, 0) + packet[12:] if self.truncated else self.reply(packet)
        )
        self._transport.sendto(reply, sender)

    def reply(self, packet: bytes) -> bytes:
        data = b"".join(bytes([len(each)]) + each for each in self.strings)
        record = b"\xc0\x0c" + struct.pack("!2HIH", 16, 1, 60, len(data)) + data
        return packet[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0) + packet[12:] + record

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The same over a connection."""
        reply = self.reply(await reader.readexactly(int.from_bytes(await reader.readexactly(2))))
        writer.write(len(reply).to_bytes(2) + reply)
        await writer.drain()
        writer.close()


class LongNameServer(StringsServer):
    """Answers over a connection with as many records as fit, which all have a name as long as half of the reply."""

    def __init__(self) -> None:
        super().__init__(truncated=True)

    def reply(self, packet: bytes) -> bytes:
        asked = b"\x01a" * 16_000 + b"\0" + struct.pack("!2H", 1, 1)
        record = b"\xc0\x0c" + struct.pack("!2HIH", 2, 1, 60, 2) + b"\xc0\x0c"
        count = (65_535 - 12 - len(asked)) // len(record)
        return packet[:2] + struct.pack("!5H", 0x8180, 1, count, 0, 0) + asked + record * count


@contextmanager
def aside(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Runs the loop on a thread of its own, and closes it."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def name_server(server: NameServer) -> Iterator[int]:
    """The port of a name server on a thread of its own."""
    loop = asyncio.new_event_loop()
    with aside(loop):
        opening = loop.create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
        transport, _ = asyncio.run_coroutine_threadsafe(opening, loop).result(10)
        try:
            yield server.port
        finally:
            closed = threading.Event()
            loop.call_soon_threadsafe(transport.close)
            loop.call_soon_threadsafe(loop.call_soon, closed.set)  # after the transport is closed
            closed.wait(10)


@contextmanager
def text_server(server: StringsServer) -> Iterator[int]:
    """The port of this name server on a thread of its own, which is asked over UDP and over TCP."""
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[asyncio.Server, asyncio.DatagramTransport]:
        for _ in range(100):
            streams = await asyncio.start_server(server.serve, sock=listener())
            place = streams.sockets[0].getsockname()
            try:
                return streams, (await loop.create_datagram_endpoint(lambda: server, place))[0]
            except OSError:  # somebody else has this port of UDP
                streams.close()
        raise AssertionError("no port is free for both")

    async def end() -> None:
        datagrams.close()
        streams.close()
        await streams.wait_closed()
        await asyncio.sleep(0)  # in which the transport is closed

    with aside(loop):
        streams, datagrams = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
        try:
            yield server.port
        finally:
            asyncio.run_coroutine_threadsafe(end(), loop).result(10)


@contextmanager
def answering(text: bytes, *, at_once: bool = False, open_ended: bool = False) -> Iterator[int]:
    """The port of a server that answers each request with these bytes, or sends them at once, and closes the
    connection; if it is `open_ended`, only after the other side has."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:  # closed
                    return
                with connection, suppress(ConnectionError):
                    if not at_once:
                        connection.recv(65_536)
                    connection.sendall(text)
                    while open_ended and connection.recv(65_536):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)


# -- Django's own login, with its sessions, its CSRF check and its forms

LOGIN = """<form method=post action=/login/>{% csrf_token %}{{ form.as_p }}<button>Log in</button></form>"""
USER, PASSWORD = "probe", "a-secret-of-the-prober"
_configured = threading.Lock()


def _django() -> Any:
    """A Django with one user, whose sessions are in signed cookies; configured once per process."""
    import django
    from django.conf import settings

    with _configured:
        if not settings.configured:
            settings.configure(
                ALLOWED_HOSTS=["*"],
                SECRET_KEY="of the tests",
                ROOT_URLCONF="tests.apps.probes.django_site",
                DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
                INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
                MIDDLEWARE=[
                    "django.contrib.sessions.middleware.SessionMiddleware",
                    "django.middleware.csrf.CsrfViewMiddleware",
                    "django.contrib.auth.middleware.AuthenticationMiddleware",
                ],
                SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
                AUTHENTICATION_BACKENDS=["tests.apps.probes.django_site.OneUser"],
                TEMPLATES=[
                    {
                        "BACKEND": "django.template.backends.django.DjangoTemplates",
                        "OPTIONS": {
                            "loaders": [
                                (
                                    "django.template.loaders.locmem.Loader",
                                    {"registration/login.html": LOGIN},
                                )
                            ]
                        },
                    }
                ],
                LOGIN_URL="/login/",
                LOGIN_REDIRECT_URL="/account/",
            )
            django.setup()
    from django.core.handlers.wsgi import WSGIHandler

    return WSGIHandler()


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def django_login() -> Iterator[str]:
    """The address of the site. `/login/` is Django's own; `/account/` needs the session. With /forgetful/… the server
    answers a login as it should, and loses the session."""
    with make_server("127.0.0.1", 0, _django(), handler_class=_Silent) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)
