"""Sample targets, so that a newcomer sees live pages: a server on loopback that is slow and fails at times."""

from __future__ import annotations

import asyncio
import random

from .checks import Checker
from .model import Expectations, ProbeTarget
from .prober import Prober
from .runtime import ProbesRuntime

_SAMPLES = (("shop", 0.98), ("search", 0.9), ("checkout", 0.995), ("legacy", 0.6))  # name, share that succeeds
_INTERVAL = 3.0  # seconds: so that bars are seen to grow


async def demo(app: ProbesRuntime) -> None:
    """Probes the samples until it is cancelled. They are in no table. Only the demo's own prober may call loopback."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    checker = Checker(guard_allow=("127.0.0.1/32",))
    app.runner.replace_prober(Prober(app.mutex, checker))
    app.targets.include(_targets(server.sockets[0].getsockname()[1]))
    try:
        await app.follow()
        await server.serve_forever()
    finally:
        server.close()
        await checker.close()


def _targets(port: int) -> list[ProbeTarget]:
    return [
        ProbeTarget(
            name=f"demo-{name}",
            title=name.capitalize(),
            url=f"http://127.0.0.1:{port}/{name}",
            interval=_INTERVAL,
            timeout=1.0,
            expect=Expectations(body="ok", latency=0.5),
            public=True,
            severity="warning",
        )
        for name, _ in _SAMPLES
    ]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        name = head.split(b" ", 2)[1].decode().strip("/")
        fine = random.random() < dict(_SAMPLES).get(name, 0.0)
        await asyncio.sleep(random.uniform(0.005, 0.12))
        status, body = (b"200 OK", b"ok") if fine else (b"503 Service Unavailable", b"overloaded")
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):  # the probe was ended, or took too long
        pass
    finally:
        writer.close()
