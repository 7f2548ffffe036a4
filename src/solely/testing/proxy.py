"""A TCP proxy that drops, delays, truncates and resets what passes through it, exactly when a test says so.

    with FaultProxy("127.0.0.1", 6379) as proxy:
        client = solely.Client(proxy.url("redis://127.0.0.1:6379"))
        fault = proxy.drop_replies(answering=lambda request: b"EVALSHA" in request)
        ...                              # the server performs the request, the client never gets the reply
        assert fault.hits == 1

The proxy runs on its own thread and event loop, so blocking and asyncio tests can use it. Every method takes effect
before it returns. Faults apply to *chunks*: a chunk is what one read of a socket returned, which for small requests
and replies over loopback is one request or one reply (or one pipelined batch of them).
"""

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import urlsplit

Direction = Literal["to_server", "to_client"]
Then = Literal["hang", "reset", "close"]
Where = Callable[[bytes], bool]

CHUNK = 1 << 16
TIMEOUT = 5.0  # seconds: the loop thread answers in microseconds; this long means that the proxy itself is broken
RST_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: closing the socket sends RST instead of FIN


class _Close(Exception):
    """Closes a connection with FIN on both sides."""


@dataclass(eq=False)
class _Link:
    """One client connection and the server connection that belongs to it."""

    client: socket.socket
    server: socket.socket
    request: bytes = b""
    # TCP never delivers later bytes after losing earlier ones: a direction that lost a chunk forwards nothing more.
    muted: set[Direction] = field(default_factory=set)
    reset: bool = False

    def close(self) -> None:
        for end in (self.client, self.server):
            if self.reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
            end.close()


_Apply = Callable[[_Link, bytes], Awaitable[bytes]]  # returns the bytes to forward instead of the chunk


@dataclass(eq=False)
class Fault:
    """An armed fault: applies to the next `left` matching chunks and counts them in `hits`."""

    direction: Direction
    left: int
    apply: _Apply
    where: Where | None
    answering: Where | None
    hits: int = 0
    _applied: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout: float = TIMEOUT) -> bool:
        """True once the fault was applied, False after `timeout` seconds. It blocks: use a thread in asyncio."""
        return self._applied.wait(timeout)

    def _matches(self, direction: Direction, link: _Link, data: bytes) -> bool:
        if self.left <= 0 or self.direction != direction or direction in link.muted:
            return False
        return (self.where is None or self.where(data)) and (self.answering is None or self.answering(link.request))

    async def _apply(self, link: _Link, data: bytes) -> bytes:
        self.left -= 1
        self.hits += 1
        self._applied.set()
        return await self.apply(link, data)


