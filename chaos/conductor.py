"""Runs the workers, kills the server under them and brings it back, and asks it afterwards what it still knows."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from solely import Client, Entry, values
from solely.ops import MAX_BATCH, Read
from solely.rules import local_clock
from solely.stores import open_store
from tests.mongo_server import Mongod
from tests.postgres_server import PYPI_POSTGRES, Postgres
from tests.servers import Valkey

from .diary import Note, read
from .verdict import Outage, Verdict, judge

ROOT = Path(__file__).parent.parent

DOWN = (0.0, 1.5)  # seconds that the server stays away: from a quick restart to longer than the shorter leases
UP = 1.0  # seconds at least between a return and the next kill: a server that dies while it starts is another story
AFTERMATH = 3.0  # seconds of work after the last return: longer than the 2 s within which work must go on
ENDS_WITHIN = 30.0  # seconds for a worker to end its turn: the client's patience for each of its steps, and room

Server = Valkey | Postgres | Mongod

SERVERS: dict[str, Callable[[], Server]] = {
    "redis": lambda: Valkey(appendonly="yes", appendfsync="always"),
    "postgres": lambda: Postgres(folder=PYPI_POSTGRES),
    "mongo": lambda: Mongod(replica_set=True),
}


class Plan(NamedTuple):
    """One run: how many processes work for how long, and how often the server is killed meanwhile."""

    processes: int = 8
    seconds: float = 15.0
    kills: int = 5
    seed: int = 1


def conduct(server: Server, plan: Plan) -> Verdict:
    """The verdict on a run with this fresh server, which is gone afterwards; raises if a worker ended by itself."""
    chance = random.Random(plan.seed)
    with server, tempfile.TemporaryDirectory(prefix="solely-chaos-") as folder:
        diaries = [Path(folder) / f"{number}.jsonl" for number in range(plan.processes)]
        with working(server.url, diaries, plan.seed):
            outages = list(killing(server, plan, chance))
        server.kill()  # once more: so that all that was acknowledged, to the last, has outlived a kill
        server.start()
        notes = [note for diary in diaries for note in read(diary)]
        return judge(notes, outages, plan.processes, *known(server.url, notes))


def killing(server: Server, plan: Plan, chance: random.Random) -> Iterator[Outage]:
    """Kills the server once in each part of the run, at a moment drawn from the seed; ends when the run is over."""
    begun = back = local_clock()
    part = plan.seconds / plan.kills if plan.kills else plan.seconds
    for number in range(plan.kills):
        sleep_until(max(begun + (number + chance.random()) * part, back + UP))
        killed = local_clock()
        server.kill()
        time.sleep(chance.uniform(*DOWN))
        server.start()
        back = local_clock()
        yield Outage(killed, back)
    sleep_until(max(begun + plan.seconds, back + AFTERMATH))


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - local_clock()))


@contextmanager
def working(url: str, diaries: list[Path], seed: int) -> Iterator[None]:
    """The body runs while the workers work: they begin together, and end when it ends."""
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(url, diary, n, seed)) for n, diary in enumerate(diaries)]
        for process in workers:
            if stream(process.stdout).readline() != b"ready\n":
                raise ChildProcessError("a worker did not begin; what it said is on stderr")
        yield
        for process in workers:
            stream(process.stdin).close()  # the sign to end
        for process in workers:
            process.wait(ENDS_WITHIN)
        if failed := [number for number, process in enumerate(workers) if process.returncode]:
            raise ChildProcessError(f"workers {failed} ended with an error of their own")


@contextmanager
def worker(url: str, diary: Path, number: int, seed: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of its own, which does not outlive the body."""
    command = [sys.executable, "-m", "chaos.worker", url, str(diary), str(number), str(seed)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the worker was started without this pipe"
    return pipe


def known(url: str, notes: list[Note]) -> tuple[set[str], dict[str, str]]:
    """What the server still knows of the acknowledged: the marks that are seen, and the results by job."""
    marks = list({note.key for note in notes if note.kind == "first" and note.detail})
    jobs = list({note.key for note in notes if note.kind == "result"})
    results: dict[str, str] = {}
    with closing(open_store(url)) as store:
        for begin in range(0, len(jobs), MAX_BATCH):
            part = jobs[begin : begin + MAX_BATCH]
            for job, entry in zip(part, store.perform([Read(f"claim/{job}") for job in part]), strict=True):
                if isinstance(entry, Entry) and entry.value is not None:
                    results[job] = values.decode(entry.value, job)
    with Client(url) as once:
        fresh = once.first_many(marks) if marks else []
    return {mark for mark, again in zip(marks, fresh, strict=True) if not again}, results
