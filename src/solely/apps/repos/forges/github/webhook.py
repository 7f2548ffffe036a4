"""GitHub's webhooks: `pull_request` and `issue_comment`, as JSON or as a form."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Annotated
from urllib.parse import parse_qs

import msgspec

from .....kit import same
from ...model import COMMAND, REVIEW, RepoJob, note_key, review_key
from ...settings import GitHubSettings, HookSecret, hook_secrets
from ..commands import CommandRule
from ..forge import Header, WebhookDelivery, decoder
from ..moments import seconds_of

FORGE = "github"
_SIGNATURE = re.compile("sha256=[0-9a-f]{64}")
_COMMITS = ("opened", "reopened", "synchronize")
# In a public repository anybody may comment; these may push to it as well.
_TRUSTED = ("OWNER", "MEMBER", "COLLABORATOR")


# Owner and name, as they are part of the addresses that are called: nothing in them leads elsewhere.
FullName = Annotated[str, msgspec.Meta(pattern=r"^((?!\.{1,2}/)[\w.-]+/(?!\.{1,2}$)[\w.-]+)?$")]


class GitHubUser(msgspec.Struct):
    """A person."""

    login: str = ""


class GitHubRepository(msgspec.Struct):
    """A repository."""

    id: int
    full_name: FullName = ""
    clone_url: str = ""


class GitHubHead(msgspec.Struct):
    """A branch, its newest commit, and the repository that has it; none if the fork is gone."""

    ref: str = ""
    sha: str = ""
    repo: GitHubRepository | None = None


class PullRequest(msgspec.Struct):
    """A pull request."""

    number: int
    head: GitHubHead
    base: GitHubHead
    title: str = ""
    user: GitHubUser | None = None
    updated_at: str | None = None


class PullRequestEvent(msgspec.Struct):
    """A pull request was opened or changed."""

    action: str
    pull_request: PullRequest
    repository: GitHubRepository


class GitHubIssue(msgspec.Struct):
    """An issue, which is a pull request if it has one."""

    number: int
    title: str = ""
    state: str = "open"
    pull_request: dict[str, object] | None = None


class GitHubComment(msgspec.Struct):
    """A comment."""

    id: int
    body: str | None = None
    user: GitHubUser | None = None
    author_association: str = ""
    created_at: str | None = None


class IssueCommentEvent(msgspec.Struct):
    """A comment was added or changed."""

    action: str
    issue: GitHubIssue
    comment: GitHubComment
    repository: GitHubRepository


_pull_request = decoder(PullRequestEvent)
_comment = decoder(IssueCommentEvent)


class GitHubWebhooks:
    """The reading half of GitHub, see `forge.WebhookReader`."""

    name = FORGE
    how = "X-Hub-Signature-256 by one of the secrets"

    def __init__(self, settings: GitHubSettings, rule: CommandRule) -> None:
        self._secrets = hook_secrets(settings.webhook_secrets)
        self._rule = rule

    def plausible(self, header: Header) -> bool:
        """True if it has what looks like a signature, and is an event with an id, as all of GitHub's are."""
        named = bool(header("x-github-event")) and bool(_SIGNATURE.fullmatch(header("x-hub-signature-256")))
        return bool(self._secrets) and named

    def speaks_for(self, header: Header, body: bytes) -> list[HookSecret]:
        """The secrets that have signed it."""
        given = header("x-hub-signature-256")
        return [each for each in self._secrets if same(given, _signature(each.secret, body))]

    def read(self, header: Header, body: bytes) -> WebhookDelivery:
        """The review or the command that the event asks for; msgspec.DecodeError if it is none of GitHub's."""
        event, delivery = header("x-github-event"), header("x-github-delivery")
        text = _payload(header("content-type"), body)
        if event == "pull_request":
            return self._review(_pull_request(text), delivery)
        if event == "issue_comment":
            return self._command(_comment(text), delivery)
        return WebhookDelivery("other", delivery, ignored="only pull requests and comments are of interest")

    def _review(self, event: PullRequestEvent, delivery: str) -> WebhookDelivery:
        if event.action not in _COMMITS:
            return WebhookDelivery("pull_request", delivery, ignored="it has no new commits")
        request, into = event.pull_request, event.repository
        job = RepoJob(
            kind=REVIEW,
            forge=FORGE,
            key=review_key(FORGE, into.id, request.number, request.head.sha),
            project_id=into.id,
            project_path=into.full_name,
            git_http_url=request.head.repo.clone_url if request.head.repo is not None else "",
            target_url=into.clone_url,
            from_fork=request.head.repo is None or request.head.repo.id != into.id,
            mr_iid=request.number,
            head_sha=request.head.sha,
            source_branch=request.head.ref,
            target_branch=request.base.ref,
            title=request.title,
            author=request.user.login if request.user is not None else "",
            at=seconds_of(request.updated_at),
        )
        return WebhookDelivery("pull_request", delivery, [job])

    def _command(self, event: IssueCommentEvent, delivery: str) -> WebhookDelivery:
        why = self._refusal(event)
        if why:
            return WebhookDelivery("issue_comment", delivery, ignored=why)
        issue, comment, into = event.issue, event.comment, event.repository
        job = RepoJob(
            kind=COMMAND,
            forge=FORGE,
            key=note_key(FORGE, into.id, issue.number, comment.id),
            project_id=into.id,
            project_path=into.full_name,
            target_url=into.clone_url,
            mr_iid=issue.number,
            note_id=comment.id,
            text=comment.body or "",
            title=issue.title,
            author=comment.user.login if comment.user is not None else "",
            at=seconds_of(comment.created_at),
        )
        return WebhookDelivery("issue_comment", delivery, [job])

    def _refusal(self, event: IssueCommentEvent) -> str:
        """Why the comment is not a command for us; "" if it is one."""
        comment, issue = event.comment, event.issue
        if event.action != "created" or issue.pull_request is None or issue.state != "open":
            return "it is not a new comment on an open pull request"
        why = self._rule.refusal(comment.body or "", comment.user.login if comment.user is not None else "")
        if not why and comment.author_association not in _TRUSTED:
            return "the author is neither owner, member nor collaborator"
        return why


def _signature(secret: str, body: bytes) -> str:
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def _payload(media: str, body: bytes) -> bytes:
    """The JSON of the event, which GitHub sends as a form unless the hook says otherwise."""
    if not media.startswith("application/x-www-form-urlencoded"):
        return body
    try:
        fields = parse_qs(body.decode("ascii", "replace"), max_num_fields=10)
    except ValueError as error:
        raise msgspec.DecodeError(f"the form cannot be read: {error}") from None
    return fields.get("payload", [""])[0].encode()
