"""Queries, as generators without I/O: they yield commands for one server, or batches of ops, and get the answers.

The blocking and the asyncio store each perform them in their own way. An answer that is an error of the server comes as
the ReplyError itself; an unreachable server is thrown in as StoreUnavailable.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from typing import Any, NamedTuple

from hiredis import ReplyError
from redis.crc import key_slot

from ...errors import StoreError, StoreUnavailable, first_error
from ...model import Entry, Finding, State
from ...ops import Read
from .codec import Codec, chunks
from .faults import fault
from .health import findings, read_info
from .index import KINDS, Complete, Enlist, ListPage, RedisOp, is_listed
from .settings import RedisSettings, ServerAddress

Routes = list[ServerAddress | None]  # bucket → who serves it; one bucket unless it is a cluster

# Keys per step of a SCAN: a step stays under a millisecond, and a million keys need a thousand steps.
SCAN_STEP = 1_000

Batch = list[RedisOp]


class Query(NamedTuple):
    """A command for one server. `seed`: only to find the others, on a connection of its own."""

    address: ServerAddress
    command: tuple[Any, ...]
    seed: bool = False


def find_routes(settings: RedisSettings, known: set[ServerAddress]) -> Generator[Query, Any, Routes]:
    """Who serves which bucket now; StoreUnavailable with every reason if no server knows."""
    if not (settings.sentinel or settings.cluster):
        return [settings.seeds[0]]
    reasons = []
    # In any order: a Sentinel that was cut off must not mislead us every time.
    for seed in random.sample(sorted({*settings.seeds, *known}), len({*settings.seeds, *known})):
        try:
            if settings.sentinel:
                command: tuple[Any, ...] = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", settings.service)
            else:
                command = ("CLUSTER", "SLOTS")
            answer = yield Query(seed, command, seed=True)
        except StoreUnavailable as error:
            reasons.append(str(error))
            continue
        if isinstance(answer, ReplyError):
            reasons.append(f"{seed}: {answer}")
        elif settings.sentinel and answer:
            return [ServerAddress(answer[0].decode(), int(answer[1]))]
        elif settings.sentinel:
            reasons.append(f"{seed} knows no primary named {settings.service!r}")
        elif answer:
            return _routes(settings, seed, answer)
        else:
            reasons.append(f"{seed}: no slots are assigned")
    raise StoreUnavailable(f"{settings}: nobody says who the primary is: {'; '.join(reasons)}")


def _routes(settings: RedisSettings, asked: ServerAddress, slots: list[Any]) -> Routes:
    by_slot: list[tuple[int, int, ServerAddress]] = []
    for first, last, (host, port, *_), *_ in slots:
        by_slot.append((first, last, ServerAddress(host.decode() if host else asked.host, port)))
    routes: Routes = []
    for base in Codec(settings.prefix, None, cluster=True).bases:
        slot = key_slot(base.encode())
        routes.append(next((address for first, last, address in by_slot if first <= slot <= last), None))
    return routes


def scan(
    routes: Routes, codec: Codec, prefix: str, after: str, limit: int
) -> Generator[Query | Batch, Any, list[Entry] | None]:
    """The page that a store's `scan` promises; None if `complete_index` must come first."""
    if is_listed(prefix):
        return (yield from _merge(codec, prefix, after, limit))
    found: list[Entry] = []
    for keys in chunks((yield from _find_keys(routes, codec, prefix, after))):
        entries = _raise_errors((yield [Read(key) for key in keys]))
        found += [entry for entry in entries if entry.state is not State.FREE or entry.fence]
        if len(found) >= limit:
            break
    return found[:limit]


def _merge(codec: Codec, prefix: str, after: str, limit: int) -> Generator[Batch, Any, list[Entry] | None]:
    """The first entries of all buckets that can have some, by the index; None if it is not complete.

    Keys are spread evenly, so every bucket is asked for about twice its share, and again only if its next key may come
    before one that was found.
    """
    found: list[Entry] = []
    if after > prefix and not after.startswith(prefix[: prefix.index("/") + 1]):
        return found  # it comes after all keys of this kind
    buckets = [codec.bucket(Read(prefix))] if _is_one_queue(prefix) else range(len(codec.bases))
    share = limit if len(buckets) == 1 else 2 + 2 * limit // len(buckets)
    behind = dict.fromkeys(buckets, after)  # bucket → the last key of it that was looked at, while it has more
    while asked := [each for each, last in behind.items() if len(found) < limit or (found and last < found[-1].key)]:
        pages = yield [ListPage(bucket, prefix, behind[bucket], share) for bucket in asked]
        for bucket, page in zip(asked, _raise_errors(pages), strict=True):
            if page is None:
                return None
            found += page.entries
            behind[bucket] = page.last
        behind = {bucket: last for bucket, last in behind.items() if last}
        found = sorted(found, key=lambda entry: entry.key)[:limit]
    return found


