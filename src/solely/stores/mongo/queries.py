"""Commands outside of batches, as generators without I/O: a page of entries, the indexes, and check()."""

from __future__ import annotations

import time
from typing import Any

from ...errors import StoreError, StoreUnavailable
from ...logs import get_logger
from ...model import Entry, Finding, State
from .batch import CommandSteps
from .commands import INDEXES, Commands
from .faults import explain
from .quick import Command
from .replies import entry
from .settings import MongoSettings

log = get_logger()

TESTED = (6, 0)  # the version that the contract suite runs on; pipelines in findAndModify with `let` need 5.0
OLDEST = (5, 0)
SKEW = 1.0  # seconds: leases do not depend on our clock, but who reads logs of both does
MAX_PAGE = 1_000  # documents in one look: a page of them stays far below what one answer can carry


def scan(commands: Commands, server: str, prefix: str, after: str, limit: int) -> CommandSteps[list[Entry]]:
    """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
    found: list[Entry] = []
    while len(found) < limit:
        answer = yield from _send(server, commands.page(prefix, after, min(limit, MAX_PAGE)))
        documents = answer["cursor"]["firstBatch"]
        for document in documents:
            after = document["_id"]
            if not after.startswith(prefix):
                return found
            shown = entry(after, document, value=True)
            if shown.state is not State.FREE or shown.fence:
                found.append(shown)
        if not documents:
            break
    return found[:limit]


def prepare(commands: Commands, server: str) -> CommandSteps[None]:
    """Creates the missing indexes. A user who may not do that is warned: they only save space and time."""
    try:
        yield from _send(server, commands.indexes())
    except StoreUnavailable as error:
        raise StoreUnavailable(str(error)) from None  # not Unanswered: no op was sent
    except StoreError as error:
        facts = {"store": server, "reason": str(error)}
        log.warning("mongo_indexes_missing: indexes of %(store)s could not be created: %(reason)s", facts, extra=facts)


def check(commands: Commands, settings: MongoSettings) -> CommandSteps[list[Finding]]:
    """Reachable? Which version, alone or a replica set? Clock, indexes, rights?"""
    server = str(settings)
    began, wall = time.perf_counter(), time.time()
    hello = yield from _send(server, {"hello": 1})
    took = time.perf_counter() - began
    version = (yield from _send(server, {"buildInfo": 1})).get("versionArray", [0, 0])
    found = [
        _version(server, version, took),
        _members(server, hello),
        _clock(server, hello["localTime"].timestamp() - (wall + took / 2)),
        Finding("ok", server, "every write waits for the journal of a majority (w: majority, j: true)"),
    ]
    try:
        listed = yield from _send(server, {"listIndexes": commands.collection})
        names = {index["name"] for index in listed["cursor"]["firstBatch"]}
    except StoreUnavailable:
        raise
    except StoreError as error:  # not allowed, or nothing was written yet
        names, why = set(), f" ({error})"
    else:
        why = ""
    return [*found, _indexes(server, names, why)]


def _send(server: str, command: Command) -> CommandSteps[dict[str, Any]]:
    (answer,) = yield [command]
    if not isinstance(answer, dict):
        raise explain(server, answer)
    return answer


def _version(server: str, version: list[int], took: float) -> Finding:
    text = f"MongoDB {'.'.join(map(str, version[:3]))} answers in {took * 1000:.2f} ms"
    if tuple(version[:2]) < OLDEST:
        return Finding("error", server, f"{text}; the oldest that can be used is 5.0")
    if tuple(version[:2]) != TESTED:
        return Finding("warning", server, f"{text}; tested is 6.0")
    return Finding("ok", server, text)


def _members(server: str, hello: dict[str, Any]) -> Finding:
    if hello.get("msg") == "isdbgrid":
        return Finding("ok", server, "a sharded cluster, which notifies waiters through change streams")
    if "setName" not in hello:
        text = "stands alone: no failover, no transactions, and waiters poll; make it a replica set, even of one"
        return Finding("warning", server, text)
    hosts = len(hello.get("hosts", ()))
    return Finding(
        "ok", server, f"replica set {hello['setName']} of {hosts}, which notifies waiters through change streams"
    )


def _clock(server: str, skew: float) -> Finding:
    level = "ok" if abs(skew) <= SKEW else "warning"
    return Finding(level, server, f"its clock differs from ours by {skew:+.3f} s; fences grow with it")


def _indexes(server: str, names: set[str], why: str) -> Finding:
    missing = [name for name in INDEXES if name not in names]
    if missing:
        text = f"missing indexes: {', '.join(missing)}{why}; they are made at the first op of a user who may make them"
        return Finding("warning", server, text)
    return Finding("ok", server, "the TTL index and those of queues are there")
