"""solely cron: runs the jobs of a file as programs, each tick on one of all the hosts that run the same file."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click

from ..client import AsyncClient
from ..errors import InvalidInput
from ..folder import read_toml
from ..leases.lease import AsyncLease
from ..logs import printable
from ..programs import SHELL, NotStarted, Program, run
from ..rules import duration
from ..schedules.calls import Tick
from ..schedules.handle import AsyncSchedule
from .help import Command
from .options import DURATION, StoreOptions, at_passed_store, in_form
from .output import Form, talk

GRACE = "30s"  # for jobs to end after a signal: what most process managers allow before they kill
_COMMON = {"tz": str, "jitter": (str, int, float), "misfire": str, "ttl": (str, int, float)}
_OF_A_JOB: dict[str, Any] = {
    **_COMMON, "schedule": (str, int, float), "command": (str, list), "timeout": (str, int, float),
    "max_hold": (str, int, float), "cwd": str, "environment": dict,
}  # fmt: skip


_DURATIONS = ("jitter", "ttl", "timeout", "max_hold")


class ProgramFailed(Exception):
    """The program of a job did not exit with 0."""


@dataclass(frozen=True)
class CronJob:
    """One job of the file: when it is due, and what it runs."""

    name: str
    schedule: str | float
    command: tuple[str, ...]
    options: dict[str, Any]
    timeout: float | None = None
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def on(self, once: AsyncClient) -> AsyncSchedule:
        """Its schedule; raises InvalidInput if that is invalid."""
        try:
            return once.every(self.name, self.schedule, **self.options)
        except InvalidInput as error:
            raise InvalidInput(f"job {self.name!r}: {error}") from None

    async def perform(self, options: StoreOptions, tick: Tick[AsyncLease]) -> None:
        """Runs the program and prints its output; raises ProgramFailed unless it exits with 0."""
        variables = options.environment(SOLELY_TICK=tick.at.isoformat(), SOLELY_FENCE=str(tick.fence))
        try:
            program = Program(
                self.command,
                environment={**variables, **self.environment},
                timeout=self.timeout,
                cwd=self.cwd,
                inherit=(),
                guarded=True,  # after the ttl another host runs the tick
            )
            ended = await run(program)
        except NotStarted as error:
            raise ProgramFailed(str(error)) from None
        for output, stream in ((ended.stdout, sys.stdout), (ended.stderr_tail, sys.stderr)):
            for line in output.decode(errors="replace").splitlines():
                click.echo(f"{self.name}: {printable(line)}", file=stream)
        if not ended.ok:
            raise ProgramFailed(f"the program {ended}")
        talk(f"{self.name}: the run of {tick.at:%Y-%m-%d %H:%M:%S} UTC {ended}")


def read_jobs(path: str) -> list[CronJob]:
    """The jobs of the TOML file; raises InvalidInput, with the place and the reason, if it is invalid."""
    try:
        content = read_toml(path)
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise InvalidInput(f"{path} is not TOML: {error}") from None
    jobs = content.pop("jobs", {})
    _check(path, content, _COMMON)
    if not isinstance(jobs, dict) or not jobs:
        raise InvalidInput(f"{path} has no jobs: give each a section such as [jobs.report], with schedule and command")
    return [_job(f"{path}, job {name!r}", name, given, content) for name, given in jobs.items()]


def _job(where: str, name: str, given: Any, common: dict[str, Any]) -> CronJob:
    if not isinstance(given, dict):
        raise InvalidInput(f"{where}: must be a section, not {given!r:.40}")
    _check(where, given, _OF_A_JOB)
    for wanted in ("schedule", "command"):
        if wanted not in given:
            raise InvalidInput(f"{where}: has no {wanted}")
    command, environment = given["command"], given.get("environment", {})
    words = (SHELL, "-c", command) if isinstance(command, str) else tuple(command)
    texts = (*words, *environment, *environment.values())
    if not words or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"{where}: command must be a text or a list of texts, and environment a table of texts")
    plain = {key: _plain(where, key, value) for key, value in {**common, **given}.items()}
    options = {key: value for key, value in plain.items() if key in (*_COMMON, "max_hold")}
    timeout = plain.get("timeout")
    if timeout is not None and not timeout > 0:
        raise InvalidInput(f"{where}: timeout={timeout:g} must be more than 0; leave it out for none")
    return CronJob(name, given["schedule"], words, options, timeout, given.get("cwd"), environment)


def _check(where: str, given: dict[str, Any], known: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if key not in known:
            raise InvalidInput(f"{where}: there is no setting {key!r:.40}; there are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, known[key]):
            raise InvalidInput(f"{where}: {key} is {value!r:.40}, which has the wrong type")


def _plain(where: str, key: str, value: Any) -> Any:
    """The value; a duration such as "30s" in seconds."""
    if key not in _DURATIONS or not isinstance(value, str):
        return value
    try:
        return duration(value)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {key}: {error}") from None


@click.command(cls=Command, examples=["solely cron jobs.toml --check", "solely cron jobs.toml --grace 1m"])
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Check the file and print when each job is due next; run nothing.")
@click.option("--grace", type=DURATION, default=GRACE, show_default=True, help="Time for jobs to end after a signal.")
@in_form
@at_passed_store
def cron(options: StoreOptions, form: Form, file: str, check: bool, grace: float) -> None:
    """Runs the jobs of FILE at their times, until it is stopped.

    Start it on as many hosts as you like: each tick of a job is run by one of them. A program that fails is not run
    again before its next tick. SIGTERM and SIGINT stop it: jobs that run have --grace to end.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    asyncio.run(_run(options, form, read_jobs(file), check, grace))


async def _run(options: StoreOptions, form: Form, jobs: list[CronJob], check: bool, grace: float) -> None:
    async with AsyncClient(options.url, timeout=options.timeout, credentials=options.credentials) as once:
        schedules = {job.name: job.on(once) for job in jobs}
        if check:
            rows = [{"job": name, "when": each.when, "next": each.next_at()} for name, each in schedules.items()]
            form.rows(rows, ("job", "when", "next"))
            return
        tasks = [asyncio.create_task(schedules[job.name].run(partial(job.perform, options))) for job in jobs]
        await _until_stopped(tasks, list(schedules.values()), grace)


async def _until_stopped(tasks: list[asyncio.Task[None]], schedules: list[AsyncSchedule], grace: float) -> None:
    """Waits for a signal, and then for the jobs; a second signal, or the end of the grace, cancels them."""
    signals = StopSignals()
    running = asyncio.gather(*tasks)
    await _either(running, signals.first)
    for schedule in schedules:
        schedule.stop()
    if not running.done():
        talk("solely cron: stopping; the jobs that run have time to end")
        await _either(running, signals.second, grace)
    for task in tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await asyncio.gather(*tasks, return_exceptions=True)


async def _either(running: asyncio.Future[Any], event: asyncio.Event, timeout: float | None = None) -> None:
    """Waits until either happens, at most so long."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({running, waiting}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


class StopSignals:
    """SIGTERM and SIGINT: the first one asks to stop, the second one to stop at once."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._arrived)

    def _arrived(self) -> None:
        (self.second if self.first.is_set() else self.first).set()
