"""Streams of server-sent events. They end when the reader disconnects or logs out, when its token becomes invalid, when
the service stops, or when there are no more messages."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, MutableMapping, Sequence
from typing import Any

from starlette.responses import Response

from .bodies import to_json
from .responses import accepts_gzip
from .routes import Call

PAUSE = 8.0  # seconds of silence before a comment is sent: proxies and readers close connections that idle for longer
GZIP = 16 + zlib.MAX_WBITS  # of zlib: gzip, with a window of 32 KiB, since messages repeat what was in earlier ones
MEMORY = 6  # of zlib: 160 KiB per stream instead of 256, for the same size


def message(event: str, data: object, id: int | None = None) -> bytes:
    """One server-sent event; its data is JSON, which has no line breaks."""
    number = b"id: %d\n" % id if id is not None else b""
    return b"%sevent: %s\ndata: %s\n\n" % (number, event.encode(), to_json(data))


async def merged(sources: Sequence[AsyncGenerator[bytes, None]]) -> AsyncGenerator[bytes, None]:
    """The messages of all sources as they come, until each has ended. Ends the sources, too."""
    going = {asyncio.ensure_future(anext(each, b"")): each for each in sources}
    try:
        while going:
            done, _ = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                source = going.pop(task)
                if task.result():
                    yield task.result()
                    going[asyncio.ensure_future(anext(source, b""))] = source
    finally:
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await asyncio.gather(*(each.aclose() for each in sources))


class EventStream(Response):
    """Sends messages as they come; with `compressed`, as gzip to a reader that accepts it. The request counts as a
    waiting one; `ended` is called at the end."""

    media_type = "text/event-stream"

    def __init__(
        self,
        call: Call[Any, Any],
        messages: AsyncGenerator[bytes, None],
        ended: Callable[[], object] | None = None,
        *,
        compressed: bool = False,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._gzip: Any = None
        if compressed:
            self.headers["vary"] = "accept-encoding"
            if accepts_gzip(call.header("accept-encoding")):
                self.headers["content-encoding"] = "gzip"
                self._gzip = zlib.compressobj(wbits=GZIP, memLevel=MEMORY)
        self._messages = messages
        self._ended = ended
        self._service = call.service
        self._reader = call.principal
        self._cookie = call.cookie
        self._service.waiters.enter(self._reader.name)  # raises Problem now, before the response has begun

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._stream(receive, send)
            await send({"type": "http.response.body", "body": b"" if self._gzip is None else self._gzip.flush()})
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Ends it, also if it was never sent."""
        self._service.waiters.leave(self._reader.name)
        await self._messages.aclose()
        if self._ended is not None:
            self._ended()

    def _packed(self, data: bytes) -> bytes:
        """The data as it is sent, so that the reader has all of it at once."""
        return data if self._gzip is None else self._gzip.compress(data) + self._gzip.flush(zlib.Z_SYNC_FLUSH)

    async def _stream(self, receive: Any, send: Any) -> None:
        over = {asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(self._service.stopping.wait())}
        if self._cookie:
            over.add(asyncio.ensure_future(self._service.logouts.until(self._cookie)))
        going = asyncio.ensure_future(anext(self._messages, b""))
        try:
            while True:
                done, _ = await asyncio.wait({going, *over}, timeout=PAUSE, return_when=asyncio.FIRST_COMPLETED)
                if done & over or (going in done and not going.result()):
                    return
                if not self._service.tokens.knows(self._reader):
                    return
                body = self._packed(going.result() if done else b":\n\n")
                await send({"type": "http.response.body", "body": body, "more_body": True})
                if done:
                    going = asyncio.ensure_future(anext(self._messages, b""))
        finally:
            for task in (going, *over):
                task.cancel()
            await asyncio.gather(going, *over, return_exceptions=True)


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
