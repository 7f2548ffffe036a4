"""A receiver of webhooks on loopback that answers as the test says: it fails, hangs, trickles, redirects and floods."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from tests.servers import listener
from tests.streams import closed

FLOOD = 10 << 20  # bytes: a hundred times what a socket takes that nobody reads


class Received(NamedTuple):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"


class Answer(NamedTuple):
    """How to answer. `how`: plainly, by hanging, by dropping the connection, or slowly, in the head or in the body."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    how: str = "plain"


HANG = Answer(how="hang")
DROP = Answer(how="drop")
SLOW_HEAD = Answer(how="slow head")
SLOW_BODY = Answer(body=b"x" * 1000, how="slow body")


class Hooks:
    """The server: `answers` are given one after the other, then it is 200 for all."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: deque[Answer] = deque()
        self.connections = 0
        self.broken = 0  # connections that the caller closed before it had the answer
        self.port = 0
        self._ended = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/of-the-test"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer) and not self._ended.is_set():  # Python 3.11 may lose a cancellation
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.broken += 1
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split()
        self.received.append(Received(path, headers, body, method))
        answer = self.answers.popleft() if self.answers else Answer()
        if answer.how == "drop":
            return False
        if answer.how == "hang":
            await self._ended_or_left(reader)
            return False
        await self._answered(answer, writer, bodiless=method == "HEAD")
        return True

    async def _ended_or_left(self, reader: asyncio.StreamReader) -> None:
        both = [asyncio.ensure_future(self._ended.wait()), asyncio.ensure_future(reader.read())]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in both:
            each.cancel()

    async def _answered(self, answer: Answer, writer: asyncio.StreamWriter, bodiless: bool) -> None:
        lines = [f"HTTP/1.1 {answer.status} Scripted", f"Content-Length: {len(answer.body)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        await self._write(writer, head, slowly=answer.how == "slow head")
        if not bodiless:
            await self._write(writer, answer.body, slowly=answer.how == "slow body")

    async def _write(self, writer: asyncio.StreamWriter, data: bytes, slowly: bool) -> None:
        """All at once, or a byte every 50 ms: always within what a timeout per read would bear."""
        if not slowly:
            writer.write(data)
            await writer.drain()
            return
        for place in range(len(data)):
            writer.write(data[place : place + 1])
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 0.05)
            if self._ended.is_set():
                return

    def end(self) -> None:
        self._ended.set()


@contextlib.asynccontextmanager
async def hooks(tls: ssl.SSLContext | None = None) -> AsyncIterator[Hooks]:
    """A receiver, on the loop of the test."""
    receiver = Hooks()
    serving, writers = set[asyncio.Task[None]](), list[asyncio.StreamWriter]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        task = asyncio.ensure_future(receiver.serve(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

    listening = listener()
    patience = 0.5 if tls else None  # with a caller that does not say good-bye
    server = await asyncio.start_server(connected, sock=listening, ssl=tls, ssl_shutdown_timeout=patience)
    receiver.port = listening.getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.end()
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await closed(writers)  # also one whose task was cancelled before it began, or that says good-bye over TLS


@contextlib.contextmanager
def hooks_aside(tls: ssl.SSLContext | None = None) -> Iterator[Hooks]:
    """A receiver on a thread of its own, for tests that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = hooks(tls)
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
