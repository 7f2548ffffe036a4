"""Ops to commands: pure, the same for threads and asyncio. perform.lua describes the wire format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import quote
from zlib import crc32

from hiredis import pack_command

from ...model import item_key
from ...ops import (
    MAX_BATCH,
    Ack,
    Acquire,
    Advance,
    Amend,
    Clear,
    Count,
    Finish,
    Hit,
    Mark,
    Push,
    QueueOp,
    Read,
    Release,
    Renew,
    Resume,
    Return,
    Take,
    Unhit,
)
from .. import Clock
from ..batches import run_of_marks
from ..transitions import us
from .index import Complete, Enlist, ListPage, RedisOp


def _read(name: str) -> str:
    """The text of a script, with its parts in their places."""
    source = files(__package__).joinpath(name).read_text("utf-8")
    return re.sub(r"^ *--@ (\S+)$", lambda part: _read(part[1]), source, flags=re.MULTILINE)


PERFORM = _read("perform.lua").encode()  # performs a batch
SHA = sha1(PERFORM, usedforsecurity=False).hexdigest().encode()


def packed(*words: Any) -> bytes:
    """A command as it goes over the wire."""
    command: bytes = pack_command(words)
    return command


BUCKETS = 256  # hash tags in a cluster: spread over any sane number of nodes, few enough for a counter each
LOAD: bytes = packed("SCRIPT", "LOAD", PERFORM)

Words = tuple[str, tuple[Any, ...]]
T = TypeVar("T")
_LISTED = "reservation/"  # of what can be acquired, the only kind in the index
_KNOWN_SPANS = 256  # durations of which the word is remembered
_YES, _NO = "$1\r\n1\r\n", "$0\r\n\r\n"


# -- encoding: an op is a key and words; see perform.lua


def _acquire(op: Acquire, base: str) -> Words:
    key, owner, ttl, info, client, delay, fingerprint, counted, value = op
    listed = key.startswith(_LISTED)
    if delay or fingerprint or counted or value or listed:
        flags = ("1" if counted else "", "1" if value else "")
        if delay or "\0" in owner or "\0" in fingerprint or "\0" in info:
            return base + key, ("acquire", 8, owner, us(ttl), info, client, us(delay), fingerprint, *flags)
        return base + key, ("R" if listed else "A", owner, us(ttl), info, client, fingerprint, *flags)
    return base + key, ("a", owner, int(ttl * 1_000_000 + 0.5) or 1, info, client)


def _release(op: Release, base: str) -> Words:
    key, owner, revoke, delay, keep, fence = op
    if revoke or delay or keep:
        return base + key, ("release", 5, owner, "1" if revoke else "", us(delay), us(keep), fence)
    return base + key, ("r", owner, fence)


def _mark(op: Mark, base: str) -> Words:
    if op.extend:
        return base + op.key, ("mark", 3, op.owner, us(op.ttl), "1")
    return base + op.key, ("m", op.owner, us(op.ttl), 1)


def _take(op: Take, base: str) -> Words:
    waiter = (op.client,) if op.client else ()
    return _queue_name(op, base), ("take", 3 + len(waiter), op.owner, us(op.ttl), op.id, *waiter)


def _queue_name(op: Take | Count, base: str) -> str:
    return f"{base}#queue:{quote(op.queue, safe='')}"


def _hits(op: Hit | Unhit, base: str) -> str:
    return f"{base}#hits:{op.key}"


def _amend(op: Amend, base: str) -> Words:
    words = (op.expected,) if op.value is None else (op.expected, op.value)
    return _item_name(op, base), ("amend", len(words), *words)


def _item_name(op: Push | Ack | Return | Amend, base: str) -> str:
    return base + item_key(op.queue, op.id)


_ENCODE: dict[type, Callable[[Any, str], Words]] = {
    Acquire: _acquire,
    Release: _release,
    Mark: _mark,
    Renew: lambda op, base: (base + op.key, ("renew", 2, op.owner, us(op.ttl))),
    Resume: lambda op, base: (base + op.key, ("renew", 4, op.owner, us(op.ttl), op.successor, op.info)),
    Finish: lambda op, base: (base + op.key, ("F", op.owner, op.value, us(op.keep))),
    Read: lambda op, base: (base + op.key, ("read", 0)),
    Clear: lambda op, base: (base + op.key, ("clear", 1, op.fence)),
    Advance: lambda op, base: (base + op.key, ("advance", 1, op.value)),
    Hit: lambda op, base: (_hits(op, base), ("hit", 3, op.owner, op.limit, us(op.per))),
    Unhit: lambda op, base: (_hits(op, base), ("unhit", 1, op.owner)),
    Push: lambda op, base: (_item_name(op, base), ("push", 2, op.payload, us(op.delay))),
    Take: _take,
    Ack: lambda op, base: (_item_name(op, base), ("ack", 2, op.owner, op.fence)),
    Return: lambda op, base: (
        _item_name(op, base),
        ("give_back", 3, op.owner, us(op.delay), "1" if op.uncounted else ""),
    ),
    Amend: _amend,
    Count: lambda op, base: (_queue_name(op, base), ("count", 0)),
    ListPage: lambda op, base: (f"{base}#list:{op.kind}", ("list", 3, *op.bounds, op.most)),
    Enlist: lambda op, base: (base + op.key, ("enlist", 0)),
    Complete: lambda op, base: (base + "#listed", ("complete", 0)),
}


def in_run(op: RedisOp) -> bool:
    """True if it is a Mark that goes together with others: one that only marks what is free."""
    return type(op) is Mark and not op.extend


@lru_cache(_KNOWN_SPANS)
def _span(seconds: float) -> str:
    """The duration as a word of a command; few differ in one program."""
    word = str(us(seconds))
    return f"${len(word)}\r\n{word}\r\n"


class Codec:
    """Encodes for one set of keys: `base` comes before each of them."""

    def __init__(self, prefix: str, clock: Clock | None, *, cluster: bool) -> None:
        self.prefix = prefix
        self._clock = clock
        self._plain = "c" if cluster else ""
        self.bases = [f"{prefix}{{b{number}}}" for number in range(BUCKETS)] if cluster else [prefix]
        self._counters = [base + "#fence" for base in self.bases]
        self._quick: dict[type, Callable[[Any], bytes | None]] = {}  # what writes such an op; None if it is not plain
        if clock is None and not cluster and prefix.isascii():
            self._quick = {Acquire: self._quick_acquire, Release: self._quick_release, Finish: self._quick_finish}
            words = packed("EVALSHA", SHA, "2", self._counters[0]).decode().partition("\r\n")[2] + "$"
            self._heads = {count: f"*{count}\r\n{words}" for count in (9, 10, 11, 14)}

    # The commonest calls, written out: half the time of packing their words one by one. Only what is ASCII, where
    # characters are bytes.

    def _quick_acquire(self, op: Acquire) -> bytes | None:
        key, owner, ttl, info, client, delay, print, counted, value = op
        if delay:
            return None
        name, span = self.prefix + key, _span(ttl)
        who = f"${len(owner)}\r\n{owner}\r\n{span}${len(info)}\r\n{info}\r\n${len(client)}\r\n{client}\r\n"
        if print or counted or value or key.startswith(_LISTED):
            more = f"${len(print)}\r\n{print}\r\n{_YES if counted else _NO}{_YES if value else _NO}"
            code = "R" if key.startswith(_LISTED) else "A"
            text = f"{self._heads[14]}{len(name)}\r\n{name}\r\n$0\r\n\r\n$1\r\n{code}\r\n{who}{more}"
        else:
            text = f"{self._heads[11]}{len(name)}\r\n{name}\r\n$0\r\n\r\n$1\r\na\r\n{who}"
        return text.encode() if text.isascii() and "\0" not in text else None

    def _quick_release(self, op: Release) -> bytes | None:
        key, owner, revoke, delay, keep, granted = op
        if revoke or delay or keep:
            return None
        name, fence = self.prefix + key, str(granted)
        who = f"${len(owner)}\r\n{owner}\r\n${len(fence)}\r\n{fence}\r\n"
        text = f"{self._heads[9]}{len(name)}\r\n{name}\r\n$0\r\n\r\n$1\r\nr\r\n{who}"
        return text.encode() if text.isascii() else None

    def _quick_finish(self, op: Finish) -> bytes | None:
        key, owner, value, keep = op
        name, span = self.prefix + key, _span(keep)
        words = f"{self._heads[10]}{len(name)}\r\n{name}\r\n$0\r\n\r\n$1\r\nF\r\n"
        text = f"{words}${len(owner)}\r\n{owner}\r\n${len(value)}\r\n"
        return b"%b%b\r\n%b" % (text.encode(), value, span.encode()) if text.isascii() else None

    def command(self, ops: Sequence[RedisOp], bucket: int = 0) -> bytes:
        """One call of the script that performs `ops`, all of this bucket."""
        if len(ops) == 1:
            write = self._quick.get(type(ops[0]))
            text = None if write is None else write(ops[0])
            if text is not None:
                return text
        base, now = self.bases[bucket], self._plain
        command: bytes
        if self._clock is not None:
            now = str(round(self._clock() * 1_000_000))
        if len(ops) == 1:
            name, words = _ENCODE[type(ops[0])](ops[0], base)
            command = pack_command((b"EVALSHA", SHA, "2", self._counters[bucket], name, now, *words))
        else:
            keys, args = self._batch(ops, base)
            command = pack_command((b"EVALSHA", SHA, len(keys) + 1, self._counters[bucket], *keys, now, *args))
        return command

    @staticmethod
    def _batch(ops: Sequence[RedisOp], base: str) -> tuple[list[str], list[Any]]:
        keys: list[str] = []
        args: list[Any] = []
        place, end = 0, len(ops)
        while place < end:
            op = ops[place]
            if type(op) is Mark and not op.extend:
                beyond = run_of_marks(ops, place)
                marks: Sequence[Any] = ops[place:beyond]
                keys += [base + mark[0] for mark in marks]
                args += ("m", op.owner, us(op.ttl), beyond - place)
                place = beyond
            else:
                name, words = _ENCODE[type(op)](op, base)
                keys.append(name)
                args += words
                place += 1
        return keys, args

    def bucket(self, op: RedisOp) -> int:
        """Where in a cluster the op belongs: a queue, its items and its line together, everything else by its key."""
        if len(self.bases) == 1:
            return 0
        if isinstance(op, ListPage | Complete):
            return op.bucket
        if isinstance(op, QueueOp):
            name = "item/" + quote(op.queue, safe="")
        elif op.key.startswith("item/"):
            name = op.key[: op.key.find("/", 5)]
        elif op.key.startswith("line/"):
            name = "item" + op.key[4:]
        else:
            name = op.key
        return crc32(name.encode()) % BUCKETS

    def wake_channel(self, client: str) -> str:
        """The channel on which this client gets its hints."""
        return f"{self.prefix}wake:{client}"


def chunks(ops: Sequence[T]) -> list[Sequence[T]]:
    """The ops in portions of MAX_BATCH, so that no call of the script holds up the server for long."""
    return [ops] if len(ops) <= MAX_BATCH else [ops[at : at + MAX_BATCH] for at in range(0, len(ops), MAX_BATCH)]
