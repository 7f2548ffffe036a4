"""Redis: the server refuses a command of a stale holder, in the step that would have performed it.

The fence is kept beside the key, in the same slot of a cluster, and does not expire: delete it with the last trace of
the key. Works with the clients of redis-py for one server, Sentinel and Cluster.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput
from .order import encoded, stale

if TYPE_CHECKING:
    import redis
    import redis.asyncio

SCRIPT = (files(__package__) / "fenced.lua").read_text("utf-8")

Value = bytes | str | int | float


def fence_key(key: str) -> str:
    """The key of the fence; InvalidInput for the rare key whose cluster slot no other key can share."""
    if re.match(r"[^{]*\{[^}]+\}", key):  # has a hash tag, by the rule of Redis Cluster: the first {…}, if not empty
        return f"solely:fence:{key}"
    if "}" in key:
        raise InvalidInput(f"key {key!r:.80} has a }} and no hash tag: no other key can share its slot; rename it")
    return f"solely:fence/{{{key}}}"


class FencedRedis:
    """Writes through a blocking client of redis-py; StaleFence if a later holder wrote the key, and nothing is done."""

    def __init__(self, client: redis.Redis | redis.RedisCluster) -> None:
        self._script = client.register_script(SCRIPT)

    def run(self, command: str, key: str, *arguments: Value, fence: int) -> Any:
        """The server's reply to any command of this one key, as `run("LPUSH", "jobs", "a", fence=lease.fence)`."""
        return _reply(key, fence, self._script([key, fence_key(key)], [encoded(fence), command, *arguments]))

    def set(self, key: str, value: Value, *, fence: int) -> None:
        self.run("SET", key, value, fence=fence)

    def hset(self, key: str, mapping: dict[str, Value], *, fence: int) -> int:
        """The number of new fields."""
        return int(self.run("HSET", key, *_flat(mapping), fence=fence))

    def delete(self, key: str, *, fence: int) -> bool:
        """True if there was something to delete. The fence stays, so that no stale holder restores the key."""
        return bool(self.run("DEL", key, fence=fence))


class AsyncFencedRedis:
    """Writes through an asyncio client of redis-py; StaleFence if a later holder wrote the key, and nothing is done."""

    def __init__(self, client: redis.asyncio.Redis | redis.asyncio.RedisCluster) -> None:
        self._script = client.register_script(SCRIPT)

    async def run(self, command: str, key: str, *arguments: Value, fence: int) -> Any:
        """The server's reply to any command of this one key, as `run("LPUSH", "jobs", "a", fence=lease.fence)`."""
        return _reply(key, fence, await self._script([key, fence_key(key)], [encoded(fence), command, *arguments]))

    async def set(self, key: str, value: Value, *, fence: int) -> None:
        await self.run("SET", key, value, fence=fence)

    async def hset(self, key: str, mapping: dict[str, Value], *, fence: int) -> int:
        """The number of new fields."""
        return int(await self.run("HSET", key, *_flat(mapping), fence=fence))

    async def delete(self, key: str, *, fence: int) -> bool:
        """True if there was something to delete. The fence stays, so that no stale holder restores the key."""
        return bool(await self.run("DEL", key, fence=fence))


def _flat(mapping: dict[str, Value]) -> list[Value]:
    return [part for field in mapping.items() for part in field]


def _reply(key: str, fence: int, answer: Any) -> Any:
    written, reply = answer
    if not written:
        raise stale(key, fence, int(reply))
    return reply
