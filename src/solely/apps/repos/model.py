"""The plain data of the application: jobs, and the keys under which the store holds them."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Literal

import msgspec

from ...kit import DAY, part_of, reserved

own = partial(reserved, "repos")  # a name (of a key, a queue, …) that only this application may write
JOBS = "jobs"  # the queue, and the group of dead letters, in the application's own namespace
FAILURES = "failures"  # the queue of comments that say that a job failed for good
UNREAD = "unread"  # the group of dead letters that could not be read
LONGEST = 400  # bytes of a URL or a key within the name of an entry, which may have 512
MARKER = "<!-- solely"  # begins the hidden marker in each comment of ours
ISSUE_KEEP = 30 * DAY  # the document keeps it while the process runs, which is weeks

JobKind = Literal["review", "command", "issue"]
Origin = Literal["webhook", "poller", "manual"]
REVIEW: JobKind = "review"
COMMAND: JobKind = "command"
ISSUE: JobKind = "issue"


class RepoJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as it waits in the queue under `key`, which is the same whoever reports it: that makes it happen once.

    `project_id`, `mr_iid` and `target_url` are of the project that the merge request goes to; `git_http_url` is of the
    repository that has `source_branch`: a fork if `from_fork`, and empty if that fork is gone or hidden from us. A
    sender that does not know the branches and `head_sha` leaves them empty: GitHub sends comments without them. `at` is
    when it happened there, in seconds of UTC.
    """

    kind: JobKind
    forge: str
    key: str
    project_id: int = 0
    project_path: str = ""
    git_http_url: str = ""
    target_url: str = ""
    from_fork: bool = False
    mr_iid: int = 0
    head_sha: str = ""
    source_branch: str = ""
    target_branch: str = ""
    note_id: int = 0
    text: str = ""
    issue_key: str = ""
    title: str = ""
    author: str = ""
    received_by: Origin = "webhook"
    at: float = 0.0

    @property
    def review_url(self) -> str:
        """The repository in which the merge request is read: the one that it goes to, which has its head as well."""
        return self.target_url or self.git_http_url

    @property
    def keep(self) -> float:
        """Seconds for which the job, once it is done, is not performed again."""
        return ISSUE_KEEP if self.kind == ISSUE else float(DAY)


def review_key(forge: str, project_id: int, mr_iid: int, head_sha: str) -> str:
    """The key of the review of one commit."""
    return f"{_prefix(forge)}review:{project_id}:{mr_iid}:{head_sha}"


def note_key(forge: str, project_id: int, mr_iid: int, note_id: int) -> str:
    """The key of the command in one note."""
    return f"{_prefix(forge)}note:{project_id}:{mr_iid}:{note_id}"


def issue_key(issue: str) -> str:
    """The key of a Jira issue."""
    return f"issue:{issue}"


def _prefix(forge: str) -> str:
    """Keys of GitLab are as the document has them; another forge has ids of its own."""
    return "" if forge == "gitlab" else f"{forge}:"


def claim_key(key: str) -> str:
    """The claim that a worker holds while it performs the job of this key."""
    return own(f"job/{_short(key)}")


def received_key(key: str) -> str:
    """The mark that the job of this key was accepted."""
    return own(f"received/{_short(key)}")


def delivery_key(key: str, delivery: str) -> str:
    """The mark that this delivery of a webhook was accepted; `key` comes first, so that forgetting it finds them."""
    return f"{deliveries_of(key)}{part_of(delivery)}"


def deliveries_of(key: str) -> str:
    """The prefix of the marks of all deliveries of this key."""
    return own(f"delivery/{part_of(key)}/")


def lock_key(git_http_url: str) -> str:
    """The lock of a repository, which the jobs that write to it hold."""
    return own(f"lock:{_short(git_http_url)}")


def _short(text: str) -> str:
    """The text; or its beginning and its digest, if it is too long for the name of an entry."""
    raw = text.encode()
    digest = hashlib.sha256(raw).hexdigest()
    return text if len(raw) <= LONGEST else f"{raw[: LONGEST - len(digest)].decode(errors='ignore')}~{digest}"
