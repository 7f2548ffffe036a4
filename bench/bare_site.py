"""python -m bench.bare_site: answers every request with 200 and closes the connection; prints its port."""

import asyncio
from typing import Any

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:  # uvloop's are no asyncio.Transport
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):  # a request without a body comes in one piece on loopback
            self._transport.write(_ANSWER)
            self._transport.close()


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
