"""Guards refuse a stale holder at the resource: the zombie's story with real processes, and each guard under races."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
import re
import secrets
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pymongo
import pytest
import redis
import redis.asyncio
from bson.regex import Regex
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

import solely
from solely import Busy, Client, InvalidInput, MissingExtra, StaleFence, StoreFailed, StoreUnavailable
from solely.fencing import (
    HEADER,
    AsyncFencedRedis,
    BlockingStoreFenceBook,
    FenceBook,
    FencedFile,
    FencedRedis,
    FenceMiddleware,
    MemoryFenceBook,
    StoreFenceBook,
    condition,
    create_fences,
    create_fences_async,
    fenced,
    fenced_update,
    fenced_update_async,
    guard,
    guard_async,
    headers,
    with_fence,
)
from solely.fencing.order import encoded
from solely.fencing.redis import fence_key
from solely.formats import MAX_FENCE
from solely.stores import open_async_store, open_store
from tests.client.worker import Worker, WorkerError
from tests.conftest import STORES
from tests.postgres_server import Postgres
from tests.servers import Valkey, ValkeyCluster, until
from tests.test_docs import blocks

POSTGRES = [name for name, store in (("postgres", "postgres"), ("debian_postgres", "postgres-15")) if store in STORES]
MONGO = ["replica_set"] if "mongo" in STORES else []
THREADS = 4
WRITES = 25


def own_schema(server: Postgres) -> str:
    """How psycopg reaches a schema that no other test uses."""
    schema = f"t{secrets.token_hex(6)}"
    server.ask(f"CREATE SCHEMA {schema}")
    return psycopg.conninfo.make_conninfo(server.conninfo(), options=f"-csearch_path={schema} -clock_timeout=10s")


def race(write: Callable[[int, int], None]) -> int:
    """Each thread calls write(thread, fence) with fences that mostly grow; answers the greatest one offered."""
    offered: list[int] = []

    def run(thread: int) -> None:
        chance = random.Random(thread)
        for turn in range(WRITES):
            fence = 1 + turn + chance.randrange(10)
            offered.append(fence)
            with suppress(StaleFence):
                write(thread, fence)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(run, range(THREADS)))
    return max(offered)


def check_history(history: list[int], greatest: int) -> None:
    """What was let in came in the order of its fences, and the greatest came in."""
    assert history == sorted(history)
    assert history[-1] == greatest


# -- the zombie


class Scene(NamedTuple):
    """A resource: how a worker reaches it, how it writes who it is, without and with a guard, and what stands there."""

    prepare: str
    unguarded: str
    guarded: str
    content: Callable[[], str]


def file_scene(request: pytest.FixtureRequest) -> Scene:
    path = request.getfixturevalue("tmp_path") / "report"
    return Scene(
        f"path = {str(path)!r}; from solely.fencing import FencedFile",
        "file = open(path, 'w'); file.write(me); file.close()",
        "FencedFile(path).write(me.encode(), fence=lease.fence)",
        path.read_text,
    )


def sqlite_scene(request: pytest.FixtureRequest) -> Scene:
    path = request.getfixturevalue("tmp_path") / "app.db"
    with closing(sqlite3.connect(path)) as database, database:
        create_fences(database)
        database.execute("CREATE TABLE report AS SELECT '' AS author")

    def content() -> str:
        with closing(sqlite3.connect(path)) as database:
            return str(database.execute("SELECT author FROM report").fetchone()[0])

    return Scene(
        f"import sqlite3; from solely.fencing import guard; database = sqlite3.connect({str(path)!r})",
        "database.execute('UPDATE report SET author = ?', (me,)); database.commit()",
        "with database:\n    guard(database, 'report', lease.fence)\n"
        "    database.execute('UPDATE report SET author = ?', (me,))",
        content,
    )


def postgres_scene(request: pytest.FixtureRequest) -> Scene:
    info = own_schema(request.getfixturevalue(POSTGRES[0]))
    with psycopg.connect(info) as connection:
        create_fences(connection)
        connection.execute("CREATE TABLE report AS SELECT '' AS author")

    def content() -> str:
        with psycopg.connect(info) as connection:
            return "".join(connection.execute("SELECT author FROM report").fetchone() or ())

    return Scene(
        f"import psycopg; from solely.fencing import guard; database = psycopg.connect({info!r})",
        "database.execute('UPDATE report SET author = %s', (me,)); database.commit()",
        "with database.transaction():\n    guard(database, 'report', lease.fence)\n"
        "    database.execute('UPDATE report SET author = %s', (me,))",
        content,
    )


def redis_scene(request: pytest.FixtureRequest) -> Scene:
    server = request.getfixturevalue("valkey")
    key = secrets.token_hex(6)
    return Scene(
        f"import redis; from solely.fencing import FencedRedis; database = redis.Redis.from_url({server.url!r})",
        f"database.set({key!r}, me)",
        f"FencedRedis(database).set({key!r}, me, fence=lease.fence)",
        lambda: str(server.ask("GET", key)),
    )


def mongo_scene(request: pytest.FixtureRequest) -> Scene:
    server = request.getfixturevalue("replica_set")
    name = f"t{secrets.token_hex(6)}"

    def content() -> str:
        with server.mongo() as client:
            return str(client.solely[name].find_one()["author"])

    return Scene(
        "import pymongo; from solely.fencing import fenced_update; "
        f"database = pymongo.MongoClient({server.url!r}).solely[{name!r}]",
        "database.update_one({'_id': 1}, {'$set': {'author': me}}, upsert=True)",
        "fenced_update(database, {'_id': 1}, {'$set': {'author': me}}, fence=lease.fence, upsert=True)",
        content,
    )


def http_scene(request: pytest.FixtureRequest) -> Scene:
    written: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        written.append((await receive())["body"].decode())
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    address = request.getfixturevalue("serve")(FenceMiddleware(app, book=MemoryFenceBook()))
    put = f"urlopen(Request({address!r} + '/report', me.encode(), HEADERS, method='PUT')).close()"
    return Scene(
        "from urllib.request import Request, urlopen; from solely.fencing import headers",
        put.replace("HEADERS", "{}"),
        put.replace("HEADERS", "headers(lease)"),
        lambda: written[-1],
    )


SCENES: dict[str, Callable[[pytest.FixtureRequest], Scene]] = {
    "file": file_scene,
    "sqlite": sqlite_scene,
    "redis": redis_scene,
    "http": http_scene,
}
if POSTGRES:
    SCENES["postgres"] = postgres_scene
if "mongo" in STORES:
    SCENES["mongo"] = mongo_scene


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serves an ASGI application to HTTP clients on loopback, and answers its address."""
    with ExitStack() as stack:

        def start(app: Any) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_PUT(self) -> None:
                    asyncio.run(self._serve(self.rfile.read(int(self.headers["Content-Length"]))))

                async def _serve(self, body: bytes) -> None:
                    names = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
                    scope = {"type": "http", "method": self.command, "path": self.path, "headers": names}

                    async def receive() -> Any:
                        return {"type": "http.request", "body": body}

                    async def send(message: Any) -> None:
                        if message["type"] == "http.response.start":
                            self.send_response(message["status"])
                            for name, value in message["headers"]:
                                self.send_header(name.decode(), value.decode())
                            self.end_headers()
                        else:
                            self.wfile.write(message["body"])

                    await app(scope, receive, send)

                def log_message(self, *_: object) -> None:
                    pass

            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("guarded", [False, True], ids=["unguarded", "guarded"])
