"""Runs the workers, kills and restarts the server under them, and reads afterwards what it has kept."""

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

from .observations import Observation, read
from .verdict import Outage, Verdict, judge

ROOT = Path(__file__).parent.parent

DOWN = (0.0, 1.5)  # seconds that the server is down: from a quick restart to longer than the shorter leases
UP = 1.0  # seconds at least between a return and the next kill: kills during the start are not tested
AFTERMATH = 3.0  # seconds of work after the last return: longer than the 2 s within which work must continue
ENDS_WITHIN = 30.0  # seconds for a worker to end its turn: the client's timeout for each of its steps, and more

Server = Valkey | Postgres | Mongod

SERVERS: dict[str, Callable[[], Server]] = {
    "redis": lambda: Valkey(appendonly="yes", appendfsync="always"),
    "postgres": lambda: Postgres(folder=PYPI_POSTGRES),
    "mongo": lambda: Mongod(replica_set=True),
}


class Plan(NamedTuple):
    """One run: how many processes work for how long, and how often the server is killed."""

    processes: int = 8
    seconds: float = 15.0
    kills: int = 5
    seed: int = 1


def run(server: Server, plan: Plan) -> Verdict:
    """Returns the verdict on a run with this new server, which is removed afterwards; raises if a worker failed."""
    chance = random.Random(plan.seed)
    with server, tempfile.TemporaryDirectory(prefix="solely-chaos-") as folder:
        logs = [Path(folder) / f"{number}.jsonl" for number in range(plan.processes)]
        with working(server.url, logs, plan.seed):
            outages = list(killing(server, plan, chance))
        server.kill()  # once more, so that everything acknowledged has survived a kill
        server.start()
        observations = [each for log in logs for each in read(log)]
        return judge(observations, outages, plan.processes, *known(server.url, observations))


def killing(server: Server, plan: Plan, chance: random.Random) -> Iterator[Outage]:
    """Kills the server once in each part of the run, at a random time; ends when the run is over."""
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
def working(url: str, logs: list[Path], seed: int) -> Iterator[None]:
    """Runs the workers while the body runs; they start together."""
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(url, log, n, seed)) for n, log in enumerate(logs)]
        for process in workers:
            if stream(process.stdout).readline() != b"ready\n":
                raise ChildProcessError("a worker did not start; see its output on stderr")
        yield
        for process in workers:
            stream(process.stdin).close()  # the signal to end
        for process in workers:
            process.wait(ENDS_WITHIN)
        if failed := [number for number, process in enumerate(workers) if process.returncode]:
            raise ChildProcessError(f"workers {failed} ended with an error of their own")


@contextmanager
def worker(url: str, log: Path, number: int, seed: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker process, which is killed at the end of the body."""
    command = [sys.executable, "-m", "chaos.worker", url, str(log), str(number), str(seed)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the worker was started without this pipe"
    return pipe


def known(url: str, observations: list[Observation]) -> tuple[set[str], dict[str, str]]:
    """Returns what the server has kept of the acknowledged: the marks that are seen, and the results by job."""
    marks = list({each.key for each in observations if each.kind == "first" and each.detail})
    jobs = list({each.key for each in observations if each.kind == "result"})
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
