"""How a store loses its data: what FLUSHALL, a restart without persistence or a removed file does to its keys."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pymongo
import redis

from solely.stores.postgres.settings import parse


def lose_everything(url: str) -> None:
    """The store at this URL is empty from now on, as if it had just been made."""
    scheme = urlsplit(url).scheme
    {"sqlite": _remove, "redis": _flush, "postgresql": _truncate, "mongodb": _delete}[scheme](url)


def lose(url: str, key: str) -> None:
    """The store at this URL has lost this stored key, and nothing else: as an eviction does, or a late replica."""
    scheme, parts = urlsplit(url).scheme, urlsplit(url)
    if scheme == "sqlite":
        with closing(sqlite3.connect(parts.path)) as file, file:
            file.execute("DELETE FROM solely_entries WHERE key = ?", (key,))
    elif scheme == "redis":
        with _redis(url) as server:
            server.delete(f"{_query(url, 'namespace')}:{key}")
    elif scheme == "postgresql":
        with psycopg.connect(url.partition("?")[0], autocommit=True) as server:
            server.execute(f"DELETE FROM {parse(url).names['entries']} WHERE key = %s".encode(), (key,))
    else:
        with _mongo(url) as server:
            server[parts.path.strip("/")][_query(url, "namespace")].delete_one({"_id": key})


def _query(url: str, name: str) -> str:
    return parse_qs(urlsplit(url).query)[name][0]


def _redis(url: str) -> "redis.Redis":
    return redis.Redis(host=str(urlsplit(url).hostname), port=urlsplit(url).port or 6379)


def _mongo(url: str) -> "pymongo.MongoClient[dict[str, object]]":
    return pymongo.MongoClient(urlsplit(url)._replace(query="").geturl(), directConnection=True)


def _remove(url: str) -> None:
    path = urlsplit(url).path
    for end in ("", "-wal", "-shm"):
        Path(path + end).unlink(missing_ok=True)


def _flush(url: str) -> None:
    with _redis(url) as server:
        server.delete(*server.keys(f"{_query(url, 'namespace')}:*"))  # as FLUSHALL, but only in this namespace


def _truncate(url: str) -> None:
    """Without the schema, as a restored dump of it would be: a server whose schema is gone answers no op at all."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as server:
        server.execute(f"TRUNCATE {parse(url).names['entries']}".encode())


def _delete(url: str) -> None:
    with _mongo(url) as server:
        server[urlsplit(url).path.strip("/")][_query(url, "namespace")].delete_many({})