def test_a_holder_that_was_paused_between_its_check_and_its_write(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, guarded: bool
) -> None:
    scene = SCENES[name](request)
    write = scene.guarded if guarded else scene.unguarded
    zombie, successor = (Worker(f"sqlite:///{tmp_path}/solely.db") for _ in range(2))
    try:
        for worker, me in ((zombie, "A"), (successor, "B")):
            worker.run(f"{scene.prepare}; import signal; me = {me!r}")
        zombie.run("lease = once.lock('report', ttl=1.5)")
        # It checks, is stopped at the worst moment, and goes on as if nothing had been.
        zombie.tell(f"lease.ensure(); os.kill(os.getpid(), signal.SIGSTOP)\n{write}")
        successor.run(f"lease = once.lock('report', ttl=30, wait=20)\n{write}")  # waits until the zombie's time is over
        assert scene.content() == "B"
        zombie.go_on()
        if guarded:
            with pytest.raises(WorkerError, match=r"^StaleFence|HTTP Error 409"):
                zombie.answer()
            assert scene.content() == "B"
            successor.run(write)  # the same holder may go on
        else:
            zombie.answer()
            assert scene.content() == "A"  # what B wrote, rightly, is lost
    finally:
        zombie.end()
        successor.end()


# -- what all guards share


def test_stale_fence_says_what_was_offered_and_what_is_there_and_survives_pickling(tmp_path: Path) -> None:
    file = FencedFile(tmp_path / "a")
    file.write(b"new", fence=9)
    with pytest.raises(StaleFence) as caught:
        file.write(b"old", fence=8)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (error.key, error.offered, error.stored) == (str(file.path), 8, 9)
        assert isinstance(error, solely.SolelyError)


@pytest.mark.parametrize("fence", [0, -1, MAX_FENCE + 1, True, 1.0, "7", None])
def test_what_cannot_be_a_fence_is_refused_before_anything_is_asked(tmp_path: Path, fence: Any) -> None:
    file = FencedFile(tmp_path / "a")
    with pytest.raises(InvalidInput, match="a fence is an int"):
        file.write(b"x", fence=fence)
    assert list(tmp_path.iterdir()) == []
    for call in (guard, lambda *_: fenced({}, fence), lambda *_: with_fence({}, fence)):
        with closing(sqlite3.connect(":memory:")) as database, pytest.raises(InvalidInput):
            call(database, "a", fence)


@given(st.lists(st.integers(1, MAX_FENCE), min_size=2, max_size=2))
def test_encoded_fences_sort_as_the_numbers_do(fences: list[int]) -> None:
    one, two = fences
    assert (encoded(one) < encoded(two)) == (one < two)


