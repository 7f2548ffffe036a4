"""A demonstration without any forge: merge requests of a repository in a temporary folder are reported several times,
and their jobs are performed for real, with clones, commands, locks and pushes."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from itertools import count
from typing import Any

import msgspec

from ... import QueueWorker, SolelyError
from ...kit import NotStarted, Program, run_program
from .forges.client import ForgeAccess, GitLogin
from .forges.comments import PostedComment
from .jobs.assembly import assembled
from .jobs.performer import PREFIX
from .jobs.settings import JobCommand, JobSettings
from .model import Origin, RepoJob, note_key, review_key
from .runtime import ReposRuntime

_FORGE, _BRANCH = "demo", "change"
_PAUSE = (2.0, 6.0)  # seconds between two reports: enough to watch, too little to be bored
_REPORTS: tuple[Origin, ...] = ("webhook", "webhook", "poller")  # by the hooks of the group and of the project
_TITLES = ("Add retries", "Fix the build", "Update the docs", "Remove dead code", "Speed up the import")
_REVIEW = 'sleep 2; echo "Read $(ls | wc -l) files of $SOLELY_JOB_TITLE: it looks good."'
_COMMAND = 'sleep 3; echo "$SOLELY_JOB_KEY" >> work.txt; echo "Done, as $SOLELY_JOB_AUTHOR asked."'
_FLAKY = 'test $((SOLELY_JOB_MR_IID % 5)) -ne 0 || { echo "the tests fail" >&2; exit 1; }'
_STREAM = """commit refs/heads/main
committer Demo <demo@localhost> 0 +0000
data 5
Begin
M 100644 inline README.md
data 5
Demo

reset refs/heads/change
from refs/heads/main

"""


class DemoForge:
    """A forge in memory."""

    name = _FORGE
    login = GitLogin("", "", "")

    def __init__(self) -> None:
        self._posted: dict[int, str] = {}
        self._numbers = count()

    def head_ref(self, job: RepoJob) -> str:
        """As ForgeClient."""
        return "refs/heads/main"

    async def has_project(self, id: int, path: str) -> bool:
        """As ForgeClient."""
        return True

    async def completed(self, job: RepoJob) -> RepoJob:
        """As ForgeClient."""
        return job

    def comments(self, job: RepoJob) -> DemoForge:
        """As ForgeClient: all merge requests share theirs."""
        return self

    async def find(self, marker: str) -> list[PostedComment]:
        """As CommentSite."""
        return [PostedComment(number, _FORGE) for number, text in self._posted.items() if marker in text]

    async def add(self, text: str) -> None:
        """As CommentSite; the last hundred are enough."""
        number = next(self._numbers)
        self._posted[number] = text
        self._posted.pop(number - 100, None)

    async def remove(self, id: int) -> None:
        """As CommentSite."""
        self._posted.pop(id, None)

    async def user(self) -> str:
        """As CommentSite."""
        return _FORGE

    async def find_merge_request(self, job: RepoJob, branch: str, marker: str) -> str:
        """As ForgeClient."""
        return ""

    async def create_merge_request(self, job: RepoJob, branch: str, title: str, text: str) -> str:
        """As ForgeClient."""
        return f"demo:{branch}"


async def demo(app: ReposRuntime) -> None:
    """Reports and performs jobs until it is cancelled; does nothing on a machine without git."""
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}demo-", ignore_cleanup_errors=True) as folder:
        try:
            head = await _repository(folder)
        except NotStarted:
            return
        app.in_demo = True
        async with asyncio.TaskGroup() as tasks:
            for worker in _workers(app, folder):
                tasks.create_task(worker.run())
            tasks.create_task(_report(app, folder, head))


def _workers(app: ReposRuntime, folder: str) -> list[QueueWorker]:
    settings = JobSettings(
        review=JobCommand(argv=("sh", "-c", _REVIEW)),
        command=JobCommand(argv=("sh", "-c", f"{_FLAKY}; {_COMMAND}")),
        max_attempts=2,
        at_once=3,
        folder=folder,
    )
    work = assembled(app.job_services, settings, {_FORGE: ForgeAccess(DemoForge())})
    return app.workers_of(settings, work)


async def _report(app: ReposRuntime, folder: str, head: str) -> None:
    number = int(time.time()) % 1_000_000  # so that a restarted demonstration has other merge requests
    while True:
        number += 1
        job = _review(number, folder, head) if number % 2 else _command(number, folder)
        try:
            for origin in _REPORTS:
                await app.intake.accept(msgspec.structs.replace(job, received_by=origin))
        except SolelyError:
            pass  # the store is away, as the page says: the next one is reported later
        await asyncio.sleep(random.uniform(*_PAUSE))


def _review(number: int, folder: str, head: str) -> RepoJob:
    key = review_key(_FORGE, 1, number, head)
    return RepoJob(kind="review", key=key, head_sha=head, **_common(number, folder))


def _command(number: int, folder: str) -> RepoJob:
    key, text = note_key(_FORGE, 1, number, number), "/copilot do it"
    return RepoJob(kind="command", key=key, note_id=number, text=text, **_common(number, folder))


def _common(number: int, folder: str) -> dict[str, Any]:
    return {
        "forge": _FORGE,
        "project_id": 1,
        "project_path": "demo/project",
        "git_http_url": folder,
        "mr_iid": number,
        "source_branch": _BRANCH,
        "target_branch": "main",
        "title": random.choice(_TITLES),
        "author": random.choice(("ann", "bob", "eve")),
        "at": time.time(),
    }


async def _repository(folder: str) -> str:
    """Makes a repository in this folder; returns its first commit. Raises NotStarted if there is no git."""
    for argv, stdin in ((("init", "--quiet", "--bare", "."), ""), (("fast-import", "--quiet"), _STREAM)):
        await run_program(Program(("git", *argv), stdin.encode(), cwd=folder))
    return (await run_program(Program(("git", "rev-parse", "main"), cwd=folder))).stdout.decode().strip()
