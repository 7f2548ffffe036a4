"""The MongoDB store: the contract and the model on both kinds of server, and what is specific to MongoDB."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymongo
import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import ConnectionFailure, NotPrimaryError
from pymongo.monitoring import CommandListener

from solely.errors import (
    ClientClosed,
    InvalidInput,
    StoreDenied,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    Unanswered,
)
from solely.model import Entry, Finding, Released, State, item_key
from solely.ops import Ack, Acquire, Clear, Finish, Hit, Mark, Op, Push, Read, Release, Renew, Take
from solely.stores import Store
from solely.stores.mongo import open_async, open_blocking
from solely.stores.mongo.batch import MAX_LIMIT, levels
from solely.stores.mongo.blocking import MongoStore
from solely.stores.mongo.faults import explain
from solely.stores.mongo.settings import parse
from solely.testing.clock import ManualClock
from solely.testing.harness import BlockingAdapter, HintRecorder, fresh
from solely.testing.machine import run_machine
from tests.conftest import in_collection
from tests.mongo_server import Mongod
from tests.servers import free_port

TIMEOUT = 5.0  # seconds: a busy test machine is no outage
SOON = 0.5  # seconds: where the outage is the test


@pytest.fixture(params=["standalone", "replica_set"])
def url(request: pytest.FixtureRequest) -> str:
    """Both kinds of server. SOLELY_TEST_MONGO_URL takes the place of the replica set."""
    given = os.environ.get("SOLELY_TEST_MONGO_URL") if request.param == "replica_set" else None
    return in_collection(given or request.getfixturevalue(request.param).url_of("solely"))


@pytest.fixture
def set_url(replica_set: Mongod) -> str:
    return in_collection(replica_set.url_of("solely"))


@pytest.fixture
def store(set_url: str) -> Iterator[MongoStore]:
    with closing(open_blocking(set_url, clock=None, timeout=TIMEOUT)) as opened:
        yield opened


def one(store: Store, op: Op) -> Any:
    (reply,) = store.perform([op])
    if isinstance(reply, StoreError):
        raise reply
    return reply


def documents(server: Mongod, url: str) -> Any:
    """The collection of this URL, through a client of its own."""
    return server.mongo(tz_aware=True)["solely"][parse(url).collection]


# -- the model (blocking and the contract: test_machine.py, test_contract.py)


@pytest.mark.timeout(300)
def test_the_asyncio_store_answers_as_the_model(url: str, model_examples: int) -> None:
    clock = ManualClock()
    looped = BlockingAdapter(lambda: open_async(url, clock=clock, timeout=TIMEOUT))
    try:
        run_machine(looped, clock, examples=model_examples)
    finally:
        looped.close()
        looped.stop()


# -- the URL


@pytest.mark.parametrize(
    "url",
    [
        "mongodb:///database",
        "mongodb://host:port/database",
        "mongodb://host/data$base",
        "mongodb://host/database?solely_collection=a",
        "mongodb://host/database?namespace=",
        "mongodb://host/database?namespace=a$b",
        "mongodb://host/database?namespace=system.users",
        "mongodb://host/database?namespace=a&namespace=b",
        "mongodb://host/database?w=%00&connectTimeoutMS=soon",
        "mongodb://host/database?no_such_option=1",
        "mongodb://me:se@cret@host/database",
    ],
)
def test_a_url_that_cannot_be_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(InvalidInput) as told:
        open_blocking(url, clock=None, timeout=1)
    assert "cret" not in str(told.value)


def test_the_url_names_database_and_collection() -> None:
    settings = parse("mongodb://me:secret@a:1,b:2/data?replicaSet=rs&namespace=L0CK")
    assert (settings.database, settings.collection, settings.hosts) == ("data", "L0CK", "a:1,b:2")
    assert settings.url == "mongodb://me:secret@a:1,b:2/data?replicaSet=rs"
    assert parse("mongodb://a").database == parse("mongodb://a").collection == "solely"
    assert parse("mongodb+srv://me:secret@cluster.example/data").hosts == "cluster.example"


def test_a_password_is_never_shown() -> None:
    url = "mongodb://me:sesame@127.0.0.1:1/data"
    looped = BlockingAdapter(lambda: open_async(url, clock=None, timeout=SOON))
    try:
        for store in (open_blocking(url, clock=None, timeout=SOON), looped):
            with closing(store), pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1") as told:
                store.perform([Read("lock/a")])
            assert "sesame" not in f"{told.value!r} {told.value} {store!r}"
        assert "sesame" not in f"{parse(url)!r} {parse(url)} {looped._store!r}"
    finally:
        looped.stop()


# -- text is only text

HOSTILE = ["$owner", "$$now", "$$ROOT", "$", "a.b", '{"$gt": ""}', "{$ne: null}", "'; return true; //", "$literal"]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("company", [[], [Mark("mark/company", "o", 1)]], ids=["alone", "as one of many"])
def test_no_text_becomes_an_operator_or_a_field(url: str, text: str, company: list[Op]) -> None:
    with closing(open_blocking(url, clock=None, timeout=TIMEOUT)) as store:

        def ask(op: Op) -> Any:
            return store.perform([op, *company])[0]

        key = f"claim/{text}"
        entry = ask(Acquire(key, text, 100, info=text, fingerprint=text))
        assert (entry.key, entry.owner, entry.info, entry.fingerprint) == (key, text, text, text)
        assert ask(Acquire(key, "x", 10, client=text)).waiters == 1
        assert ask(Finish(key, text, b"b" + text.encode(), 100)).value == b"b" + text.encode()
        assert ask(Clear(key, entry.fence, text)) is True
        assert ask(Mark(f"mark/{text}", text, 100)) is True
        assert ask(Hit(f"limit/{text}", text, 1, 100)).allowed
        assert ask(Push(text, text, b"$")) is True
        item = ask(Take(text, text, 100))
        assert (item.id, item.payload) == (text, b"$")
        assert ask(Read(item_key(text, text))).state is State.HELD
        assert ask(Ack(text, text, text)) is True


def test_a_limit_beyond_what_a_document_should_hold_is_refused_and_harms_no_neighbour(store: MongoStore) -> None:
    replies = store.perform([Hit("limit/big", "o", MAX_LIMIT + 1, 1), Hit("limit/small", "o", MAX_LIMIT, 1)])
    assert isinstance(replies[0], StoreFailed)
    assert str(MAX_LIMIT) in str(replies[0])
    assert replies[1] == (True, 1, 0.0)


# -- what is sent


class Sent(CommandListener):
    """Remembers the commands that a client of pymongo sends."""

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def started(self, event: Any) -> None:
        self.commands.append(event.command)

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass

    def names(self) -> list[str]:
        return [next(iter(command)) for command in self.commands]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[tuple[MongoStore, Sent]]:
    """A store that is prepared, and what it sends from then on."""
    sent = Sent()
    monkeypatch.setattr(
        "solely.stores.mongo.blocking.MongoClient",
        lambda *args, **kwargs: MongoClient(*args, event_listeners=[sent], **kwargs),
    )
    with closing(open_blocking(url, clock=None, timeout=TIMEOUT)) as store:
        store.perform([Read("lock/a")])
        sent.commands.clear()
        yield store, sent


def test_an_op_alone_is_one_command_and_many_are_two(monkeypatch: pytest.MonkeyPatch, set_url: str) -> None:
    with watched(monkeypatch, set_url) as (store, sent):
        one(store, Acquire("lock/a", "o", 10))
        assert one(store, Release("lock/a", "o")) is Released.RELEASED
        one(store, Mark("mark/a", "o", 10))
        assert sent.names() == ["findAndModify", "update", "findAndModify"]
        sent.commands.clear()
        entries = store.perform([Acquire(f"lock/{n}", "o", 10) for n in range(100)])
        assert [entry.owner for entry in entries if isinstance(entry, Entry)] == ["o"] * 100
        assert sent.names() == ["update", "find"]
        sent.commands.clear()
        assert store.perform([Mark(f"mark/{n}", "o", 10) for n in range(100)]) == [True] * 100
        assert sent.names() == ["update"]


@pytest.mark.parametrize("company", [[], [Mark("mark/company", "o", 1)]], ids=["alone", "as one of many"])
def test_a_holder_who_renewed_while_another_waits_releases_in_one_command(
    monkeypatch: pytest.MonkeyPatch, set_url: str, company: list[Op]
) -> None:
    """The cheap release of a key for which nobody waits would be tried in vain, and the waiter woken later."""
    with (
        watched(monkeypatch, set_url) as (store, sent),
        closing(open_blocking(set_url, clock=None, timeout=5)) as other,
    ):
        one(store, Acquire("lock/a", "o", 10))
        one(other, Acquire("lock/a", "p", 10, client=other.client))
        store.perform([Renew("lock/a", "o", 10), *company])
        sent.commands.clear()
        assert one(store, Release("lock/a", "o")) is Released.RELEASED
        assert [name for name in sent.names() if name != "getMore"] == ["findAndModify"]  # that one is of who waits


def test_every_write_waits_for_the_journal_of_a_majority_and_sends_no_time(
    monkeypatch: pytest.MonkeyPatch, set_url: str
) -> None:
    with watched(monkeypatch, set_url) as (store, sent):
        ops: list[Op] = [Acquire("lock/a", "o", 10), Mark("mark/b", "o", 10)]
        store.perform(ops[:1])
        store.perform(ops)
        store.perform([Release("lock/a", "o")])
        writes = [command for command in sent.commands if "find" not in command]
        assert len(writes) == 3
        for command in writes:
            assert command["writeConcern"]["w"] == "majority"
            assert command["writeConcern"]["j"] is True
            assert "txnNumber" not in command  # pymongo would repeat it by itself
            assert command["let"]["now"] == {"$multiply": [{"$toLong": "$$NOW"}, 1000]}
        for command in sent.commands:
            if "find" in command:
                assert command["readConcern"]["level"] == "majority"


def test_a_refused_acquire_writes_nothing(replica_set: Mongod, set_url: str, store: MongoStore) -> None:
    store.perform([Acquire("lock/a", "holder", 10), Mark("mark/a", "holder", 10)])
    collection = documents(replica_set, set_url)
    oplog = collection.database.client.local["oplog.rs"]
    before, written = list(collection.find()), oplog.count_documents({"ns": collection.full_name})
    for _ in range(3):
        assert one(store, Acquire("lock/a", "other", 10)).owner == ""
        store.perform([Acquire("lock/a", "other", 10), Renew("lock/a", "other", 10), Mark("mark/a", "other", 10)])
    assert list(collection.find()) == before
    assert oplog.count_documents({"ns": collection.full_name}) == written
    collection.database.client.close()


def test_ops_of_a_batch_are_side_by_side_unless_they_meet() -> None:
    ops: list[Op] = [
        Acquire("lock/a", "o", 1),  # 0
        Acquire("lock/b", "o", 1),  # 0
        Release("lock/a", "o"),  # 1
        Push("q", "1", b""),  # 0
        Push("q", "2", b""),  # 0
        Take("q", "o", 1),  # 1, after all pushes
        Ack("q", "1", "o"),  # 2, after the take
        Read(item_key("q", "2")),  # 2
        Take("q", "p", 1),  # 3
        Push("r", "1", b""),  # 0, another queue
    ]
    assert levels(ops) == [[0, 1, 3, 4, 9], [2, 5], [6, 7], [8]]


def test_a_take_finds_its_item_by_index(replica_set: Mongod, set_url: str, store: MongoStore) -> None:
    store.perform([Push("q", f"{n}", b"", delay=100) for n in range(300)])
    store.perform([Push("q", "now", b"")])
    command, _ = store._commands.alone(Take("q", "o", 10))
    planned = {name: part for name, part in command.items() if name != "writeConcern"}
    collection = documents(replica_set, set_url)
    explained = collection.database.command({"explain": planned, "verbosity": "executionStats"})
    assert explained["executionStats"]["totalKeysExamined"] <= 2
    assert "solely_queue" in str(explained["queryPlanner"]["winningPlan"])
    collection.database.client.close()


def test_a_batch_that_exceeds_one_command_is_performed_whole(store: MongoStore) -> None:
    keys = [fresh("claim/large") for _ in range(70)]
    value = b"b" + os.urandom(256 * 1024)
    store.perform([Acquire(key, "o", 100) for key in keys])
    replies = store.perform([Finish(key, "o", value, 100) for key in keys])
    assert [isinstance(reply, Entry) and reply.value == value for reply in replies] == [True] * 70
    again = store.perform([Read(key) for key in keys])
    assert [isinstance(reply, Entry) and reply.value == value for reply in again] == [True] * 70
    assert len(store.scan("claim/large", "", 100)) == 70


# -- races


@pytest.mark.parametrize("alone", [True, False])
def test_of_many_who_make_a_key_at_once_one_gets_it(url: str, alone: bool) -> None:
    stores = [open_blocking(url, clock=None, timeout=TIMEOUT) for _ in range(6)]
    started, granted = threading.Barrier(len(stores)), list[tuple[str, str]]()
    keys = [fresh("lock/race") for _ in range(20)]
    marks = [key.replace("lock/", "mark/") for key in keys]

    def compete(store: MongoStore, owner: str) -> None:
        for key, mark in zip(keys, marks, strict=True):
            started.wait(TIMEOUT * 2)
            ops: list[Op] = [Acquire(key, owner, 100)] if alone else [Acquire(key, owner, 100), Mark(mark, owner, 9)]
            for op, reply in zip(ops, store.perform(ops), strict=True):
                if reply is True or (isinstance(reply, Entry) and reply.owner == owner):
                    granted.append((op.key, owner))  # type: ignore[union-attr]

    threads = [threading.Thread(target=compete, args=(store, f"o{n}")) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sorted(key for key, _ in granted) == sorted(keys if alone else [*keys, *marks])


def test_an_item_is_taken_once(url: str) -> None:
    stores = [open_blocking(url, clock=None, timeout=TIMEOUT) for _ in range(4)]
    stores[0].perform([Push("q", f"{n:02}", b"") for n in range(40)])
    taken = list[str]()

    def drain(store: MongoStore) -> None:
        while (item := one(store, Take("q", fresh("owner"), 100))) is not None:
            taken.append(item.id)

    threads = [threading.Thread(target=drain, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sorted(taken) == [f"{n:02}" for n in range(40)]


# -- fences and the broom


def test_a_released_key_keeps_its_fence_and_the_clock_takes_over_when_the_broom_was_there(
    replica_set: Mongod, set_url: str
) -> None:
    clock = ManualClock()
    collection = documents(replica_set, set_url)
    with closing(open_blocking(set_url, clock=clock, timeout=TIMEOUT)) as store:
        fences = []
        for _ in range(3):  # at one instant of the clock
            fences.append(one(store, Acquire("lock/a", "o", 10)).fence)
            one(store, Release("lock/a", "o"))
        assert fences == sorted(set(fences))
        collection.delete_one({"_id": "lock/a"})
        clock.advance(0.001)
        assert one(store, Acquire("lock/a", "o", 10)).fence > fences[-1]
    collection.database.client.close()


@pytest.mark.parametrize("quickly", [True, False])
def test_the_broom_comes_late_and_never_before_the_clock_has_passed_the_fence(
    replica_set: Mongod, set_url: str, store: MongoStore, quickly: bool
) -> None:
    def acquire(key: str) -> None:
        ops: list[Op] = [Acquire(key, "o", 600), Mark("mark/b", "o", 600)]
        store.perform(ops[:1] if quickly else ops)

    def hours_left(key: str) -> float:
        return float(collection.find_one({"_id": key})["purge"].timestamp() - time.time()) / 3600

    collection = documents(replica_set, set_url)
    acquire("lock/a")
    assert 1 < hours_left("lock/a") < 3.5
    one(store, Release("lock/a", "o"))
    assert 1 < hours_left("lock/a") < 3.5
    ahead = time.time() + 100 * 3600  # as if the clock had been set back
    collection.insert_one({"_id": "lock/ahead", "fence": int(ahead * 1e6), "forget": 0})
    acquire("lock/ahead")
    assert one(store, Read("lock/ahead")).fence > ahead * 1e6
    assert 100.9 < hours_left("lock/ahead") < 103
    store.perform([Push("q", "1", b"")])
    assert "purge" not in collection.find_one({"_id": item_key("q", "1")})
    collection.database.client.close()


def test_the_indexes_are_made_at_the_first_op(replica_set: Mongod, set_url: str, store: MongoStore) -> None:
    assert "missing indexes" in _text(store.check())
    one(store, Read("lock/a"))
    collection = documents(replica_set, set_url)
    indexes = collection.index_information()
    assert indexes["solely_purge"]["expireAfterSeconds"] == 0
    assert indexes["solely_queue"]["key"][0] == ("queue", 1)
    assert "missing indexes" not in _text(store.check())
    collection.database.client.close()


def _text(findings: list[Finding]) -> str:
    return "\n".join(f"{finding.level}: {finding.text}" for finding in findings)


def test_check_tells_version_members_clock_and_concern(url: str) -> None:
    with closing(open_blocking(url, clock=None, timeout=TIMEOUT)) as store:
        one(store, Read("lock/a"))
        text = _text(store.check())
    assert "MongoDB " in text
    assert "clock differs" in text
    assert "w: majority, j: true" in text
    assert ("replica set solely of 1" in text) != ("warning: stands alone" in text)


def test_check_tells_the_clock_right_wherever_the_client_is(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert "warning: its clock differs" not in _text(store.check())
    finally:
        monkeypatch.undo()
        time.tzset()


# -- hints


def test_a_client_far_away_is_told_through_a_change_stream(set_url: str) -> None:
    here, there = (open_blocking(set_url, clock=None, timeout=TIMEOUT) for _ in range(2))
    ear = HintRecorder()
    there.listen(ear)
    polled = there.polls
    for way in ("release", "finish"):
        key = fresh("claim/far")
        one(here, Acquire(key, "holder", 10))
        one(there, Acquire(key, "a", 10, client=there.client))
        assert (polled, there.polls) == (True, False)
        one(here, Release(key, "holder") if way == "release" else Finish(key, "holder", b"b", 10))
        assert ear.received(key)
    here.close()
    there.close()


def test_a_server_that_stands_alone_is_polled(standalone: Mongod) -> None:
    with closing(open_blocking(in_collection(standalone.url_of("solely")), clock=None, timeout=TIMEOUT)) as store:
        one(store, Acquire("lock/a", "o", 10))
        one(store, Acquire("lock/a", "p", 10, client=store.client))
        assert store.polls
        assert store._listener.unavailable


# -- outages, each a clear error and never a grant


@pytest.mark.parametrize(
    ("fault", "expected", "cause"),
    [
        ({"closeConnection": True}, Unanswered, "no answer"),
        ({"errorCode": 10107}, StoreUnavailable, "not the primary"),
        ({"errorCode": 11602}, Unanswered, "no longer the primary"),
        ({"errorCode": 91}, Unanswered, "shutting down"),
        ({"errorCode": 14031}, StoreFull, "disk is full"),
        ({"errorCode": 13}, StoreDenied, "readWrite"),
        ({"errorCode": 50}, Unanswered, "longer than the timeout"),
        ({"errorCode": 112}, StoreUnavailable, "nothing was performed"),
        ({"writeConcernError": {"code": 64, "errmsg": "timed out"}}, Unanswered, "majority has not confirmed"),
        ({"writeConcernError": {"code": 100, "errmsg": "not enough"}}, StoreMisconfigured, "not enough members"),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_each_failure_of_the_server_is_named(
    replica_set: Mongod, store: MongoStore, fault: dict[str, Any], expected: type[StoreError], cause: str, many: bool
) -> None:
    one(store, Read("lock/a"))
    ops: list[Op] = [Acquire("lock/a", "o", 10), *([Mark("mark/a", "o", 10)] if many else [])]
    with replica_set.failing("findAndModify", "update", **fault):
        try:
            (told, *_) = store.perform(ops)
        except StoreError as error:
            told = error
    assert type(told) is expected
    assert cause in str(told)
    if "errorCode" in fault:
        assert one(store, Read("lock/a")).state is State.FREE  # it was no grant
    store.perform([Release("lock/a", "o", revoke=True)])
    assert one(store, Acquire("lock/a", "p", 10)).owner == "p"


def test_a_failure_after_a_part_was_performed_leaves_the_batch_unanswered(
    replica_set: Mongod, store: MongoStore
) -> None:
    one(store, Read("lock/a"))
    with replica_set.failing("find", errorCode=10107), pytest.raises(Unanswered):
        store.perform([Acquire("lock/a", "o", 10), Acquire("lock/b", "o", 10)])
    entries = store.perform([Acquire("lock/a", "o", 10), Acquire("lock/b", "o", 10)])
    assert [isinstance(entry, Entry) and entry.owner for entry in entries] == ["o", "o"]


def test_a_document_that_is_too_large_is_refused(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solely.stores.mongo.batch.check_ops", lambda ops: None)  # which refuses it before
    one(store, Acquire("claim/huge", "o", 10))
    with pytest.raises(StoreFailed, match="16 MiB"):
        one(store, Finish("claim/huge", "o", b"x" * (17 * 1024 * 1024), 10))
    assert one(store, Renew("claim/huge", "o", 10)).owner == "o"


def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    with (
        closing(open_blocking(f"mongodb://127.0.0.1:{free_port()}/x", clock=None, timeout=SOON)) as store,
        pytest.raises(StoreUnavailable, match="cannot be reached") as told,
    ):
        store.perform([Acquire("lock/a", "o", 10)])
    assert not isinstance(told.value, Unanswered)


def test_wrong_password_and_missing_rights_are_named_and_grant_nothing() -> None:
    with Mongod(auth=True) as server:
        with server.mongo() as first:  # whoever comes first from this host may make the first user
            first.admin.command("createUser", "admin", pwd="a", roles=["root"])
        with server.mongo(username="admin", password="a") as admin:
            admin.solely.command("createUser", "reader", pwd="r", roles=["read"])
            admin.solely.command("createUser", "writer", pwd="w", roles=["readWrite"])
        cases = {"writer:w@": None, "writer:wrong@": "refuses the login", "reader:r@": "role readWrite", "": "role"}
        for login, cause in cases.items():
            url = server.url_of("solely", login)
            with closing(open_blocking(url, clock=None, timeout=TIMEOUT)) as store:
                if cause is None:
                    assert one(store, Acquire("lock/a", "o", 10)).owner == "o"
                    continue
                ops: list[Op] = [Mark("mark/b", "o", 10), Acquire("lock/b", "o", 10)]
                for reply in (*store.perform(ops[1:]), *store.perform(ops)):
                    assert isinstance(reply, StoreMisconfigured)
                    assert cause in str(reply)


def test_a_step_down_is_survived() -> None:
    with Mongod(replica_set=True) as server, closing(open_blocking(server.url, clock=None, timeout=1)) as store:
        fence = one(store, Acquire("lock/a", "o", 100)).fence
        server.step_down()
        ends, told = time.monotonic() + 30, list[StoreError]()
        while time.monotonic() < ends:
            try:
                again = one(store, Acquire("lock/a", "o", 100))
                break
            except StoreUnavailable as error:
                told.append(error)
        assert (again.owner, again.fence) == ("o", fence)
        assert all("solely" in str(error) for error in told)


def test_a_paused_server_leaves_it_unanswered_and_is_used_again_when_it_goes_on() -> None:
    with Mongod() as server, closing(open_blocking(server.url, clock=None, timeout=SOON)) as store:
        one(store, Acquire("lock/a", "o", 100))
        server.pause()
        began = time.monotonic()
        with pytest.raises(Unanswered):
            store.perform([Renew("lock/a", "o", 100)])
        assert time.monotonic() - began < 10 * SOON
        server.resume()
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            try:
                assert one(store, Renew("lock/a", "o", 100)).owner == "o"
                break
            except StoreUnavailable:
                continue
        else:
            pytest.fail("the server came back, the store did not")


@pytest.mark.parametrize("kind", [False, True])
def test_what_was_answered_survives_a_kill_and_fences_grow(kind: bool) -> None:
    with Mongod(replica_set=kind) as server, closing(open_blocking(server.url, clock=None, timeout=2)) as store:
        fences = [one(store, Acquire("lock/a", "o", 100)).fence]
        assert one(store, Mark("mark/a", "first", 1_000)) is True
        for _ in range(2):
            server.kill()
            with pytest.raises(StoreUnavailable):
                store.perform([Acquire("lock/b", "o", 10)])
            server.start()
            ends = time.monotonic() + 30
            while time.monotonic() < ends:
                try:
                    assert one(store, Renew("lock/a", "o", 100)).owner == "o"
                    break
                except StoreUnavailable:
                    continue
            assert one(store, Mark("mark/a", "second", 1_000)) is False
            one(store, Release("lock/a", "o"))
            fences.append(one(store, Acquire("lock/a", "o", 100)).fence)
        assert fences == sorted(set(fences))


# -- transactions


def test_a_mark_and_the_callers_document_commit_or_abort_together(
    replica_set: Mongod, set_url: str, store: MongoStore
) -> None:
    with MongoClient[dict[str, Any]](replica_set.url) as mongo:
        orders = mongo["solely"][fresh("orders")]
        orders.create_index("n")
        for attempt, (commits, first) in enumerate([(False, True), (True, True), (True, False)]):
            with mongo.start_session() as session:
                session.start_transaction()
                assert store.perform_within(session, [Mark("mark/order", f"o{attempt}", 100)]) == [first]
                orders.insert_one({"n": attempt}, session=session)
                assert one(store, Read("mark/order")).state is (State.FREE if attempt < 2 else State.DONE)
                session.commit_transaction() if commits else session.abort_transaction()
            assert orders.count_documents({"n": attempt}) == int(commits)
            assert one(store, Read("mark/order")).state is (State.DONE if commits else State.FREE)


def test_many_ops_can_stand_in_one_transaction(replica_set: Mongod, store: MongoStore) -> None:
    ops: list[Op] = [*(Mark(f"mark/{n}", "o", 100) for n in range(10)), Acquire("lock/a", "o", 10), Push("q", "1", b"")]
    with MongoClient[dict[str, Any]](replica_set.url) as mongo, mongo.start_session() as session:
        with session.start_transaction():
            replies = store.perform_within(session, [*ops, Take("q", "o", 10), Release("lock/a", "o")])
        assert replies[:10] == [True] * 10
        assert replies[-1] is Released.RELEASED
    assert one(store, Mark("mark/3", "p", 100)) is False
    assert one(store, Read(item_key("q", "1"))).state is State.HELD


def test_a_conflict_aborts_the_transaction_and_says_so(replica_set: Mongod, store: MongoStore) -> None:
    with (
        MongoClient[dict[str, Any]](replica_set.url) as mongo,
        mongo.start_session() as first,
        mongo.start_session() as second,
    ):
        first.start_transaction()
        second.start_transaction()
        one(store, Read("lock/a"))
        store.perform_within(first, [Mark("mark/known", "a", 100)])
        with pytest.raises(StoreUnavailable, match="run it again") as told:
            store.perform_within(second, [Mark("mark/known", "b", 100)])
        assert not isinstance(told.value, Unanswered)
        first.commit_transaction()
        second.abort_transaction()
    assert one(store, Mark("mark/known", "a", 100)) is True


def test_an_op_outside_waits_for_an_open_transaction_only_as_long_as_its_timeout(replica_set: Mongod) -> None:
    url = in_collection(replica_set.url_of("solely"))
    with (
        closing(open_blocking(url, clock=None, timeout=SOON)) as store,
        MongoClient[dict[str, Any]](replica_set.url) as mongo,
        mongo.start_session() as session,
    ):
        one(store, Acquire("lock/a", "before", 100))
        session.start_transaction()
        store.perform_within(session, [Release("lock/a", "before")])
        with pytest.raises(Unanswered):
            store.perform([Acquire("lock/a", "o", 10, client="c")])
        assert one(store, Acquire("lock/b", "o", 10)).owner == "o"  # strangers are not held up
        session.commit_transaction()
        assert one(store, Acquire("lock/a", "o", 10)).owner == "o"


def test_a_transaction_needs_a_replica_set_and_a_beginning(standalone: Mongod, store: MongoStore) -> None:
    url = in_collection(standalone.url_of("solely"))
    with (
        closing(open_blocking(url, clock=None, timeout=TIMEOUT)) as alone,
        MongoClient[dict[str, Any]](standalone.url) as mongo,
        mongo.start_session() as session,
    ):
        with pytest.raises(InvalidInput, match="no transaction"):
            alone.perform_within(session, [Mark("mark/a", "o", 10)])
        session.start_transaction()
        with pytest.raises(StoreMisconfigured, match="stands alone"):
            alone.perform_within(session, [Mark("mark/a", "o", 10)])
        session.abort_transaction()


def test_the_same_in_asyncio(set_url: str, replica_set: Mongod) -> None:
    async def main() -> None:
        store = open_async(set_url, clock=None, timeout=TIMEOUT)
        async with AsyncMongoClient[dict[str, Any]](replica_set.url) as mongo, mongo.start_session() as session:
            for commits in (False, True):
                await session.start_transaction()
                assert await store.perform_within(session, [Mark("mark/a", "o", 100), Mark("mark/b", "o", 100)]) == [
                    True,
                    True,
                ]
                await (session.commit_transaction() if commits else session.abort_transaction())
                (entry,) = await store.perform([Read("mark/a")])
                assert isinstance(entry, Entry)
                assert entry.state is (State.DONE if commits else State.FREE)
        await store.close()

    asyncio.run(main())


# -- cancellation, closing, fork


def test_nobodys_cancellation_stops_a_batch_or_spoils_a_connection(set_url: str) -> None:
    async def main() -> None:
        store = open_async(set_url, clock=None, timeout=TIMEOUT)
        await store.perform([Read("lock/a")])
        for n in range(30):
            waiting = asyncio.ensure_future(store.perform([Acquire(f"lock/{n}", "o", 100)]))
            await asyncio.sleep(n * 0.0002)
            waiting.cancel()
        for n in range(30):
            (entry,) = await store.perform([Acquire(f"lock/{n}", "o", 100)])
            assert isinstance(entry, Entry)
            assert (entry.key, entry.owner, entry.attempts) == (f"lock/{n}", "o", 1)
        await store.close()
        with pytest.raises(ClientClosed):
            await store.perform([Read("lock/a")])

    asyncio.run(main())


def test_a_closed_store_says_so(set_url: str) -> None:
    store = open_blocking(set_url, clock=None, timeout=TIMEOUT)
    one(store, Read("lock/a"))
    store.close()
    with pytest.raises(ClientClosed):
        store.perform([Read("lock/a")])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12 on: threads and fork
def test_a_forked_child_opens_its_own_connections(set_url: str) -> None:
    with closing(open_blocking(set_url, clock=None, timeout=TIMEOUT)) as store:
        parent = store.client
        one(store, Acquire("lock/a", "o", 100))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.forked()
                granted = one(store, Acquire("lock/child", "c", 100)).owner == "c"
                code = 0 if granted and store.client != parent else 2
                store.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert one(store, Renew("lock/a", "o", 100)).owner == "o"
        assert one(store, Acquire("lock/child", "o", 1)).owner == ""


def test_errors_of_pymongo_that_no_server_here_gives_are_told_apart() -> None:
    told = explain("mongodb://h/d", NotPrimaryError("x", {"code": 189, "errmsg": "stepped down"}))
    assert type(told) is Unanswered
    assert type(explain("mongodb://h/d", ConnectionFailure("x"))) is Unanswered
    assert type(explain("mongodb://h/d", pymongo.errors.WaitQueueTimeoutError("x"))) is StoreUnavailable
    assert type(explain("mongodb://h/d", pymongo.errors.ConfigurationError("x"))) is StoreMisconfigured
    assert type(explain("mongodb://h/d", pymongo.errors.PyMongoError("x"))) is StoreFailed


def test_items_of_one_batch_are_taken_in_the_order_in_which_they_were_pushed() -> None:
    """A second item must not overtake one whose id has to be acked first (found by the state machine)."""
    batch: list[Op] = [Push("q", "i", b""), Ack("q", "i", "o"), Push("q", "i", b""), Push("q", "j", b"")]
    order = {place: level for level, places in enumerate(levels(batch)) for place in places}
    assert order[2] <= order[3]