def test_importing_the_package_imports_no_driver_and_a_missing_one_is_named() -> None:
    code = (
        "import sys; sys.modules['pymongo'] = None\n"
        "import solely.fencing as fencing\n"
        "assert not {'redis', 'psycopg', 'sqlite3'} & set(sys.modules)\n"
        "fencing.FencedFile, fencing.guard, fencing.FencedRedis, fencing.FenceMiddleware\n"
        "assert not {'redis', 'psycopg'} & set(sys.modules)\n"
        "fencing.fenced\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stderr.splitlines()[-1].startswith(f"{MissingExtra.__module__}.MissingExtra")
    assert "pip install 'solely[mongo]'" in done.stderr
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        solely.fencing.nothing  # noqa: B018
    for name in solely.fencing.__all__:
        assert getattr(solely.fencing, name) is not None


# -- files


def test_a_file_takes_equal_and_greater_fences_and_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    file = FencedFile(tmp_path / "link")
    assert file.fence() == 0
    for fence, data in ((5, b"a"), (5, b"b"), (7, b"c")):
        file.write(data, fence=fence)
        assert (file.read(), file.fence()) == (data, fence)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"link", "real", "real.fence", "real.lock"}


def test_a_file_under_racing_threads(tmp_path: Path) -> None:
    file = FencedFile(tmp_path / "a")
    greatest = race(lambda _, fence: FencedFile(tmp_path / "a").write(b"%d" % fence * 1000, fence=fence))
    assert (file.read(), file.fence()) == (b"%d" % greatest * 1000, greatest)


def test_a_file_under_racing_processes(tmp_path: Path) -> None:
    workers = [Worker(f"sqlite:///{tmp_path}/solely.db") for _ in range(3)]
    body = (
        f"from solely.fencing import FencedFile; file = FencedFile({str(tmp_path / 'a')!r}); refused = 0\n"
        "for fence in range(first, 60, 3):\n"
        "    try: file.write(b'%d' % fence, fence=fence)\n"
        "    except solely.StaleFence as error:\n"
        "        refused += 1; assert error.stored > fence, error\n"
    )
    try:
        for first, worker in enumerate(workers, 1):
            worker.run(f"first = {first}")
        for worker in workers:
            worker.tell(body)
        for worker in workers:
            worker.answer()
    finally:
        for worker in workers:
            worker.end()
    assert (FencedFile(tmp_path / "a").read(), FencedFile(tmp_path / "a").fence()) == (b"59", 59)


KILLED_AT = """
import os, signal, sys
from solely.fencing import FencedFile
left = int(sys.argv[2])
def dying(perform):
    def call(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return perform(*arguments, **named)
    return call
for name in ("open", "fsync", "replace", "fchmod"):
    setattr(os, name, dying(getattr(os, name)))
FencedFile(sys.argv[1]).write(b"new" * 10_000, fence=6)
"""


def test_kill_9_at_every_step_of_a_write_leaves_a_whole_file_that_a_stale_holder_cannot_write(tmp_path: Path) -> None:
    outcomes = []
    for step in range(1, 30):
        path = tmp_path / str(step)
        file = FencedFile(path)
        file.write(b"old" * 10_000, fence=5)
        done = subprocess.run([sys.executable, "-c", KILLED_AT, path, str(step)], timeout=30)
        content, fence = file.read(), file.fence()
        outcomes.append((content[:3].decode(), fence))
        assert content in (b"old" * 10_000, b"new" * 10_000)
        assert fence == 6 or content[:3] == b"old"  # never new content under the old fence
        if fence == 6:
            with pytest.raises(StaleFence):
                file.write(b"zombie", fence=5)
        file.write(b"next", fence=7)  # the lock went with the process, and its drafts harm nobody
        assert (file.read(), file.fence()) == (b"next", 7)
        assert not list(tmp_path.glob("*.new"))
        if done.returncode == 0:
            break
    assert done.returncode == 0
    assert list(dict.fromkeys(outcomes)) == [("old", 5), ("old", 6), ("new", 6)]  # every stage was met


def test_a_file_in_the_hands_of_a_paused_writer_is_busy_and_not_waited_for_for_ever(tmp_path: Path) -> None:
    file = FencedFile(tmp_path / "a", wait=0.05)
    with file._locked(), pytest.raises(Busy, match=r"for 0\.05 s"):
        FencedFile(tmp_path / "a", wait=0.05).write(b"x", fence=1)
    file.write(b"x", fence=1)


def test_a_fence_file_that_another_program_wrote_fails_closed(tmp_path: Path) -> None:
    (tmp_path / "a.fence").write_text("hello")
    with pytest.raises(StoreFailed, match="holds no fence"):
        FencedFile(tmp_path / "a").write(b"x", fence=1)
    assert not (tmp_path / "a").exists()


# -- SQL


@pytest.fixture(params=POSTGRES)
def conninfo(request: pytest.FixtureRequest) -> str:
    """A database of its own with the table of fences and a history."""
    info = own_schema(request.getfixturevalue(request.param))
    with psycopg.connect(info) as connection:
        create_fences(connection)
        connection.execute("CREATE TABLE history AS SELECT '{}'::bigint[] AS fences")
    return info


def history_of(conninfo: str) -> list[int]:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("SELECT fences FROM history").fetchone()
        assert row is not None
        return list(row[0])


NOTE = "UPDATE history SET fences = fences || %s::bigint"


def test_postgres_transactions_come_in_the_order_of_their_fences(conninfo: str) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(conninfo)) for _ in range(THREADS)]

        def write(thread: int, fence: int) -> None:
            with connections[thread].transaction():
                guard(connections[thread], "a", fence)
                connections[thread].execute(NOTE, (fence,))

        greatest = race(write)
    check_history(history_of(conninfo), greatest)


