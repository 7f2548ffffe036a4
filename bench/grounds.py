"""The stores on which curves and costs are measured: each freshly started, with the processes that work for it."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from .harness import Place, valkey
from .postgres import postgres


class Ground(NamedTuple):
    """One running store."""

    url: str
    pids: Callable[[], list[int]]  # of its processes; none if the client itself does the work
    size: Callable[[], int]  # bytes that its entries occupy, in memory or on disk


@contextmanager
def _redis() -> Iterator[Ground]:
    with valkey(Place.APART) as server:
        yield Ground(server.url, lambda: [server.pid], lambda: int(server.ask("INFO", "memory")["used_memory"]))


@contextmanager
def _postgres() -> Iterator[Ground]:
    with postgres(Place.APART) as server:

        def size() -> int:
            ((found,),) = server.ask(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
                " WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace('solely')"
            )
            return int(found)

        yield Ground(server.url, server.family, size)


@contextmanager
def _sqlite() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.db")

        def size() -> int:
            """Of the pages in use, also of those that are still in the log."""
            with closing(sqlite3.connect(file)) as connection:
                used, unused, page = (
                    connection.execute(f"PRAGMA {fact}").fetchone()[0]
                    for fact in ("page_count", "freelist_count", "page_size")
                )
            return int((used - unused) * page)

        yield Ground(f"sqlite:///{file}", list, size)


GROUNDS = {"redis": _redis, "postgres": _postgres, "sqlite": _sqlite}
