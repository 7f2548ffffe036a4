"""Runs the configured command of a job in its working copy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from ....kit import Program, run_program
from ..model import RepoJob
from .settings import JobCommand

_OURS = "SOLELY_"  # the prefix of the service's own variables, which hold tokens and passwords
_VARIABLE = f"{_OURS}JOB_"
_LONG = frozenset({"text"})  # only on standard input: a variable may have 128 KiB
MAX_OUTPUT = 64 << 10  # bytes of each output: what a forge accepts as a comment
_SECRET = 6  # characters: a shorter value of the environment, such as `true`, is no secret


class CommandFailed(Exception):
    """The command did not exit with 0; `log` is what it printed."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class CommandOutput(NamedTuple):
    """What a command that succeeded printed: its standard output, and both outputs for people who look."""

    text: str
    log: str


async def run_command(settings: JobCommand, job: RepoJob, folder: Path, secrets: Iterable[str]) -> CommandOutput:
    """Runs the command in this folder. Raises CommandFailed if it fails, NotStarted if it cannot be run.

    None of the secrets, nor the values of its environment, appear in its output as it is returned.
    """
    variables = {f"{_VARIABLE}{name.upper()}": _text(value) for name, value in _facts(job).items()}
    program = Program(
        settings.argv,
        msgspec.json.encode(job),
        {**settings.environment, **variables},
        timeout=settings.timeout,
        max_output=MAX_OUTPUT,
        cwd=str(folder),
        inherit=[name for name in os.environ if not name.startswith(_OURS)],
        guarded=True,  # after the ttl another process performs the job
    )
    ended = await run_program(program)
    hidden = [each for each in (*secrets, *settings.environment.values()) if len(each) >= _SECRET]
    out, errors = (_without(each, hidden) for each in (ended.stdout, ended.stderr_tail))
    log = f"{out}\n--- standard error\n{errors}" if errors.strip() else out
    if not ended.ok:
        raise CommandFailed(f"the command {settings.argv[0]} {ended}", log)
    return CommandOutput(out.strip(), log)


def _facts(job: RepoJob) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(job).items() if name not in _LONG}


def _text(value: object) -> str:
    return str(value).replace("\0", " ")[:4096]  # some KiB are enough for a title, and fit in any environment


def _without(output: bytes, secrets: Iterable[str]) -> str:
    text = output.decode(errors="replace").replace("\0", " ")
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text
