"""Comparisons with other libraries: each in its own processes and environment, ours beside them in the same run."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.postgres_server import Postgres

from .harness import Case, Effort, Figures, Goal, Place, Skipped, interleave, print_medians, rates, ratios, valkey
from .peer_processes import Peers
from .postgres import postgres
from .workers import fairness

PROCESSES = 4

Urls = Callable[[str], str]  # by library: where it keeps its locks
Opened = Callable[[Place], AbstractContextManager[Urls]]


@contextmanager
def _redis(place: Place) -> Iterator[Urls]:
    with valkey(place) as server:
        yield lambda library: server.url


@contextmanager
def _postgres(place: Place) -> Iterator[Urls]:
    with postgres(place) as server:
        yield _for_tooz_too(server)


@contextmanager
def _in_memory(place: Place) -> Iterator[Urls]:
    with postgres(place, in_memory=True) as server:
        yield _for_tooz_too(server)


def _for_tooz_too(server: Postgres) -> Urls:
    """tooz does not decode what is percent-encoded in a password, so it logs in with another."""
    server.ask("CREATE ROLE tooz LOGIN PASSWORD 'tooz'")
    plain = f"postgresql://tooz:tooz@{server.host}:{server.port}/postgres"
    return lambda library: plain if library == "tooz" else server.url


@contextmanager
def _files(place: Place) -> Iterator[Urls]:
    folder = Path(tempfile.mkdtemp())

    def url(library: str) -> str:
        (folder / library).mkdir(exist_ok=True)
        return f"sqlite:///{folder}/ours/locks.db" if library == "ours" else str(folder / library)

    try:
        yield url
    finally:
        shutil.rmtree(folder)


def _open(stack: ExitStack, libraries: Sequence[str], urls: Urls, processes: int, threads: int) -> dict[str, Peers]:
    """Starts the processes of ours and of each library that can run here."""
    opened = {}
    for library in ("ours", *libraries):
        try:
            opened[library] = stack.enter_context(Peers(library, urls(library), processes, threads))
        except Skipped as missing:
            print(f"    skipped: {missing}", file=sys.stderr, flush=True)
    return opened


def _rates(
    key: str, do: str, stores: Opened, libraries: Sequence[str], place: Place, effort: Effort
) -> Figures:  # fmt: skip
    with stores(place) as urls, ExitStack() as stack:
        opened = _open(stack, libraries, urls, 1, 1)
        sides = {library: partial(peers.rate, do, effort.seconds) for library, peers in opened.items()}
        measured = rates(sides, effort.repetitions)
        cpu = {library: peers.cpu_us[1:] for library, peers in opened.items()}  # without the warm-up
        print_medians(cpu, " µs of CPU")
    figures = {f"{key}.vs_{library}": ratios(measured["ours"], measured[library]) for library in opened}
    figures |= {f"{key}.cpu_vs_{library}": ratios(cpu[library], cpu["ours"]) for library in opened}
    return figures


def _handoffs(
    key: str, threads: int, stores: Opened, libraries: Sequence[str], place: Place, effort: Effort
) -> Figures:  # fmt: skip
    with stores(place) as urls, ExitStack() as stack:
        opened = _open(stack, libraries, urls, PROCESSES, threads)
        sides = {library: partial(peers.turns, effort.handoff_seconds) for library, peers in opened.items()}
        turns = interleave(sides, effort.handoffs)
    per_s = {name: [max(sum(each), 1) / effort.handoff_seconds for each in counts] for name, counts in turns.items()}
    print_medians(per_s)
    figures = {f"{key}.vs_{library}": ratios(per_s["ours"], per_s[library]) for library in opened if library != "ours"}
    for library, counts in turns.items():
        name = "fairness" if library == "ours" else f"fairness_of_{library}"
        figures[f"{key}.{name}"] = [fairness(each) for each in counts]
    return figures


NAMES = {
    "redispy": "redis-py's Lock",
    "python_redis_lock": "python-redis-lock",
    "pottery": "pottery's Redlock, one server",
    "redlock_ng": "redlock-ng, one server",
    "sherlock": "sherlock's RedisLock",
    "walrus": "walrus' lock",
    "tooz": "tooz' lock",
    "tooz_file": "tooz' lock on files",
    "celery_once": "celery-once's backend",
    "pals": "pals' Lock",
    "sqlalchemy_dlock": "sqlalchemy-dlock",
    "diskcache": "diskcache's Lock",
    "filelock": "filelock",
    "powertools": "Powertools' idempotent_function on Redis",
    "idemptx": "idemptx' decorator on Redis",
}
BOUNDS = {  # goals; a comparison that is not named here has none
    "pair.postgres.sync.1.vs_pals": 1.4,
    "pair.postgres.in_memory.sync.1.vs_pals": 1.4,
    "handoff.redis.procs.4x5.vs_python_redis_lock": 0.9,
    "handoff.redis.procs.4x5.fairness": 0.8,
    "claim.redis.first.vs_powertools": 1.5,
    "claim.redis.replay.vs_powertools": 2.5,
}


def _goal(key: str, against: str) -> Goal:
    return Goal(key, BOUNDS.get(key, 0.0), against)


def _case(key: str, do: str, stores: Opened, *libraries: str) -> Case:
    goals = [_goal(f"{key}.vs_{library}", NAMES[library]) for library in libraries]
    goals += [_goal(f"{key}.cpu_vs_{library}", f"{NAMES[library]}: the client's CPU time") for library in libraries]
    return Case(goals, Place.TOGETHER, partial(_rates, key, do, stores, libraries))


def _handoff(key: str, threads: int, stores: Opened, *libraries: str) -> Case:
    goals = [_goal(f"{key}.fairness", "fewest / most turns of a worker")]
    for library in libraries:
        goals.append(_goal(f"{key}.vs_{library}", NAMES[library]))
        goals.append(_goal(f"{key}.fairness_of_{library}", "fewest / most turns of one of its workers"))
    return Case(goals, Place.APART, partial(_handoffs, key, threads, stores, libraries))


# pairs.py compares pairs with redis-py's Lock
_WAITING_ON_REDIS = ("redispy", "python_redis_lock", "pottery", "redlock_ng", "sherlock", "walrus", "tooz")
_ON_POSTGRES = ("pals", "sqlalchemy_dlock", "tooz")
_ON_FILES = ("diskcache", "filelock", "tooz_file")

CASES = [
    _case("pair.redis.sync.1", "pairs", _redis, *_WAITING_ON_REDIS[1:], "celery_once"),
    _case("pair.postgres.sync.1", "pairs", _postgres, *_ON_POSTGRES),
    _case("pair.postgres.in_memory.sync.1", "pairs", _in_memory, *_ON_POSTGRES),
    _case("pair.sqlite.sync.1", "pairs", _files, *_ON_FILES),
    _handoff("handoff.redis.procs.4x5", 5, _redis, "python_redis_lock"),
    _handoff("handoff.redis.procs.4x1", 1, _redis, *_WAITING_ON_REDIS),
    _handoff("handoff.postgres.procs.4x1", 1, _postgres, *_ON_POSTGRES),
    _handoff("handoff.sqlite.procs.4x1", 1, _files, *_ON_FILES),
    _case("claim.redis.first", "fresh", _redis, "powertools", "idemptx"),
    _case("claim.redis.replay", "replays", _redis, "powertools", "idemptx"),
]
