"""The seam between the application and a forge (GitLab, GitHub): what each of them offers.

The reading half (webhooks) says which jobs a request asks for. The writing half (clients) posts what became of them.
A forge names its ids and texts as GitLab does: `project_id`, `mr_iid`, `note_id`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ..model import RepoJob

Header = Callable[[str], str]  # the value of the header of this name, or ""


class WebhookDelivery(NamedTuple):
    """What a request of a webhook asks for: jobs, or none and the reason why it is ignored. `id` is the same if the
    forge repeats the delivery; "" if it does not say."""

    event: str
    id: str = ""
    jobs: Sequence[RepoJob] = ()
    ignored: str = ""


class WebhookReader(Protocol):
    """The reading half of a forge."""

    name: str  # as in RepoJob.forge
    how: str  # for the documents: which header carries which secret

    def authentic(self, header: Header, body: bytes) -> bool:
        """True if the request is from the forge: a token or a signature, compared in constant time."""

    def read(self, header: Header, body: bytes) -> WebhookDelivery:
        """What the request asks for; msgspec.DecodeError if it is not what this forge sends."""


class Comment(NamedTuple):
    """A comment on a merge request."""

    id: int
    text: str


class ForgeClient(Protocol):
    """The writing half of a forge. All of it may raise CallFailed, as outgoing calls do."""

    name: str

    async def completed(self, job: RepoJob) -> RepoJob:
        """The job with the branches, the head and the URL that the merge request has now."""

    async def find_comment(self, job: RepoJob, marker: str) -> Comment | None:
        """The comment on the job's merge request that contains the marker; None if there is none."""

    async def comment(self, job: RepoJob, text: str) -> None:
        """Adds a comment to the job's merge request."""

    async def find_merge_request(self, job: RepoJob, source_branch: str) -> str | None:
        """The URL of the open merge request of this branch; None if there is none."""

    async def create_merge_request(self, job: RepoJob, source_branch: str, title: str, text: str) -> str:
        """Creates the merge request into the job's target branch; returns its URL."""

    def git_login(self) -> tuple[str, str]:
        """The user name and the password for git over HTTP."""
