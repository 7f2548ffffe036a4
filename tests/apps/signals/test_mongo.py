"""Signals in MongoDB as the document has them: the collections L0CK and D34DL3TT3R, consumers that read SIGN4L as
before, and the rollback."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from solely import Busy, Client, InvalidInput
from solely.apps.signals import AsyncMongoSignals, IdempotentSignalGenerator, MongoSignals, SignalOptions, roll_back
from solely.apps.signals.places import letters_url, locks_url
from solely.cli.program import perform
from tests.mongo_server import Mongod

Signal = dict[str, Any]


class Place:
    """A database of the test's own."""

    def __init__(self, server: Mongod) -> None:
        self.url = server.url_of(f"t{secrets.token_hex(6)}")
        self._client = server.mongo()
        self.database = self._client[self.url.rpartition("/")[2].partition("?")[0]]
        self.signals = MongoSignals(self.database["SIGN4L"])

    def close(self) -> None:
        self._client.drop_database(self.database.name)
        self._client.close()

    def generator(self, *signals: Signal, write: Any = None) -> IdempotentSignalGenerator:
        options = SignalOptions(username="Username", backoff=(0.0,))
        return IdempotentSignalGenerator(
            lambda group, context: signals, write or self.signals.write, self.url, options=options
        )


@pytest.fixture
def place(replica_set: Mongod) -> Iterator[Place]:
    it = Place(replica_set)
    yield it
    it.close()


def signal(name: str, priority: int = 1, **more: Any) -> Signal:
    return {"House": "North", "Game": "Slots", "Username": name, "Priority": priority, "Acknowledged": False, **more}


def broken(signal: Signal, id: str) -> bool:
    raise OSError("no space left on device")


def test_locks_and_dead_letters_are_in_their_collections(place: Place) -> None:
    with place.generator(signal("ann"), write=broken) as generator:
        assert generator.generate_group(("North", "Slots")).dead_lettered == 1
    assert set(place.database.list_collection_names()) == {"L0CK", "D34DL3TT3R"}
    keys = [each["_id"] for each in place.database["L0CK"].find()]
    assert "lock/signal:North:Slots" in keys
    assert any("dead%3Asignals" in str(each["_id"]) for each in place.database["D34DL3TT3R"].find())


def test_the_indexes_are_created_by_themselves_on_the_first_lock(place: Place) -> None:
    with place.generator(signal("ann")) as generator:
        generator.generate_group(("North", "Slots"))
    assert any("expireAfterSeconds" in index for index in place.database["L0CK"].index_information().values())


def test_consumers_read_the_same_documents_in_the_same_order(place: Place) -> None:
    with place.generator(signal("low", 1), signal("urgent", 4), signal("later", 4)) as generator:
        generator.generate_group(("North", "Slots"))
    found = place.signals.get_next()
    assert found is not None
    assert isinstance(found.pop("_id"), ObjectId)
    assert found in (signal("urgent", 4), signal("later", 4))
    read = []
    while (following := place.signals.get_next()) is not None:
        read.append(following["Priority"])
        assert place.signals.acknowledge(following)
        assert not place.signals.acknowledge(following)
    assert read == [4, 4, 1]


def test_a_lease_is_optional_and_ends_by_itself(place: Place) -> None:
    with place.generator(signal("ann")) as generator:
        generator.generate_group(("North", "Slots"))
    taken = place.signals.take(lease=3600)
    assert taken is not None
    assert place.signals.take() is None
    assert place.signals.get_next() is not None  # who does not lease reads as before
    place.database["SIGN4L"].update_one({}, [{"$set": {"LeasedUntil": "$$NOW"}}])
    again = place.signals.take()
    assert again is not None
    assert again["_id"] == taken["_id"]


async def test_the_same_for_asyncio(place: Place, replica_set: Mongod) -> None:
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient[Signal](replica_set.url) as client:
        signals = AsyncMongoSignals(client[place.database.name]["SIGN4L"])
        id = "0" * 24
        assert await signals.write(signal("ann"), id)
        assert not await signals.write(signal("ann"), id)
        found = await signals.get_next()
        assert found is not None
        assert (await signals.take(5) or {})["Username"] == "ann"
        assert await signals.take(5) is None
        assert await signals.acknowledge(found)
        assert await signals.get_next() is None


@pytest.mark.parametrize(
    ("url", "locks", "letters"),
    [
        ("mongodb://h/db", "mongodb://h/db?namespace=L0CK", "mongodb://h/db?namespace=D34DL3TT3R"),
        ("mongodb://h", "mongodb://h/?namespace=L0CK", "mongodb://h/?namespace=D34DL3TT3R"),
        ("mongodb://h/?replicaSet=r", "mongodb://h/?replicaSet=r&namespace=L0CK", "mongodb://h/?replicaSet=r&namespace=D34DL3TT3R"),
        ("mongodb://h/db?namespace=own", "mongodb://h/db?namespace=own", "mongodb://h/db?namespace=own"),
        ("redis://h", "redis://h", "redis://h"),
        (None, None, None),
    ],
)  # fmt: skip
def test_only_a_mongodb_url_without_a_namespace_gets_the_collections(url: Any, locks: Any, letters: Any) -> None:
    assert (locks_url(url), letters_url(url)) == (locks, letters)


