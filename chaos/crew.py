"""The worker processes of a round: started, killed, stopped, continued and replaced, each by its own id."""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

from solely.rules import local_clock

from .worker import Job, run

ENDS_WITHIN = 90.0  # seconds for a worker to end its turn: it waits at most 60 s for anything, on a busy machine more
READY_WITHIN = 180.0  # seconds for a worker to be at work: a new interpreter on a busy machine takes half a minute
LOOK = 0.01  # seconds between two looks at a process
# Starting a process also looks which others have ended, and two threads must not both learn that of one process.
_looking = threading.Lock()


def forked() -> ForkServerContext:
    """Workers are forked from a process that has imported everything: each takes milliseconds to start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chaos.preloaded"])
    return context


def spawned() -> SpawnContext:
    """Workers are new interpreters, which take their environment from ours: as a preloaded library needs it."""
    return multiprocessing.get_context("spawn")


class Member:
    """One worker process and the job that it has."""

    def __init__(self, job: Job, context: ForkServerContext | SpawnContext) -> None:
        self.job = job
        orders, self._orders = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(target=run, args=(job, orders), daemon=True)
        with _looking:
            self.process.start()
        orders.close()
        self.ended = False

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        with _looking:
            return self.process.exitcode

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def join(self, seconds: float) -> None:
        """Returns when it has ended, or after that long."""
        ends = local_clock() + seconds
        while self.alive and local_clock() < ends:
            time.sleep(LOOK)

    @property
    def is_stopped(self) -> bool:
        """True if it is stopped by a signal now."""
        with suppress(OSError, IndexError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def send(self, how: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, how)

    def stop(self) -> None:
        """Tells it to end after its present turn."""
        with suppress(OSError):
            self._orders.send("stop")

    def close(self) -> None:
        """Closes what it was reached by, after it has ended."""
        self._orders.close()
        with suppress(ValueError):  # it did not end
            self.process.close()


class Crew:
    """All workers of a round. Those that were killed stay known: their logs are evidence."""

    def __init__(self, context: ForkServerContext | SpawnContext | None = None) -> None:
        self._context = context or forked()
        self.members: list[Member] = []
        self.failed: list[str] = []  # what went wrong with a worker itself

    def add(self, job: Job) -> Member:
        member = Member(job, self._context)
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.alive]

    def ready(self) -> None:
        """Returns when every worker is at work."""
        self._until(lambda: all(_has(member.job.log, b'"ready"') or not member.alive for member in self.members))

    def replace(self, member: Member) -> Member:
        """Starts a worker with the job of one that was killed, and a log of its own."""
        job = member.job
        number = max(each.job.number for each in self.members) + 1
        number += (number - job.number) % 2  # the same kind of client
        log = job.log.with_name(f"{job.log.stem.partition('+')[0]}+{number}.jsonl")
        begun = job.log.read_bytes().count(b'"call"') if job.log.exists() else 0  # it may have been killed at once
        done = job.settings.get("done", 0) + begun
        return self.add(job._replace(log=log, number=number, settings={**job.settings, "done": done}))

    def kill(self, member: Member) -> None:
        """SIGKILL, now."""
        member.send(signal.SIGKILL)
        member.join(ENDS_WITHIN)
        member.ended = True

    def killed_by_themselves(self) -> list[Member]:
        """Workers that killed themselves at a named point since the last call."""
        gone = [each for each in self.members if each.exit_code == -signal.SIGKILL and not each.ended]
        for member in gone:
            member.ended = True
        return gone

    def finish(self) -> None:
        """Ends all workers; notes those that did not end, or that failed."""
        for member in self.members:
            member.stop()
        ends = local_clock() + ENDS_WITHIN
        for member in self.members:
            while member.alive and local_clock() < ends:
                member.send(signal.SIGCONT)  # it may stop itself until it looks for orders
                member.join(0.2)
            if member.alive:
                self.failed.append(f"worker {member.job.number} ({member.job.workload}) did not end")
                self.kill(member)
            elif (code := member.exit_code) not in (0, -signal.SIGKILL):
                self.failed.append(f"worker {member.job.number} ({member.job.workload}) ended with {code}")

    def _until(self, condition: Callable[[], bool]) -> None:
        ends = local_clock() + READY_WITHIN
        while not condition():
            if local_clock() > ends:
                raise TimeoutError(f"the workers were not at work within {READY_WITHIN:g} s")
            time.sleep(LOOK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.alive:
            self.kill(member)
        for member in self.members:
            member.close()

    def any(self, chance: random.Random) -> Member | None:
        """One of those that are alive and not stopped; None if there is none."""
        running = [member for member in self.alive if not member.is_stopped]
        return chance.choice(running) if running else None


def _has(path: Path, text: bytes) -> bool:
    with suppress(FileNotFoundError):
        return text in path.read_bytes()
    return False
