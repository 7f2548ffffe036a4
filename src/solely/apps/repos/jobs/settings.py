"""The settings of jobs: the part `jobs` of the section [repos]."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .... import InvalidInput
from ....kit import DAY

Span = Annotated[float, msgspec.Meta(ge=1.0, le=float(DAY), description="seconds")]


class JobCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that works in a fresh clone. It gets the job as JSON on standard input and in SOLELY_JOB_… variables,
    and inherits the service's environment without SOLELY_… variables; `environment` adds to it. Its standard output is
    the text that is posted."""

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=256)]
    environment: Annotated[dict[str, str], msgspec.Meta(max_length=64)] = {}
    timeout: Span = 1_800.0  # half an hour: an agent that works for longer is usually lost

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidInput('jobs: argv is empty; give the program and its arguments: ["…", "…"]')
        if any("\0" in text for text in (*self.argv, *self.environment, *self.environment.values())):
            raise InvalidInput("jobs: argv and environment must not contain NUL")


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are performed: `review`, `command` and `issue` are the commands of the three kinds. Jobs of a kind
    without a command are not performed; without any command, all wait in the queue."""

    review: JobCommand | None = None
    command: JobCommand | None = None
    issue: JobCommand | None = None
    at_once: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4  # jobs per worker process: each has a clone and a program
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5  # before a job becomes a dead letter
    # Seconds after which another process takes over from one that died; all is renewed at half of it.
    ttl: Annotated[float, msgspec.Meta(ge=1.0, le=3_600.0)] = 30.0
    lock_wait: Annotated[float, msgspec.Meta(ge=0.0, le=3_600.0)] = 60.0  # for the repository; then others get a turn
    # Between attempts while GitLab, GitHub or Jira is unavailable and does not say for how long.
    outage_pause: Span = 30.0
    git_timeout: Span = 1_800.0  # of one clone or push: repositories of some GiB take minutes
    # Whether commands on merge requests from forks are performed, which pushes to the fork. Reviews always are.
    push_to_forks: bool = False
    # Whether submodules at the forge's origin, and files of Git LFS, are fetched before the command is run.
    submodules: bool = False
    lfs: bool = False
    comment_failures: bool = True  # whether a job that failed for good says so where it would have commented
    folder: str = ""  # where clones are, each until its job ends; by default that for temporary files
    author_name: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[^<>\n\x00]+$")] = "Solely"
    author_email: Annotated[str, msgspec.Meta(pattern=r"^[^<>\s\x00]+@[^<>\s\x00]+$")] = "solely@localhost"

    @property
    def any(self) -> bool:
        """True if jobs of some kind are performed."""
        return any((self.review, self.command, self.issue))