# -- the rollback


def test_a_rollback_exports_drops_and_verifies(place: Place, tmp_path: Path) -> None:
    with place.generator(signal("ann")) as works, place.generator(signal("bob"), write=broken) as fails:
        works.generate_group(("North", "Slots"))
        fails.generate_group(("South", "Slots"))
        done = roll_back(
            place.url, export=tmp_path / "letters", get_next=place.signals.get_next, generators=[works, fails]
        )
        assert (done.exported, done.removed) == (1, ("L0CK", "D34DL3TT3R"))
        assert done.next["Username"] == "ann"
        assert place.database.list_collection_names() == ["SIGN4L"]
        (line,) = (tmp_path / "letters").read_text().splitlines()
        assert json.loads(line)["payload"]["signal"]["Username"] == "bob"
        assert works.generate_group(("North", "Slots")).outcome == "off"  # the old path: a duplicate, as before
        assert place.database.list_collection_names() == ["SIGN4L"]
    assert place.database["SIGN4L"].count_documents({"Username": "ann"}) == 2


def test_a_rollback_is_refused_while_a_group_is_locked(place: Place, tmp_path: Path) -> None:
    with Client(locks_url(place.url)) as once, once.lock("signal:North:Slots"):
        with pytest.raises(Busy, match="set use_idempotent_signals to False in all processes"):
            roll_back(place.url, export=tmp_path / "letters", get_next=place.signals.get_next)
        assert "L0CK" in place.database.list_collection_names()
    assert not (tmp_path / "letters").exists()


def test_a_rollback_overwrites_no_export(place: Place, tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("the last one")
    with place.generator(signal("bob"), write=broken) as fails:
        fails.generate_group(("South", "Slots"))
    with pytest.raises(InvalidInput, match="name a new file"):
        roll_back(place.url, export=tmp_path / "letters", get_next=place.signals.get_next)
    assert "D34DL3TT3R" in place.database.list_collection_names()


def test_the_rollback_command(place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with place.generator(signal("ann")) as works:
        works.generate_group(("North", "Slots"))
    assert perform(["signals", "rollback-store", place.url, "--export", str(tmp_path / "letters"), "--yes"]) == 0
    said = capfd.readouterr().err
    assert "0 dead letters are in" in said
    assert "removed: L0CK, D34DL3TT3R" in said
    assert "'Username': 'ann'" in said
    assert place.database.list_collection_names() == ["SIGN4L"]


def test_in_another_store_a_rollback_removes_the_entries_of_signals_only(tmp_path: Path) -> None:
    url, written = f"sqlite:///{tmp_path / 'store.db'}", list[Any]()
    with Client(url) as once:
        once.first("of somebody else")
    options = SignalOptions(backoff=())
    with IdempotentSignalGenerator(
        lambda group, context: [{"username": "ann"}], lambda signal, id: written.append(id), url, options=options
    ) as generator:
        generator.generate_group(("North", "Slots"))
    done = roll_back(url, export=tmp_path / "letters", get_next=lambda: written[0])
    assert (done.removed, done.next) == (("0 dead letters", "1 marks", "1 marks"), written[0])
    with Client(url) as once:
        assert [mark.key for mark in once.marks()] == ["of somebody else"]


def test_a_signal_that_another_unique_index_refuses_is_a_dead_letter_and_not_lost(place: Place) -> None:
    """Only the id that the generator gave says that a signal is there already."""
    place.database["SIGN4L"].create_index("Serial", unique=True)
    place.database["SIGN4L"].insert_one(signal("bob", Serial=7))
    with place.generator(signal("ann", Serial=7), signal("eve", Serial=8)) as generator:
        result = generator.generate_group(("North", "Slots"))
    assert (result.generated, result.dead_lettered) == (1, 1)
    assert {each["Username"] for each in place.database["SIGN4L"].find()} == {"bob", "eve"}
    id = "0" * 24
    assert place.signals.write(signal("zoe", Serial=9), id)
    assert not place.signals.write(signal("zoe", Serial=9), id)


async def test_in_asyncio_too_a_signal_that_another_unique_index_refuses_is_not_written(
    place: Place, replica_set: Mongod
) -> None:
    from pymongo import AsyncMongoClient
    from pymongo.errors import DuplicateKeyError

    place.database["SIGN4L"].create_index("Serial", unique=True)
    place.database["SIGN4L"].insert_one(signal("bob", Serial=7))
    async with AsyncMongoClient[Signal](replica_set.url) as client:
        signals = AsyncMongoSignals(client[place.database.name]["SIGN4L"])
        with pytest.raises(DuplicateKeyError):
            await signals.write(signal("ann", Serial=7), "0" * 24)
        assert await signals.write(signal("ann", Serial=8), "0" * 24)
        assert not await signals.write(signal("ann", Serial=8), "0" * 24)


@pytest.mark.parametrize("house", ["n" * 466, "\u00e9" * 78])
def test_a_group_that_leaves_no_room_for_a_username_is_refused_before_anything_is_generated(
    place: Place, house: str
) -> None:
    with place.generator(signal("ann")) as generator:
        with pytest.raises(InvalidInput, match="480 bytes"):
            generator.generate_group((house, "Slots"))
        assert place.database.list_collection_names() == []
