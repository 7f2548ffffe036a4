"""python -m chaos.worker URL LOG NUMBER SEED: works until its standard input is closed.

Even numbers use the blocking client, odd ones the asyncio client. In each turn a worker holds a contended lock and
writes under it; then, for some jobs, it marks the job and publishes a result. Workers 0 and 1, 2 and 3, … have the same
jobs.
"""

import asyncio
import logging
import random
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import solely
from solely import values
from solely.flow import Ask, Flow
from solely.model import Entry, State
from solely.ops import Acquire, Finish

from .observations import ObservationLog

SHORT = ("north", "east")  # fewer than workers, so that they are always contended
LONG = ("south", "west")  # held at every kill, and requested by others as soon as the server is back
SHORT_HOLD, LONG_HOLD = 0.01, 3.0  # seconds: a hand-over; more than an outage and several renewals
ONE_IN = 4  # turns uses a long lock: a server that lost its data is detected soon after its return
TTLS = (1.0, 2.0)  # seconds: some leases outlive an outage, others expire in it
JOBS = 10  # per turn: marks and results take about as much time as the lock, so that kills interrupt both
TIMEOUTS = (5.0, 1.0)  # seconds, alternating per pair of workers: one waits until an outage ends, the other gives up
WAIT = 2.0  # seconds for a short lock: Busy is then unusual. A worker does not wait for a long one: it has other work
RUN_TTL = 5.0  # seconds for a claim's winner to publish: the longer of the timeouts
KEEP = 3600.0  # seconds: marks and results must be there when the run is judged, minutes later


class Turn(NamedTuple):
    """The parameters of one turn, drawn from the worker's seed."""

    lock: str
    ttl: float
    wait: float
    hold: float
    jobs: list[str]


def drawn(chance: random.Random, worker: int, turn: int) -> Turn:
    """Returns the worker's next turn; its partner has the same jobs in its turn of that number."""
    long = chance.randrange(ONE_IN) == 0
    lock, wait, hold = (chance.choice(LONG), 0.0, LONG_HOLD) if long else (chance.choice(SHORT), WAIT, SHORT_HOLD)
    jobs = [f"{worker // 2}-{turn}-{number}" for number in range(JOBS)]
    return Turn(lock, chance.uniform(*TTLS), wait, hold, jobs)


def timeout(worker: int) -> float:
    """Returns the timeout of this worker's client."""
    return TIMEOUTS[worker // 2 % 2]


def publishing(job: str, value: str) -> Flow[bool]:
    """Returns True if the value is now the job's acknowledged result; False if another worker has the job."""
    owner: str = yield Ask.OWNER
    key = f"claim/{job}"
    claim: Entry = yield Acquire(key, owner, RUN_TTL)
    if claim.owner != owner:
        return False
    done: Entry = yield Finish(key, owner, values.encode(value), KEEP)
    return done.state is State.DONE and done.owner == owner


def work(url: str, log: ObservationLog, worker: int, chance: random.Random, stop: threading.Event) -> None:
    """Runs turns with the blocking client."""
    with solely.Client(url, timeout=timeout(worker), hooks=[log.on_event]) as once:
        print("ready", flush=True)
        while not stop.is_set():
            turn = drawn(chance, worker, log.turn)
            with log.step(turn.lock), once.lock(turn.lock, ttl=turn.ttl, wait=turn.wait) as lease:
                for pause in log.holding(lease, turn.hold):
                    time.sleep(pause)
            for job in turn.jobs:
                with log.step(job):
                    log.add("first", job, once.first(job, ttl=KEEP))
                value = f"{worker} did {job}"
                with log.step(job):
                    if once._run(publishing(job, value)):
                        log.add("result", job, value)
            log.turn += 1


async def work_async(url: str, log: ObservationLog, worker: int, chance: random.Random, stop: threading.Event) -> None:
    """Runs turns with the asyncio client, which cancels the body of a lost lease."""
    async with solely.AsyncClient(url, timeout=timeout(worker), hooks=[log.on_event]) as once:
        print("ready", flush=True)
        while not stop.is_set():
            turn = drawn(chance, worker, log.turn)
            with log.step(turn.lock):
                async with once.lock(turn.lock, ttl=turn.ttl, wait=turn.wait) as lease:
                    for pause in log.holding(lease, turn.hold):
                        await asyncio.sleep(pause)
            for job in turn.jobs:
                with log.step(job):
                    log.add("first", job, await once.first(job, ttl=KEEP))
                value = f"{worker} did {job}"
                with log.step(job):
                    if await once._run(publishing(job, value)):
                        log.add("result", job, value)
            log.turn += 1


def _stop_at_end_of_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main(url: str, path: str, number: str, seed: str) -> None:
    """Works until standard input ends, which happens whenever and however the runner ends."""
    logging.getLogger("solely").addHandler(logging.NullHandler())  # the observations contain what matters of an outage
    stop = threading.Event()
    threading.Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
    worker, chance = int(number), random.Random(f"{seed}:{number}")
    with ObservationLog(Path(path), worker) as log:
        if worker % 2:
            asyncio.run(work_async(url, log, worker, chance, stop))
        else:
            work(url, log, worker, chance, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
