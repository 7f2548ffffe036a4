"""Servers that are probed: one that counts who probes what at the same time, a name server, and Django's own login."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, make_server

from tests.servers import listener


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

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def answer(self, answering: bool) -> None:
        """Has requests wait for their answers, or answers them; from another thread."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.hold.set if answering else self.hold.clear)

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
                await asyncio.sleep(self.pause)
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
        for writer in writers:  # also one whose task was cancelled before it began
            writer.close()
        await asyncio.sleep(0.01)  # in which transports close

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
