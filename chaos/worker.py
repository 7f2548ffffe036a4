"""python -m chaos.worker URL DIARY NUMBER SEED: works until its standard input is closed.

Even numbers work with the blocking client, odd ones with the asyncio client. Each turn: hold a lock that all want and
write under it; then, for some jobs, be first at the mark and publish a result. Workers 0 and 1, 2 and 3, … have the
same jobs.
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

from .diary import Diary

SHORT = ("north", "east")  # fewer than workers, so that all of them are wanted all the time
LONG = ("south", "west")  # held whenever a kill comes, and wanted by others as soon as the server is back
SHORT_HOLD, LONG_HOLD = 0.01, 3.0  # seconds: a hand-over; more than an outage and several renewals
ONE_IN = 4  # turns is about a long lock: a forgetful server would be caught soon after its return
TTLS = (1.0, 2.0)  # seconds: some leases outlive an outage, others expire in it
JOBS = 10  # per turn: about as much time goes into marks and results as into the lock, so that kills meet both
PATIENCE = (5.0, 1.0)  # seconds, by turns for each two workers: one sits an outage out, the other gives up and undoes
WAIT = 2.0  # seconds for a short lock: Busy then means trouble. A long one is not waited for: there is other work
RUN_TTL = 5.0  # seconds for a claim's winner to publish: as long as the patient ask a store that is gone
KEEP = 3600.0  # seconds: marks and results must be there when the run is judged, minutes later


class Turn(NamedTuple):
    """What one turn is about, drawn from the worker's seed."""

    lock: str
    ttl: float
    wait: float
    hold: float
    jobs: list[str]


def drawn(chance: random.Random, worker: int, turn: int) -> Turn:
    """The worker's next turn; the jobs are those that its partner has in its turn of that number."""
    long = chance.randrange(ONE_IN) == 0
    lock, wait, hold = (chance.choice(LONG), 0.0, LONG_HOLD) if long else (chance.choice(SHORT), WAIT, SHORT_HOLD)
    jobs = [f"{worker // 2}-{turn}-{number}" for number in range(JOBS)]
    return Turn(lock, chance.uniform(*TTLS), wait, hold, jobs)


def patience(worker: int) -> float:
    """How long this worker's client asks a store that does not answer."""
    return PATIENCE[worker // 2 % 2]


def publishing(job: str, value: str) -> Flow[bool]:
    """True if the value is now the job's acknowledged result; False if the job is, or was, another's."""
    owner: str = yield Ask.OWNER
    key = f"claim/{job}"
    claim: Entry = yield Acquire(key, owner, RUN_TTL)
    if claim.owner != owner:
        return False
    done: Entry = yield Finish(key, owner, values.encode(value), KEEP)
    return done.state is State.DONE and done.owner == owner


def work(url: str, diary: Diary, worker: int, chance: random.Random, stop: threading.Event) -> None:
    """Turn after turn with the blocking client."""
    with solely.Client(url, timeout=patience(worker), hooks=[diary.told]) as once:
        print("ready", flush=True)
        while not stop.is_set():
            turn = drawn(chance, worker, diary.turn)
            with diary.step(turn.lock), once.lock(turn.lock, ttl=turn.ttl, wait=turn.wait) as lease:
                for pause in diary.holding(lease, turn.hold):
                    time.sleep(pause)
            for job in turn.jobs:
                with diary.step(job):
                    diary.note("first", job, once.first(job, ttl=KEEP))
                value = f"{worker} did {job}"
                with diary.step(job):
                    if once._run(publishing(job, value)):
                        diary.note("result", job, value)
            diary.turn += 1


async def work_async(url: str, diary: Diary, worker: int, chance: random.Random, stop: threading.Event) -> None:
    """The same with the asyncio client, which cancels the body of a lost lease."""
    async with solely.AsyncClient(url, timeout=patience(worker), hooks=[diary.told]) as once:
        print("ready", flush=True)
        while not stop.is_set():
            turn = drawn(chance, worker, diary.turn)
            with diary.step(turn.lock):
                async with once.lock(turn.lock, ttl=turn.ttl, wait=turn.wait) as lease:
                    for pause in diary.holding(lease, turn.hold):
                        await asyncio.sleep(pause)
            for job in turn.jobs:
                with diary.step(job):
                    diary.note("first", job, await once.first(job, ttl=KEEP))
                value = f"{worker} did {job}"
                with diary.step(job):
                    if await once._run(publishing(job, value)):
                        diary.note("result", job, value)
            diary.turn += 1


def _stop_at_end_of_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main(url: str, path: str, number: str, seed: str) -> None:
    """Works until standard input ends, which it does with the conductor, however that one ends."""
    logging.getLogger("solely").addHandler(logging.NullHandler())  # what matters of an outage is in the diary
    stop = threading.Event()
    threading.Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
    worker, chance = int(number), random.Random(f"{seed}:{number}")
    with Diary(Path(path), worker) as diary:
        if worker % 2:
            asyncio.run(work_async(url, diary, worker, chance, stop))
        else:
            work(url, diary, worker, chance, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