class FaultProxy:
    """Forwards a loopback port to `host:port` unchanged until a fault is armed.

    `seen` counts "connections", and the chunks that arrived "to_server" and "to_client". The first armed fault that
    matches a chunk applies to it. The predicate `where` gets the chunk itself; `answering`, for faults of replies, gets
    the latest request on the same connection. An exception in a predicate closes its connection and is raised again at
    the end of the `with` block.
    """

    def __init__(self, host: str, port: int) -> None:
        self.seen: Counter[str] = Counter()
        self._upstream = (host, port)
        self._faults: list[Fault] = []
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._broken: BaseException | None = None
        self._loop = asyncio.SelectorEventLoop()
        self._flowing, self._released = asyncio.Event(), asyncio.Event()
        self._flowing.set()
        self._listener = _bound(0)
        self.host, self.port = self._listener.getsockname()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"fault-proxy-{self.port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._call(self._stop_listening())
        self._call(self._close_links(reset=False))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listener.close()
        self._loop.close()
        if self._broken is not None and error is None:
            raise self._broken

    def url(self, url: str) -> str:
        """Returns the URL with the proxy's host and port instead of the server's."""
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{credentials}{at}{self.host}:{self.port}").geturl()

    def drop_requests(self, n: int = 1, where: Where | None = None) -> Fault:
        """The server never gets the request; the connection stays open and passes no later request either."""
        return self._arm("to_server", n, self._lose("to_server", "hang"), where)

    def drop_replies(
        self, n: int = 1, where: Where | None = None, *, answering: Where | None = None, then: Then = "hang"
    ) -> Fault:
        """The server performs the request, but its reply is lost; `then` the connection hangs, is reset, or closed."""
        return self._arm("to_client", n, self._lose("to_client", then), where, answering)

    def delay(
        self,
        direction: Direction,
        seconds: float | None = None,
        n: int = 1,
        where: Where | None = None,
        *,
        answering: Where | None = None,
    ) -> Fault:
        """The chunk arrives `seconds` late, or (None) at `release()`, even if its sender disconnected meanwhile. Later
        bytes of that connection queue behind it; other connections overtake it."""

        async def hold(link: _Link, data: bytes) -> bytes:
            await (self._released.wait() if seconds is None else asyncio.sleep(seconds))
            return data

        return self._arm(direction, n, hold, where, answering)

    def reset_on(
        self, direction: Direction, where: Where | None = None, n: int = 1, *, answering: Where | None = None
    ) -> Fault:
        """The chunk is lost and both sides get RST."""
        return self._arm(direction, n, self._lose(direction, "reset"), where, answering)

    def cut_reply(self, after_bytes: int, where: Where | None = None, *, answering: Where | None = None) -> Fault:
        """The client gets the first `after_bytes` bytes of the next reply, then RST."""

        async def cut(link: _Link, data: bytes) -> bytes:
            await self._loop.sock_sendall(link.client, data[:after_bytes])
            raise ConnectionResetError

        return self._arm("to_client", 1, cut, where, answering)

    def release(self) -> None:
        """Delivers everything that a `delay` without seconds holds now."""
        self._call(self._release())

    def reset(self) -> None:
        """Sends RST to both sides of every connection, now."""
        self._call(self._close_links(reset=True))

    def half_open(self) -> None:
        """Nothing is forwarded: connections stay open without traffic, new ones are accepted and hang."""
        self._call(self._stop_flow())

    def refuse(self) -> None:
        """New connections are refused; existing ones keep working."""
        self._call(self._stop_listening())

    def heal(self) -> None:
        """Disarms every fault, listens again, and delivers held chunks. Dropped chunks stay lost."""
        self._call(self._heal())

    def _arm(
        self, direction: Direction, n: int, apply: _Apply, where: Where | None, answering: Where | None = None
    ) -> Fault:
        fault = Fault(direction, n, apply, where, answering)
        self._faults.append(fault)
        return fault

    def _lose(self, direction: Direction, then: Then) -> _Apply:
        async def lose(link: _Link, data: bytes) -> bytes:
            if then == "hang":
                link.muted.add(direction)
                return b""
            raise ConnectionResetError if then == "reset" else _Close

        return lose

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT)

    async def _listen(self) -> None:
        self._listener.listen()
        self._loop.add_reader(self._listener, self._accept)

    async def _stop_listening(self) -> None:
        """Refuses connections but keeps the port, which stays bound."""
        if self._loop.remove_reader(self._listener):
            self._listener.close()
            self._listener = _bound(self.port)

    async def _heal(self) -> None:
        self._faults.clear()
        self._flowing.set()
        await self._release()
        await self._listen()

    async def _stop_flow(self) -> None:
        self._flowing.clear()

    async def _release(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    async def _close_links(self, *, reset: bool) -> None:
        tasks = list(self._links)
        for task in tasks:
            self._links[task].reset = reset
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        """Accepts a connection in a callback: a cancelled task could drop a connection that it has just accepted."""
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client disconnected before it was accepted
            return
        self.seen["connections"] += 1
        link = _Link(client, socket.socket())
        task = self._loop.create_task(self._forward(link))
        self._links[task] = link
        task.add_done_callback(self._close_link)

    def _close_link(self, task: asyncio.Task[None]) -> None:
        self._links.pop(task).close()  # here, because a task that is cancelled before it starts runs no `finally`
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()

    async def _forward(self, link: _Link) -> None:
        try:
            for end in (link.client, link.server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._flowing.wait()
            await self._loop.sock_connect(link.server, self._upstream)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(link, "to_server", link.client, link.server))
                pumps.create_task(self._pump(link, "to_client", link.server, link.client))
        except* _Close:
            pass
        except* OSError:
            link.reset = True

    async def _pump(self, link: _Link, direction: Direction, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := await self._loop.sock_recv(source, CHUNK):
                self.seen[direction] += 1
                if direction == "to_server":
                    link.request = data
                for fault in self._faults:
                    if fault._matches(direction, link, data):
                        data = await fault._apply(link, data)
                        break
                await self._flowing.wait()
                if direction not in link.muted:
                    await self._loop.sock_sendall(target, data)
        except OSError:
            await self._flowing.wait()  # in a half-open network a disconnect does not arrive either
            raise
        await self._flowing.wait()
        target.shutdown(socket.SHUT_WR)


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)
    listener.bind(("127.0.0.1", port))
    return listener
