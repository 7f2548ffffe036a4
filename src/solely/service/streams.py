"""Streams of server-sent events. They end when the reader disconnects or logs out, when its token becomes invalid, when
the service stops, or when there are no more messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, MutableMapping
from typing import Any

from starlette.responses import Response

from .responses import to_json
from .routes import Call

PAUSE = 8.0  # seconds of silence before a comment is sent: proxies and readers close connections that idle for longer


def message(event: str, data: object, id: int | None = None) -> bytes:
    """One server-sent event; its data is JSON, which has no line breaks."""
    number = b"id: %d\n" % id if id is not None else b""
    return b"%sevent: %s\ndata: %s\n\n" % (number, event.encode(), to_json(data))


class EventStream(Response):
    """Sends messages as they come. The request counts as a waiting one; `ended` is called at the end."""

    media_type = "text/event-stream"

    def __init__(
        self, call: Call[Any, Any], messages: AsyncGenerator[bytes, None], ended: Callable[[], object] | None = None
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
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
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._service.waiters.leave(self._reader.name)
            await self._messages.aclose()
            if self._ended is not None:
                self._ended()

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
                await send(
                    {"type": "http.response.body", "body": going.result() if done else b":\n\n", "more_body": True}
                )
                if done:
                    going = asyncio.ensure_future(anext(self._messages, b""))
        finally:
            for task in (going, *over):
                task.cancel()
            await asyncio.gather(going, *over, return_exceptions=True)


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