async def test_postgres_transactions_of_asyncio_come_in_the_order_of_their_fences(conninfo: str) -> None:
    async def write(seed: int) -> int:
        chance, offered = random.Random(seed), []
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
            await create_fences_async(connection)
            for turn in range(WRITES):
                offered.append(1 + turn + chance.randrange(10))
                with suppress(StaleFence):
                    async with connection.transaction():
                        await guard_async(connection, "a", offered[-1])
                        await connection.execute(NOTE, (offered[-1],))
        return max(offered)

    greatest = max(await asyncio.gather(*(write(seed) for seed in range(THREADS))))
    check_history(history_of(conninfo), greatest)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_postgres_a_stale_holder_waits_for_the_open_transaction_and_judges_by_how_it_ended(
    conninfo: str, ending: str
) -> None:
    with psycopg.connect(conninfo) as later, psycopg.connect(conninfo) as zombie, ThreadPoolExecutor(1) as thread:
        with psycopg.connect(conninfo) as first:
            guard(first, "a", 4)
        guard(later, "a", 6)
        judged = thread.submit(guard, zombie, "a", 5)
        with psycopg.connect(conninfo, autocommit=True) as watch:
            waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            pid = zombie.info.backend_pid
            until(lambda: watch.execute(waits, (pid,)).fetchone() == (1,), "the stale holder's waiting")
        getattr(later, ending)()
        if ending == "commit":
            with pytest.raises(StaleFence) as caught:
                judged.result(10)
            assert (caught.value.key, caught.value.offered, caught.value.stored) == ("a", 5, 6)
        else:
            judged.result(10)
        zombie.rollback()


def test_postgres_above_read_committed_a_lost_race_is_the_servers_own_error(conninfo: str) -> None:
    with psycopg.connect(conninfo) as zombie, psycopg.connect(conninfo) as later:
        zombie.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        zombie.execute("SELECT 1")
        guard(later, "a", 6)
        later.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            guard(zombie, "a", 5)
        zombie.rollback()
        with pytest.raises(StaleFence):
            guard(zombie, "a", 5)
        zombie.rollback()


