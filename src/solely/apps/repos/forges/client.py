"""The writing half of the seam to a forge: what a job asks of GitLab or GitHub, and posts there."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from .... import PermanentFailure
from ..model import RepoJob
from .comments import CommentSite


class GitLogin(NamedTuple):
    """The user name and the password for git over HTTP, which are sent to no other `origin` (https://host). Without an
    origin, repositories are folders of this machine."""

    origin: str
    user: str
    password: str


class ForgeClient(Protocol):
    """The writing half of a forge. Each call may raise CallFailed, as outgoing calls do."""

    name: str
    login: GitLogin

    def head_ref(self, job: RepoJob) -> str:
        """The ref of the target repository that has the head of the merge request, also if it comes from a fork."""

    async def has_project(self, id: int, path: str) -> bool:
        """False if the forge says that this is the id of another project, or the path of another one."""

    async def completed(self, job: RepoJob) -> RepoJob:
        """The job with the branches and the repositories of its merge request, as the forge itself has them: a sender
        of events may name any. A fork that is gone, or hidden from us, has no URL. Raises OtherProject if the event
        names another project than the forge has under its id or path."""

    def comments(self, job: RepoJob) -> CommentSite:
        """The comments on the job's merge request."""

    async def find_merge_request(self, job: RepoJob, branch: str, marker: str) -> str:
        """The URL of the merge request of this branch that has the marker, or else of the open one; "" if there is
        none."""

    async def create_merge_request(self, job: RepoJob, branch: str, title: str, text: str) -> str:
        """Creates the merge request of this branch into the job's target branch; returns its URL."""


class OtherProject(PermanentFailure):
    """The event calls a project by the id of one and the path of another: it is forged, or one was just renamed."""


def check_project(job: RepoJob, found: int | str, named: int | str) -> None:
    """Raises OtherProject unless what the forge has is what the event names."""
    if found and named and found != named:
        raise OtherProject(f"the event of {job.key} names the project {named}, and the forge has {found} there")


class ForgeAccess(msgspec.Struct, frozen=True):
    """A forge, and the variables with which git trusts it."""

    client: ForgeClient
    tls: dict[str, str] = {}
