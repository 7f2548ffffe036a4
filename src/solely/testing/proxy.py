"""A TCP proxy that loses, delays, cuts and resets what passes through it, exactly when a test says so.

    with FaultProxy("127.0.0.1", 6379) as proxy:
        client = solely.Client(proxy.url("redis://127.0.0.1:6379"))
        fault = proxy.drop_replies(answering=lambda request: b"EVALSHA" in request)
        ...                              # the server acts, the client never hears of it
        assert fault.hits == 1

The proxy runs on a thread and an event loop of its own, so blocking and asyncio tests use it alike. Every method takes
effect before it returns. A fault strikes *chunks*: a chunk is what one read of a socket returned, which for small
requests and replies over loopback is one request or one reply (or one pipelined batch of them).
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
# The loop thread answers in microseconds; 5 s means that the proxy itself is broken, not that the machine is busy.
ANSWERS_WITHIN = 5.0
LINGER_NOT = struct.pack("ii", 1, 0)  # closing with this option sends RST instead of FIN


class _Close(Exception):
    """Ends a link with FIN on both sides."""


@dataclass(eq=False)
class _Link:
    """One client connection and the server connection that belongs to it."""

    client: socket.socket
    server: socket.socket
    request: bytes = b""
    # TCP never delivers later bytes after losing earlier ones: a direction that lost a chunk stays silent.
    muted: set[Direction] = field(default_factory=set)
    reset: bool = False

    def close(self) -> None:
        for end in (self.client, self.server):
            if self.reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            end.close()


_Strike = Callable[[_Link, bytes], Awaitable[bytes]]  # what is to be forwarded in place of the chunk


@dataclass(eq=False)
class Fault:
    """An armed fault: strikes the next `left` matching chunks and counts them in `hits`."""

    direction: Direction
    left: int
    strike: _Strike
    where: Where | None
    answering: Where | None
    hits: int = 0
    _struck: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout: float = ANSWERS_WITHIN) -> bool:
        """True once the fault struck; False after `timeout` seconds. It blocks: in asyncio, call it in a thread."""
        return self._struck.wait(timeout)

    def _matches(self, direction: Direction, link: _Link, data: bytes) -> bool:
        return (
            self.left > 0
            and self.direction == direction
            and direction not in link.muted
            and (self.where is None or self.where(data))
            and (self.answering is None or self.answering(link.request))
        )

    async def _apply(self, link: _Link, data: bytes) -> bytes:
        self.left -= 1
        self.hits += 1
        self._struck.set()
        return await self.strike(link, data)


class FaultProxy:
    """Forwards a loopback port to `host:port` faithfully until a fault is armed.

    `seen` counts "connections", and the chunks that arrived "to_server" and "to_client". Faults are tried in the order
    of their arming; the first that matches a chunk has it. `where` is asked about the chunk itself; `answering`, for
    faults of replies, about the latest request on the same connection. What a predicate raises ends its connection and
    is raised again where the `with` block ends.
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
        self._listening = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"fault-proxy-{self.port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._call(self._deafen())
        self._call(self._end_links(reset=False))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listener.close()
        self._loop.close()
        if self._broken is not None and error is None:
            raise self._broken

    def url(self, url: str) -> str:
        """The same URL, with the proxy's host and port in place of the server's."""
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{credentials}{at}{self.host}:{self.port}").geturl()

    def drop_requests(self, n: int = 1, where: Where | None = None) -> Fault:
        """The server never gets the request; the connection stays open and passes no later request either."""
        return self._arm("to_server", n, self._lose("to_server", "hang"), where)

    def drop_replies(
        self, n: int = 1, where: Where | None = None, *, answering: Where | None = None, then: Then = "hang"
    ) -> Fault:
        """The server acts and the client never hears of it; `then` the connection is silent, reset, or closed."""
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
        """The chunk arrives late, by `seconds` or (None) at `release()`, even if its sender hung up meanwhile.

        Later bytes of that connection queue behind it; other connections overtake it.
        """

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
        """Lets everything go that a `delay` without seconds holds now."""
        self._call(self._release())

    def reset(self) -> None:
        """RST to both sides of every connection, now."""
        self._call(self._end_links(reset=True))

    def half_open(self) -> None:
        """Nothing passes any more and nobody is told: connections stay up, new ones are accepted and hang."""
        self._call(self._stop_flow())

    def refuse(self) -> None:
        """New connections are refused; those that stand keep working."""
        self._call(self._deafen())

    def heal(self) -> None:
        """Disarms every fault, listens again, and delivers what was held. What was dropped stays lost."""
        self._call(self._heal())

    def _arm(
        self, direction: Direction, n: int, strike: _Strike, where: Where | None, answering: Where | None = None
    ) -> Fault:
        fault = Fault(direction, n, strike, where, answering)
        self._faults.append(fault)
        return fault

    def _lose(self, direction: Direction, then: Then) -> _Strike:
        async def lose(link: _Link, data: bytes) -> bytes:
            if then == "hang":
                link.muted.add(direction)
                return b""
            raise ConnectionResetError if then == "reset" else _Close

        return lose

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWERS_WITHIN)

    async def _listen(self) -> None:
        self._listening = True
        self._listener.listen()
        self._loop.add_reader(self._listener, self._accept)

    async def _deafen(self) -> None:
        """Stops listening but keeps the port: a bound socket that does not listen refuses, and nobody can take it."""
        if not self._listening:
            return
        self._listening = False
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._listener = _bound(self.port)

    async def _heal(self) -> None:
        self._faults.clear()
        self._flowing.set()
        await self._release()
        if not self._listening:
            await self._listen()

    async def _stop_flow(self) -> None:
        self._flowing.clear()

    async def _release(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    async def _end_links(self, *, reset: bool) -> None:
        for link in self._links.values():
            link.reset = reset
        await _cancelled(*self._links)

    def _accept(self) -> None:
        """Called when somebody asks. Not a task: one that is cancelled may drop what it has just accepted."""
        try:
            client, _ = self._listener.accept()
        except OSError:  # that one hung up before its turn came
            return
        self.seen["connections"] += 1
        link = _Link(client, socket.socket())
        task = self._loop.create_task(self._carry(link))
        self._links[task] = link
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._links.pop(task).close()  # here, since a task that is cancelled before it began runs no `finally`
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()

    async def _carry(self, link: _Link) -> None:
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
            await self._flowing.wait()  # a hang-up is news as well: in a half-open network it does not travel
            raise
        await self._flowing.wait()
        target.shutdown(socket.SHUT_WR)


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)
    listener.bind(("127.0.0.1", port))
    return listener


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