async def test_postgres_in_autocommit_there_is_nothing_to_guard(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        with pytest.raises(InvalidInput, match="autocommit"):
            guard(connection, "a", 5)
        with connection.transaction():
            guard(connection, "a", 5)
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as awaited:
        with pytest.raises(InvalidInput, match="autocommit"):
            await guard_async(awaited, "a", 5)
        async with awaited.transaction():
            with pytest.raises(StaleFence) as caught:
                await guard_async(awaited, "a", 4)
    assert caught.value.stored == 5


def test_postgres_many_can_make_the_table_at_once(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("DROP TABLE solely_fences")

    def make(_: int) -> None:
        with psycopg.connect(conninfo) as connection:
            create_fences(connection)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(make, range(THREADS)))
    with psycopg.connect(conninfo) as connection:
        guard(connection, "a", 5)


def test_postgres_condition_on_a_column_of_ones_own(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE accounts AS SELECT 7 AS id, 0 AS balance, NULL::bigint AS fence")
        update = "UPDATE accounts SET balance = %(balance)s, fence = %(fence)s WHERE id = 7 AND "
        update += condition("%(fence)s")
        changed = [connection.execute(update, {"balance": f, "fence": f}).rowcount for f in (5, 7, 6, 7)]
        assert changed == [1, 1, 0, 1]

        def write(_: int, fence: int) -> None:
            with psycopg.connect(conninfo) as other:
                other.execute(update, {"balance": fence, "fence": fence})

        greatest = race(write)
        assert connection.execute("SELECT balance, fence FROM accounts").fetchone() == (greatest, greatest)


def test_sqlite_transactions_come_in_the_order_of_their_fences(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        create_fences(database)
        database.execute("CREATE TABLE history (fence INTEGER)")

    def write(_: int, fence: int) -> None:
        with closing(sqlite3.connect(tmp_path / "a.db", timeout=30)) as database, database:
            guard(database, "a", fence)
            database.execute("INSERT INTO history VALUES (?)", (fence,))

    greatest = race(write)
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        check_history([fence for (fence,) in database.execute("SELECT fence FROM history ORDER BY rowid")], greatest)


@pytest.mark.parametrize("row_factory", [None, sqlite3.Row, lambda cursor, row: {"fence": row[0]}])
def test_sqlite_guard_rolls_back_with_the_callers_rows_and_needs_a_transaction(row_factory: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = row_factory
        create_fences(database)
        guard(database, "a", 6)
        assert database.in_transaction
        database.rollback()
        guard(database, "a", 5)
        database.commit()
        with pytest.raises(StaleFence) as caught:
            guard(database, "a", 4)
        assert caught.value.stored == 5
        database.rollback()
        database.isolation_level = None
        with pytest.raises(InvalidInput, match="autocommit"):
            guard(database, "a", 5)
        database.execute("BEGIN IMMEDIATE")
        guard(database, "a", 5)
        database.execute("COMMIT")


@pytest.mark.parametrize("resource", ["", "a\0b", "x" * 513, 7])
def test_what_cannot_be_the_name_of_a_resource(resource: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as database, pytest.raises(InvalidInput):
        guard(database, resource, 5)


# -- Redis


def test_redis_commands_come_in_the_order_of_their_fences(valkey: Valkey) -> None:
    key = secrets.token_hex(6)
    with redis.Redis.from_url(valkey.url) as client:
        guarded = FencedRedis(client)
        greatest = race(lambda _, fence: guarded.run("RPUSH", key, fence, fence=fence))
        check_history([int(fence) for fence in client.lrange(key, 0, -1)], greatest)


@pytest.mark.parametrize("decode", [False, True])
async def test_redis_set_hset_delete_and_what_a_stale_holder_is_told(valkey: Valkey, decode: bool) -> None:
    key, table = secrets.token_hex(6), secrets.token_hex(6)
    with redis.Redis.from_url(valkey.url, decode_responses=decode) as client:
        guarded = FencedRedis(client)
        client.script_flush()
        guarded.set(key, "a", fence=5)
        assert guarded.run("SET", key, "b", "NX", fence=5) is None
        assert guarded.hset(table, {"one": 1, "two": 2.5}, fence=7) == 2
        async with redis.asyncio.Redis.from_url(valkey.url, decode_responses=decode) as other:
            zombie = AsyncFencedRedis(other)
            await zombie.set(key, "b", fence=5)
            assert await zombie.hset(table, {"two": 3, "three": 3}, fence=7) == 1
            for write in (zombie.set(key, "z", fence=4), zombie.delete(table, fence=6)):
                with pytest.raises(StaleFence):
                    await write
            assert await zombie.delete(key, fence=5)
        assert not guarded.delete(key, fence=6)
        with pytest.raises(StaleFence) as caught:
            guarded.set(key, "back", fence=5)
        assert (caught.value.key, caught.value.offered, caught.value.stored) == (key, 5, 6)
        assert client.hlen(table) == 3
        assert not client.exists(key)
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            guarded.run("RPUSH", table, "x", fence=8)


async def test_redis_cluster_keeps_key_and_fence_in_one_slot(cluster: ValkeyCluster) -> None:
    node = cluster.nodes[0]
    keys = [f"plain-{number}" for number in range(8)] + [f"user:{{{number}}}:cart" for number in range(8)]
    with redis.RedisCluster(host=node.host, port=node.port) as client:
        guarded = FencedRedis(client)
        for key in keys:
            guarded.set(key, "b", fence=6)
            with pytest.raises(StaleFence):
                guarded.set(key, "a", fence=5)
    async with redis.asyncio.RedisCluster(host=node.host, port=node.port) as client:
        zombie = AsyncFencedRedis(client)
        for key in keys:
            with pytest.raises(StaleFence):
                await zombie.set(key, "a", fence=5)
            await zombie.set(key, "c", fence=6)
            assert await client.get(key) == b"c"


@given(st.sets(st.text(alphabet="{}ab:/#", min_size=1, max_size=8), min_size=2, max_size=2))
def test_redis_fence_keys_share_the_slot_and_never_meet(keys: set[str]) -> None:
    found = []
    for key in keys:
        try:
            found.append(fence_key(key))
        except InvalidInput:
            assert "}" in key
        else:
            assert key_slot(found[-1].encode()) == key_slot(key.encode())
    assert len(set(found)) == len(found)


# -- MongoDB


@pytest.fixture(params=MONGO)
def orders(request: pytest.FixtureRequest) -> Iterator[Any]:
    with pymongo.MongoClient[dict[str, Any]](request.getfixturevalue(request.param).url) as client:
        yield client.solely[f"t{secrets.token_hex(6)}"]


def test_mongo_updates_come_in_the_order_of_their_fences_and_make_one_document(orders: Any) -> None:
    def write(_: int, fence: int) -> None:
        fenced_update(orders, {"_id": 7}, {"$push": {"history": fence}}, fence=fence, upsert=True)

    greatest = race(write)
    (found,) = orders.find()
    check_history(found["history"], greatest)
    assert found["fence"] == greatest


async def test_mongo_updates_of_asyncio_race_to_insert_and_end_as_one_document(
    orders: Any, request: pytest.FixtureRequest
) -> None:
    async with pymongo.AsyncMongoClient[dict[str, Any]](request.getfixturevalue("replica_set").url) as client:
        awaited = client.solely[orders.name]
        for id in range(10):
            update = {"$inc": {"writes": 1}}
            writes = [fenced_update_async(awaited, {"_id": id}, update, fence=5, upsert=True) for _ in range(8)]
            results = await asyncio.gather(*writes)
            assert sum(result.upserted_id is not None for result in results) == 1
        with pytest.raises(StaleFence) as caught:
            await fenced_update_async(awaited, {"_id": 1}, update, fence=4, upsert=True)
        assert (caught.value.key, caught.value.offered, caught.value.stored) == ("1", 4, 5)
    assert [found["writes"] for found in orders.find()] == [8] * 10


def test_mongo_tells_a_stale_holder_from_a_document_that_is_not_there(orders: Any) -> None:
    set_paid = {"$set": {"state": "paid"}}
    assert fenced_update(orders, {"_id": 7}, set_paid, fence=5).matched_count == 0
    orders.insert_one({"_id": 7, "state": "new"})  # never written under a fence: let pass
    assert fenced_update(orders, {"state": "new"}, set_paid, fence=5).matched_count == 1
    assert fenced_update(orders, {"_id": 7}, [{"$set": {"state": "sent"}}], fence=6).modified_count == 1
    assert orders.find_one() == {"_id": 7, "state": "sent", "fence": 6}
    for upsert in (False, True):
        with pytest.raises(StaleFence):
            fenced_update(orders, {"_id": 7}, set_paid, fence=5, upsert=upsert)
    with pytest.raises(StaleFence):
        fenced_update(orders, {"state": "sent"}, set_paid, fence=5)
    found = orders.find_one_and_update(fenced({"_id": 7}, 5), with_fence(set_paid, 5))
    assert found is None
    assert orders.find_one() == {"_id": 7, "state": "sent", "fence": 6}


def test_mongo_an_upsert_without_a_plain_id_is_refused_and_a_strangers_duplicate_passed_on(orders: Any) -> None:
    for filter in ({}, {"number": 7}, {"_id": {"$in": [7]}}, {"_id": None}):
        with pytest.raises(InvalidInput, match="plain _id"):
            fenced_update(orders, filter, {"$set": {"a": 1}}, fence=5, upsert=True)
    orders.create_index("number", unique=True)
    orders.insert_one({"_id": 1, "number": 7})
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        fenced_update(orders, {"_id": 2}, {"$set": {"number": 7}}, fence=5, upsert=True)
    options: dict[str, Any] = {"array_filters": [{"part.ok": True}]}
    orders.update_one({"_id": 1}, {"$set": {"parts": [{"ok": True}, {"ok": False}]}})
    fenced_update(orders, {"_id": 1}, {"$set": {"parts.$[part].n": 1}}, fence=5, **options)
    with pytest.raises(StaleFence):
        fenced_update(orders, {"_id": 1}, {"$set": {"parts.$[part].n": 2}}, fence=4, **options)


def test_mongo_a_stale_upsert_in_a_transaction_is_refused_and_not_run_again(orders: Any) -> None:
    fenced_update(orders, {"_id": 7}, {"$set": {"author": "later"}}, fence=10, upsert=True)
    runs: list[int] = []

    def write(session: Any, id: int = 7, fence: int = 5, **more: Any) -> None:
        runs.append(fence)
        assert len(runs) < 20, "run again and again"
        filter, update = {"_id": id, **more}, {"$push": {"history": fence}}
        fenced_update(orders, filter, update, fence=fence, upsert=True, session=session)

    with orders.database.client.start_session() as session:
        with pytest.raises(StaleFence) as caught:
            session.with_transaction(write)
        assert (caught.value.offered, caught.value.stored, len(runs)) == (5, 10, 1)
        session.with_transaction(lambda session: write(session, 7, 10))
        session.with_transaction(lambda session: write(session, 8, 5))
        assert [found.get("history") for found in orders.find().sort("_id")] == [[10], [5]]
        with pytest.raises(pymongo.errors.DuplicateKeyError):  # what is there has no such author: as without fences
            session.with_transaction(lambda session: write(session, 7, 11, author="nobody"))
        orders.create_index("number", unique=True, sparse=True)
        orders.update_one({"_id": 8}, {"$set": {"number": 1}})
        runs.clear()

        def same_number(session: Any) -> None:
            runs.append(1)
            assert len(runs) < 20, "run again and again"
            fenced_update(orders, {"_id": 7}, {"$set": {"number": 1}}, fence=11, session=session)

        with pytest.raises(pymongo.errors.DuplicateKeyError):
            session.with_transaction(same_number)


def test_mongo_who_loses_the_race_of_an_upsert_in_a_transaction_runs_it_again(orders: Any) -> None:
    orders.insert_one({"_id": 1})
    runs: list[int] = []

    def write(session: Any) -> None:
        runs.append(1)
        assert len(runs) < 20, "run again and again"
        orders.find_one({"_id": 1}, session=session)  # the snapshot is taken here
        if len(runs) == 1:
            fenced_update(orders, {"_id": 7}, {"$set": {"author": "later"}}, fence=10, upsert=True)
        fenced_update(orders, {"_id": 7}, {"$set": {"author": "stale"}}, fence=5, upsert=True, session=session)

    with orders.database.client.start_session() as session, pytest.raises(StaleFence):
        session.with_transaction(write)
    assert len(runs) > 1
    assert orders.find_one({"_id": 7}) == {"_id": 7, "author": "later", "fence": 10}


async def test_mongo_a_stale_upsert_in_a_transaction_of_asyncio_is_refused(
    orders: Any, request: pytest.FixtureRequest
) -> None:
    fenced_update(orders, {"_id": 7}, {"$set": {"author": "later"}}, fence=10, upsert=True)
    runs: list[int] = []

    async with pymongo.AsyncMongoClient[dict[str, Any]](request.getfixturevalue("replica_set").url) as client:

        async def write(session: Any) -> None:
            runs.append(1)
            assert len(runs) < 20, "run again and again"
            update, awaited = {"$set": {"author": "stale"}}, client.solely[orders.name]
            await fenced_update_async(awaited, {"_id": 7}, update, fence=5, upsert=True, session=session)

        async with client.start_session() as session:
            with pytest.raises(StaleFence):
                await session.with_transaction(write)
    assert len(runs) == 1


def test_mongo_a_fence_deep_in_the_document_refuses_too(orders: Any) -> None:
    kept = {"_id": 7, "parts": [{}, {}]}
    for field in ("meta.fence", "meta.inner.fence", "parts.1.fence"):
        orders.delete_many({})
        orders.insert_one(kept)
        for upsert in (False, True):
            fenced_update(orders, {"_id": 7}, {"$set": {"author": "later"}}, fence=10, field=field, upsert=upsert)
            with pytest.raises(StaleFence) as caught:
                fenced_update(orders, {"_id": 7}, {"$set": {"author": "stale"}}, fence=5, field=field, upsert=upsert)
            assert (caught.value.key, caught.value.offered, caught.value.stored) == ("7", 5, 10)
    orders.insert_one({"_id": 8, "parts": [{}, {}]})
    fenced_update(orders, {"_id": 8}, [{"$set": {"author": "later"}}], fence=10, field="parts.fence")
    assert orders.find_one({"_id": 8})["parts"] == [{"fence": 10}, {"fence": 10}]
    with pytest.raises(StaleFence, match="under fence 10"):
        fenced_update(orders, {"_id": 8}, [{"$set": {"author": "stale"}}], fence=5, field="parts.fence")
    assert orders.count_documents({"author": "later"}) == orders.count_documents({}) == 2


LIKE_BOB: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"_id": "bob"}, {"collation": {"locale": "en", "strength": 2}}),
    ({"_id": "bob"}, {"collation": {"locale": "en", "strength": 2}, "hint": "names"}),
    ({"$expr": {"$eq": ["$_id", "$$who"]}}, {"let": {"who": "BOB"}}),
    ({"_id": "BOB"}, {"hint": [("_id", 1)], "comment": "why"}),
]


@pytest.mark.parametrize(("filter", "options"), LIKE_BOB)
async def test_mongo_a_stale_holder_is_told_whatever_finds_the_document(
    orders: Any, request: pytest.FixtureRequest, filter: dict[str, Any], options: dict[str, Any]
) -> None:
    orders.create_index([("_id", 1), ("name", 1)], name="names", collation={"locale": "en", "strength": 2})
    fenced_update(orders, {"_id": "BOB"}, {"$set": {"author": "later"}}, fence=10, upsert=True)
    stale = {"$set": {"author": "stale"}}
    with pytest.raises(StaleFence):
        fenced_update(orders, filter, stale, fence=5, **options)
    async with pymongo.AsyncMongoClient[dict[str, Any]](request.getfixturevalue("replica_set").url) as client:
        with pytest.raises(StaleFence):
            await fenced_update_async(client.solely[orders.name], filter, stale, fence=5, **options)
    assert orders.find_one() == {"_id": "BOB", "author": "later", "fence": 10}
    assert fenced_update(orders, filter, {"$set": {"author": "last"}}, fence=11, **options).matched_count == 1


def test_mongo_a_stale_upsert_inserts_no_second_document(orders: Any) -> None:
    fenced_update(orders, {"_id": "BOB"}, {"$set": {"author": "later"}}, fence=10, upsert=True)
    for id in (re.compile("^B"), Regex("^B")):
        with pytest.raises(InvalidInput, match="plain _id"):
            fenced_update(orders, {"_id": id}, {"$set": {"author": "stale"}}, fence=5, upsert=True)
    options: dict[str, Any] = {"collation": {"locale": "en", "strength": 2}, "upsert": True}
    with pytest.raises(InvalidInput, match="no collation"):
        fenced_update(orders, {"_id": "bob"}, {"$set": {"author": "stale"}}, fence=5, **options)
    assert orders.find_one({}, {"_id": False}) == {"author": "later", "fence": 10}
    assert orders.count_documents({}) == 1
    for fence in (10, 11):
        fenced_update(orders, {"_id": 7}, {"$set": {"author": "later"}}, fence=fence, **options)
    with pytest.raises(StaleFence):
        fenced_update(orders, {"_id": 7}, {"$set": {"author": "stale"}}, fence=5, **options)


# -- HTTP


class Answer(NamedTuple):
    status: int
    problem: dict[str, Any]


async def ask(app: Any, path: str = "/a", *fences: str | int, name: str = "solely-fence") -> Answer:
    """The answer of an ASGI application to a PUT with these fences."""
    sent: list[Any] = []
    given = [(name.encode(), str(fence).encode()) for fence in fences]

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "PUT", "path": path, "headers": given}, receive, send)
    start, body = sent
    if start["status"] != 204:
        assert dict(start["headers"])[b"content-type"] == b"application/problem+json"
        assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
    return Answer(start["status"], json.loads(body.get("body") or "{}"))


