"""Many senders at once, each on a connection of its own: bare, since a client's pool would make them wait in turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PATIENCE = 150.0  # seconds for all of a volley: below the time that pytest gives a test
_DEAD = (ConnectionError, asyncio.IncompleteReadError)

Request = tuple[str, dict[str, Any]]  # path and body


class Answer(NamedTuple):
    """What came back; status 0 if the connection broke before."""

    status: int
    body: dict[str, Any]


async def volley(port: int, requests: Sequence[Request], at_once: int, headers: Mapping[str, str]) -> list[Answer]:
    """The answers to all of these, in order; so many of them are under way at the same time."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    left = iter(list(enumerate(requests)))
    answers: dict[int, Answer] = {}

    async def sender() -> None:
        for index, (path, body) in left:
            answers[index] = await _one(port, path, json.dumps(body).encode(), lines)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(sender() for _ in range(min(at_once, len(requests)))))
    return [answers[index] for index in range(len(requests))]


async def _one(port: int, path: str, body: bytes, lines: str) -> Answer:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{lines}"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return Answer(0, {})
    try:
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n") + await reader.read()
    except _DEAD:
        return Answer(0, {})
    finally:
        writer.close()
    status, _, rest = answer.partition(b"\r\n")
    return Answer(int(status.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2] or b"{}"))
