"""The server that the demo probes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from solely.apps.probes.demo import _answer


@pytest.mark.parametrize("sent", [b"", b"GET /shop HT"])
async def test_a_probe_that_closes_its_connection_is_no_error(sent: bytes) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    answers = list[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(asyncio.create_task(_answer(reader, writer)))

    async with asyncio.timeout(60), await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == b""  # it closes its side, too
        writer.close()
        await writer.wait_closed()
        await asyncio.gather(*answers)
    assert reported == []
