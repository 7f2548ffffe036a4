"""The stores on which curves and costs are measured: each freshly started, with the processes that work for it."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        file = Path(folder, "bench.db")  # without its log, whose size does not depend on the number of entries
        yield Ground(f"sqlite:///{file}", list, lambda: file.stat().st_size)


GROUNDS = {"redis": _redis, "postgres": _postgres, "sqlite": _sqlite}