class Application:
    """Answers 204 and remembers what was let in."""

    def __init__(self) -> None:
        self.fences: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.fences.append(scope.get("solely.fence"))
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def book_on(url: str, kind: str) -> AsyncIterator[FenceBook]:
    """A book on a store of that kind, which is closed at the end."""
    if kind == "asyncio":
        store = open_async_store(url)
        yield StoreFenceBook(store)
        await store.close()
    else:
        blocking = open_store(url)
        yield BlockingStoreFenceBook(blocking)
        blocking.close()


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_http_on_every_store(store_url: str, kind: str) -> None:
    async with book_on(store_url, kind) as book:
        app = Application()
        guarded = FenceMiddleware(app, book=book)
        for fence in (5, 1790000000000000, 1790000000000000):
            assert (await ask(guarded, "/a", fence)).status == 204
        status, problem = await ask(guarded, "/a", 99, name="Solely-Fence")
        assert (status, problem["title"], problem["status"]) == (409, "Stale fence", 409)
        assert (problem["resource"], problem["offered"], problem["stored"]) == ("/a", 99, 1790000000000000)
        assert (await ask(guarded, "/b", 99)).status == 204
        assert app.fences == [5, 1790000000000000, 1790000000000000, 99]


@pytest.mark.parametrize("fence", ["", "0", "-1", "+5", "5.0", "5 ", "0x5", "٥", str(MAX_FENCE + 1), "1" * 40])
async def test_http_a_malformed_fence_is_400(fence: str) -> None:
    app = Application()
    status, problem = await ask(FenceMiddleware(app, book=MemoryFenceBook()), "/a", fence)
    assert (status, problem["title"], app.fences) == (400, "Malformed fence", [])