def _is_one_queue(prefix: str) -> bool:
    return prefix.startswith("item/") and "/" in prefix[5:]


def _raise_errors(answers: list[Any]) -> list[Any]:
    """The answers; raises the first error among them."""
    error = first_error(StoreError, answers)
    if error is not None:
        raise error
    return answers


def complete_index(routes: Routes, codec: Codec) -> Generator[Query | Batch, Any, None]:
    """Adds all records of the kinds that are listed to the index: an older version, which knew none, may have written
    them."""
    kinds = "".join(f"[{''.join(letters)}]" for letters in zip(*KINDS, strict=False))  # not all that match are listed
    for address in nodes(routes):
        cursor = b""
        while cursor != b"0":
            cursor, keys = yield from _step(address, codec, cursor, kinds)
            _raise_errors((yield [Enlist(key) for key in keys if is_listed(key)]))
    _raise_errors((yield [Complete(bucket) for bucket in range(len(codec.bases))]))


def _find_keys(routes: Routes, codec: Codec, prefix: str, after: str) -> Generator[Query, Any, list[str]]:
    """All stored keys that begin with `prefix` and come after `after`, in order."""
    found: set[str] = set()
    for address in nodes(routes):
        cursor = b""
        while cursor != b"0":
            cursor, keys = yield from _step(address, codec, cursor, _escaped(prefix))
            found.update(keys)
    return sorted(key for key in found if key > after and key.startswith(prefix) and not key.startswith("#"))


def _step(
    address: ServerAddress, codec: Codec, cursor: bytes, begins: str
) -> Generator[Query, Any, tuple[bytes, list[str]]]:
    """The next cursor of a SCAN of one server, b"0" at the end, and the stored keys of this step."""
    pattern = _escaped(codec.prefix) + ("{b*}" if len(codec.bases) > 1 else "") + begins + "*"
    answer = yield Query(address, ("SCAN", cursor or b"0", "MATCH", pattern, "COUNT", SCAN_STEP, "TYPE", "string"))
    if isinstance(answer, ReplyError):
        raise fault(answer)
    cursor, names = answer
    return cursor, [_stored_key(codec, name) for name in names]


def _stored_key(codec: Codec, name: bytes) -> str:
    rest = name.decode("utf-8", "replace")[len(codec.prefix) :]  # one that is not ours may be any bytes
    return rest.partition("}")[2] if len(codec.bases) > 1 else rest


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]^-\\" else letter for letter in text)


def check(routes: Routes, codec: Codec) -> Generator[Query, Any, list[Finding]]:
    """What each primary says about itself, judged."""
    found: list[Finding] = []
    for address in nodes(routes):
        try:
            began = time.perf_counter()
            clock = yield Query(address, ("TIME",))
            took = time.perf_counter() - began
            local = time.time() - took / 2
            info = read_info((yield Query(address, ("INFO",))))
            fence = 0
            for base, served_by in zip(codec.bases, routes, strict=True):
                if served_by == address:
                    fence = max(fence, _fence((yield Query(address, ("GET", base + "#fence")))))
        except StoreError as error:
            found.append(Finding("error", str(address), str(error)))
            continue
        found += findings(address, info, clock, fence, local=local, took=took)
    return found


def _fence(answer: Any) -> int:
    if isinstance(answer, ReplyError):
        raise fault(answer)
    return int(answer or 0)


def nodes(routes: Routes) -> list[ServerAddress]:
    """Every server of these routes once; StoreUnavailable if a bucket is served by nobody."""
    if None in routes:
        raise StoreUnavailable("some slots of the cluster are served by no node")
    return sorted({address for address in routes if address is not None})
