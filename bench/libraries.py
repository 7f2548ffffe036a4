"""The libraries that scripts/bench compares: how each of them acquires, waits and replays, as its manual shows it.

`peer_program` runs one of them per process, in the environment in which it is installed. So this module imports nothing
but the standard library at import time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from .workers import TTL, Turn

WAIT = 60.0  # seconds: longer than any repetition, so that no worker gives up
KEEP = 3600  # seconds that a result is kept
Hold = Callable[[], object]


class Library(NamedTuple):
    """What one library can do."""

    pair: Callable[[str], object] | None = None  # acquires and releases a free key
    turn: Turn | None = None  # waits for the key "key", calls its argument, and releases the key
    call: Callable[[str], object] | None = None  # an idempotent call for this key


def _locking(lock: Callable[[str], AbstractContextManager[object]], *, waits: bool = True) -> Library:
    """A library whose locks are context managers."""

    def pair(key: str) -> None:
        with lock(key):
            pass

    def turn(hold: Hold) -> None:
        with lock("key"):
            hold()

    return Library(pair=pair, turn=turn if waits else None)


def _charge(amount: int) -> dict[str, int]:
    return {"charged": amount}


def _redis(url: str) -> Any:
    import redis

    return redis.Redis.from_url(url)


@contextmanager
def ours(url: str) -> Iterator[Library]:
    import solely

    with solely.Client(url) as once:

        @once.idempotent(key="{order}", keep=KEEP, fingerprint=lambda order: order)
        def charge(order: str) -> dict[str, int]:
            return _charge(len(order))

        yield _locking(lambda key: once.lock(key, ttl=TTL, wait=WAIT))._replace(call=charge)


# -- Redis


@contextmanager
def redispy(url: str) -> Iterator[Library]:
    client = _redis(url)
    yield _locking(lambda key: client.lock(key, timeout=TTL))


@contextmanager
def python_redis_lock(url: str) -> Iterator[Library]:
    import redis_lock

    client = _redis(url)
    yield _locking(lambda key: redis_lock.Lock(client, key, expire=int(TTL)))


@contextmanager
def pottery(url: str) -> Iterator[Library]:
    import pottery

    masters = {_redis(url)}
    yield _locking(lambda key: pottery.Redlock(key=key, masters=masters, auto_release_time=TTL))


@contextmanager
def redlock_ng(url: str) -> Iterator[Library]:
    import redlock

    locker = redlock.Redlock([url])
    yield _locking(lambda key: locker.lock(key, ttl=int(TTL * 1000), blocking=True))


@contextmanager
def sherlock(url: str) -> Iterator[Library]:
    import sherlock

    client = _redis(url)
    yield _locking(lambda key: sherlock.RedisLock(key, client=client, expire=int(TTL), timeout=int(WAIT)))


@contextmanager
def walrus(url: str) -> Iterator[Library]:
    import walrus

    database = walrus.Database.from_url(url)
    yield _locking(lambda key: database.lock(key, ttl=int(TTL * 1000)))


@contextmanager
def tooz(url: str) -> Iterator[Library]:
    from tooz import coordination

    coordinator = coordination.get_coordinator(url, os.urandom(8).hex().encode())
    coordinator.start()
    yield _locking(lambda key: coordinator.get_lock(key.encode()))
    coordinator.stop()


@contextmanager
def celery_once(url: str) -> Iterator[Library]:
    from celery_once.backends.redis import Redis

    backend = Redis({"url": url})

    def pair(key: str) -> None:
        backend.raise_or_lock(key, int(TTL))
        backend.clear_lock(key)

    yield Library(pair=pair)  # it never waits


# -- PostgreSQL


def _engine(url: str) -> Any:
    import sqlalchemy

    return sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


@contextmanager
def pals(url: str) -> Iterator[Library]:
    import pals

    locker = pals.Locker("bench", url.replace("postgresql:", "postgresql+psycopg:"), acquire_timeout_default=30_000)
    yield _locking(locker.lock)
    locker.engine.dispose()


@contextmanager
def sqlalchemy_dlock(url: str) -> Iterator[Library]:
    from sqlalchemy_dlock import create_sadlock

    engine = _engine(url)
    with engine.connect() as connection:
        yield _locking(lambda key: create_sadlock(connection, key))
    engine.dispose()


# -- files


@contextmanager
def diskcache(url: str) -> Iterator[Library]:
    import diskcache

    with diskcache.Cache(url, eviction_policy="none") as cache:
        yield _locking(lambda key: diskcache.Lock(cache, key, expire=TTL))


@contextmanager
def filelock(url: str) -> Iterator[Library]:
    import filelock

    yield _locking(lambda key: filelock.FileLock(os.path.join(url, key)))


@contextmanager
def tooz_file(url: str) -> Iterator[Library]:
    with tooz(f"file://{url}") as library:
        yield library


# -- idempotent calls


@contextmanager
def powertools(url: str) -> Iterator[Library]:
    os.environ.setdefault("AWS_DEFAULT_REGION", "eu-west-1")  # its import requires one; nothing is sent there
    from aws_lambda_powertools.utilities import idempotency
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer

    def charge(*, order: str) -> dict[str, int]:
        return _charge(len(order))

    guarded = idempotency.idempotent_function(
        charge,
        data_keyword_argument="order",
        persistence_store=RedisCachePersistenceLayer(client=_redis(url)),
        config=idempotency.IdempotencyConfig(expires_after_seconds=KEEP),
    )
    yield Library(call=lambda key: guarded(order=key))


@contextmanager
def idemptx(url: str) -> Iterator[Library]:
    """Its decorator of a FastAPI endpoint, called without FastAPI; it awaits nothing, so no event loop is needed."""
    from fastapi import Request
    from fastapi.responses import JSONResponse
    from idemptx import idempotent
    from idemptx.backend import RedisBackend

    async def charge(request: Any) -> Any:
        return JSONResponse(_charge(len(request.headers["idempotency-key"])))

    guarded = idempotent(storage_backend=RedisBackend(_redis(url)), key_ttl=KEEP)(charge)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    def call(key: str) -> None:
        headers = [(b"idempotency-key", key.encode()), (b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": "/charge", "query_string": b"", "headers": headers}
        work = guarded(request=Request(scope, receive))
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("it waited")

    yield Library(call=call)


LIBRARIES: dict[str, Callable[[str], AbstractContextManager[Library]]] = {
    opened.__name__: opened
    for opened in (
        ours, redispy, python_redis_lock, pottery, redlock_ng, sherlock, walrus, tooz, tooz_file, celery_once, pals,
        sqlalchemy_dlock, diskcache, filelock, powertools, idemptx,
    )
}  # fmt: skip
BESIDE_OURS = frozenset(("ours", "redispy"))  # run in .venv, the others in .venv-peers