async def test_http_two_fences_are_400_none_is_let_pass_unless_required_and_others_are_left_alone() -> None:
    app, book = Application(), MemoryFenceBook()
    guarded = FenceMiddleware(app, book=book)
    assert (await ask(guarded, "/a", 5, 5)).status == 400
    assert (await ask(guarded, "/" + "x" * 600, 5)).status == 400
    assert app.fences == []
    assert (await ask(guarded, "/a")).status == 204
    strict = FenceMiddleware(app, book=book, required=True, resource=lambda scope: scope["path"].strip("/") or None)
    assert (await ask(strict, "/a")).status == 428
    assert (await ask(strict, "/")).status == 204
    assert (await ask(strict, "/a", 5)).status == 204
    assert await book.advance("a", 1) == 5
    await strict({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert app.fences == [None, None, 5, None]


async def test_http_fails_closed_when_the_book_cannot_tell() -> None:
    class Gone:
        async def advance(self, resource: str, fence: int) -> int:
            raise StoreUnavailable("no answer")

    app = Application()
    assert (await ask(FenceMiddleware(app, book=Gone()), "/a", 5)).status == 503
    full = FenceMiddleware(app, book=MemoryFenceBook(max_size=1))
    assert [(await ask(full, path, 5)).status for path in ("/a", "/b", "/a")] == [204, 503, 204]
    assert app.fences == [5, 5]


async def test_http_racing_requests_are_let_in_in_the_order_of_their_fences(valkey_url: str) -> None:
    for book in (MemoryFenceBook(), StoreFenceBook(store := open_async_store(valkey_url))):
        app = Application()
        guarded = FenceMiddleware(app, book=book)
        fences = list(range(1, 101))
        random.Random(7).shuffle(fences)
        path = f"/{secrets.token_hex(6)}"
        answers = await asyncio.gather(*(ask(guarded, path, fence) for fence in fences))
        assert 100 in app.fences
        for fence, answer in zip(fences, answers, strict=True):
            assert answer.status == (204 if fence in app.fences else 409)
            assert (await ask(guarded, path, fence)).status == (204 if fence == 100 else 409)
    await store.close()


def test_headers_of_a_lease() -> None:
    with Client("memory://") as once, once.lock("a") as lease:
        assert headers(lease) == {HEADER: str(lease.fence)}


# -- the page

PAGE = blocks("docs/fencing.md")
Check = Callable[[dict[str, Any], Path], Awaitable[None]]


async def file_holds(names: dict[str, Any], folder: Path) -> None:
    assert (folder / "report.json").read_bytes() == b'{"total": 7}'


async def nothing_more(names: dict[str, Any], folder: Path) -> None:
    pass


async def service_refuses(names: dict[str, Any], folder: Path) -> None:
    path = f"/{secrets.token_hex(6)}"
    assert [(await ask(names["guarded"], path, fence)).status for fence in (5, 6, 5)] == [204, 204, 409]
    await names["book"]._store.close()


EXAMPLES: list[tuple[str, Check]] = [
    ("FencedFile", file_holds),
    ("postgresql://", nothing_more),
    ("condition", nothing_more),
    ("FencedRedis", nothing_more),
    ("mongodb://", nothing_more),
    ("FenceMiddleware", service_refuses),
]
ABSENT = {"postgresql://": not POSTGRES, "mongodb://": not MONGO}


def test_every_example_of_the_page_is_run() -> None:
    assert [name in example for example, (name, _) in zip(PAGE, EXAMPLES, strict=True)] == [True] * len(PAGE)


@pytest.mark.parametrize("name", [name for name, _ in EXAMPLES if not ABSENT.get(name)])
async def test_examples_of_the_page(
    request: pytest.FixtureRequest, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = [known for known, _ in EXAMPLES].index(name)
    example = PAGE[number].replace("redis://localhost", request.getfixturevalue("valkey").url)
    if name == "postgresql://":
        info = own_schema(request.getfixturevalue(POSTGRES[0]))
        example = example.replace('"postgresql://localhost/app"', repr(info))
    if name == "mongodb://":
        example = example.replace("mongodb://localhost/", request.getfixturevalue(MONGO[0]).url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example, names)
    await EXAMPLES[number][1](names, tmp_path)
