"""What GitLab 15 to 18 send to webhooks and list in their API, as far as it is used; all else is ignored."""

from __future__ import annotations

import msgspec

from ...model import COMMAND, REVIEW, Origin, RepoJob, note_key, review_key
from ..moments import seconds_of

FORGE = "gitlab"
OPENED = "opened"


class GitLabUser(msgspec.Struct):
    """A person."""

    username: str = ""


class GitLabProject(msgspec.Struct):
    """A project. Webhooks call its URL `git_http_url`, GitLab's API `http_url_to_repo`."""

    id: int = 0
    path_with_namespace: str = ""
    git_http_url: str = ""
    http_url: str = ""
    http_url_to_repo: str = ""

    @property
    def url(self) -> str:
        """The URL of the repository over HTTP."""
        return self.git_http_url or self.http_url_to_repo or self.http_url


class GitLabCommit(msgspec.Struct):
    """A commit."""

    id: str = ""


class GitLabMergeRequest(msgspec.Struct):
    """A merge request, in webhooks and in the API."""

    iid: int
    source_branch: str = ""
    target_branch: str = ""
    title: str = ""
    state: str = OPENED
    source_project_id: int | None = None  # none if the fork is gone
    target_project_id: int | None = None
    updated_at: str | None = None
    # In webhooks
    action: str | None = None
    oldrev: str | None = None
    last_commit: GitLabCommit | None = None
    source: GitLabProject | None = None
    # In the API
    sha: str | None = None  # none while the merge request has no commits
    author: GitLabUser | None = None

    @property
    def head(self) -> str:
        """The newest commit; "" if there is none."""
        return self.sha or (self.last_commit.id if self.last_commit is not None else "")


class GitLabNote(msgspec.Struct):
    """A note, in webhooks and in the API."""

    id: int
    note: str = ""  # in webhooks
    body: str = ""  # in the API
    noteable_type: str = ""
    system: bool = False
    action: str | None = None  # from GitLab 16 on
    created_at: str | None = None
    author: GitLabUser | None = None  # in the API

    @property
    def text(self) -> str:
        """What was written."""
        return self.note or self.body


def is_fork(project_id: int, source_project_id: int | None) -> bool:
    """True if the source branch is in another project than the merge request goes to, also if that one is gone."""
    return source_project_id != project_id


def review(project: GitLabProject, request: GitLabMergeRequest, url: str, author: str, origin: Origin) -> RepoJob:
    """The review of the newest commit; `url` is of the repository that has the source branch."""
    key = review_key(FORGE, project.id, request.iid, request.head)
    at = seconds_of(request.updated_at)
    return _job(
        RepoJob(kind=REVIEW, forge=FORGE, key=key, author=author, received_by=origin, at=at), project, request, url
    )


def command(
    project: GitLabProject, request: GitLabMergeRequest, url: str, note: GitLabNote, author: str, origin: Origin
) -> RepoJob:
    """The command in this note; `url` is of the repository that has the source branch."""
    key = note_key(FORGE, project.id, request.iid, note.id)
    at = seconds_of(note.created_at)
    job = RepoJob(kind=COMMAND, forge=FORGE, key=key, author=author, received_by=origin, at=at)
    return _job(msgspec.structs.replace(job, note_id=note.id, text=note.text), project, request, url)


def _job(job: RepoJob, project: GitLabProject, request: GitLabMergeRequest, url: str) -> RepoJob:
    """The job with what both kinds have."""
    return msgspec.structs.replace(
        job,
        project_id=project.id,
        project_path=project.path_with_namespace,
        git_http_url=url,
        target_url=project.url,
        from_fork=is_fork(project.id, request.source_project_id),
        mr_iid=request.iid,
        head_sha=request.head,
        source_branch=request.source_branch,
        target_branch=request.target_branch,
        title=request.title,
    )
