"""A worker process: opens a client, does the work of one workload until it is told to stop, and logs what it observes.

It uses the public API only. Every second worker has the asyncio client, the others the blocking one; a workload is
written once, and `answer` takes the replies of both.
"""

import asyncio
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from inspect import isawaitable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import solely
from solely.events import Retried
from solely.rules import local_clock
from solely.testing.linearizability import UNANSWERED

from .observations import Call, ObservationLog

LATE = 0.8  # of the ttl: a grant that takes longer may have been lost (locally after 0.99 of it), and repeated


class Job(NamedTuple):
    """All that a worker process is told."""

    workload: str  # the name of its module in chaos.workloads
    url: str
    log: Path
    number: int
    seed: str
    settings: dict[str, Any]  # of the workload
    timeout: float = 5.0  # of the client
    kill_at: str = ""  # a named point at which it kills itself, one time in `one_in`
    stop_at: str = ""  # a named point at which it stops itself (SIGSTOP), one time in `one_in`
    one_in: int = 10
    mutant: str = ""  # module:function of a bug to plant before it begins


class Worker:
    """What a workload has: a client, a log, a source of chance, and the named points at which a fault may strike."""

    def __init__(self, job: Job, once: Any, log: ObservationLog) -> None:
        self.job = job
        self.once = once
        self.log = log
        self.number = job.number
        self.chance = random.Random(job.seed)
        self.stopped = False
        self._owners = 0

    def fresh_owner(self) -> str:
        """A name for one attempt, unique in its round."""
        self._owners += 1
        return f"{self.number}.{self._owners}"

    def point(self, name: str) -> None:
        """A named point of the work: a fault may kill or stop the process here."""
        if name not in (self.job.kill_at, self.job.stop_at) or self.stopped:
            return
        if self.chance.randrange(self.job.one_in) == 0:
            self.log.note("stop" if name == self.job.stop_at else "kill", name)
            os.kill(os.getpid(), signal.SIGSTOP if name == self.job.stop_at else signal.SIGKILL)

    async def rest(self, seconds: float) -> None:
        """Sleeps; the keeper of an asyncio client goes on meanwhile."""
        await asyncio.sleep(seconds)

    async def after(self, answered: bool) -> None:
        """Rests after a call that got nothing: longer if it got no answer, so that an outage does not fill the history
        with calls that may have happened."""
        await self.rest(self.chance.uniform(0.001, 0.02) if answered else self.chance.uniform(0.1, 0.3))

    def undone(self, call: Call, key: str, acquire: str, release: str, owner: str, ttl: float) -> None:
        """Logs what a call may have done besides its answer, as calls that may or may not have happened.

        An unanswered request may have been granted, and was then undone. A grant that arrived after its lease had
        expired is given back, and the call tries again with a fresh owner: which takes at least most of the ttl.
        """
        late = call.answered and local_clock() - call.begin > LATE * ttl
        if late:
            self._unknown(key, acquire, f"{owner}-late", call.begin, ttl)
        if late or not call.answered:
            self._unknown(key, release, f"{owner}-late" if late else owner, call.begin)

    def maybe_resumed(self, call: Call, key: str, owner: str, successor: str, ttl: float) -> None:
        """As `undone`, of a resume: one that was not answered, or too late, may have been granted, and was released."""
        late = call.answered and local_clock() - call.begin > LATE * ttl
        if late:
            self._unknown(key, "resume", owner, call.begin, successor, ttl)
        if late or not call.answered:
            self._unknown(key, "release", successor, call.begin)

    def _unknown(self, key: str, name: str, owner: str, begin: float, *given: Any) -> None:
        self.log.note("unknown", key, [name, owner, begin, *given])


async def answer(reply: Any) -> Any:
    """What the call returns: at once, or when awaited."""
    return await reply if isawaitable(reply) else reply


def run(job: Job, orders: Connection) -> None:
    """Works until `orders` is closed or has something to read, which happens however the battery ends."""
    logging.getLogger("solely").addHandler(logging.NullHandler())  # the observations have what matters
    if "faketime" in os.environ.get("LD_PRELOAD", ""):
        # libfaketime 0.9 fails the sleep of Python 3.11 with EINVAL; a wait for nothing is a sleep, too.
        time.sleep = _wait_for_nothing
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the battery, which then ends its workers
    if job.mutant:
        module, _, name = job.mutant.partition(":")
        getattr(import_module(module), name)()
    work = import_module(f"chaos.workloads.{job.workload}").work
    with ObservationLog(job.log, job.number) as log:
        asyncio.run(_work(job, orders, log, work))


def _wait_for_nothing(seconds: Any) -> None:
    threading.Event().wait(seconds)


async def _work(job: Job, orders: Connection, log: ObservationLog, work: Callable[[Worker], Awaitable[None]]) -> None:
    kind: type[Any] = solely.AsyncClient if job.number % 2 else solely.Client

    def on_event(event: solely.Event) -> None:
        if isinstance(event, Retried):
            log.note("retry", event.key, event.op)

    me = Worker(job, kind(job.url, timeout=job.timeout, hooks=[on_event]), log)
    threading.Thread(target=_await_orders, args=(orders, me), daemon=True).start()
    log.note("ready", "")
    try:
        await work(me)
    finally:
        await answer(me.once.close())
    log.note("done", "")


def _await_orders(orders: Connection, me: Worker) -> None:
    orders.poll(None)
    me.stopped = True


__all__ = ["LATE", "UNANSWERED", "Job", "Worker", "answer", "run"]
