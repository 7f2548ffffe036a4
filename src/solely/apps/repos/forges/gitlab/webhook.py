"""GitLab's webhooks: merge request and note events of projects, groups and the whole instance."""

from __future__ import annotations

import time

import msgspec

from .....kit import same, sign, signing_key
from ...settings import GitLabSettings
from ..commands import CommandRule
from ..forge import Header, WebhookDelivery, decoder
from .payloads import (
    FORGE,
    OPENED,
    GitLabMergeRequest,
    GitLabNote,
    GitLabProject,
    GitLabUser,
    command,
    is_fork,
    review,
)

TOLERANCE = 300.0  # seconds that a signed request may be old, or too new: what Standard Webhooks recommends
_MOMENT = 12  # digits of a time in seconds: enough for 30,000 years
_OPENING = ("open", "reopen")
_CREATED = (None, "", "create")  # of a note: GitLab before 16 sends no action


class GitLabKind(msgspec.Struct):
    """Which event it is."""

    object_kind: str = ""


class MergeRequestEvent(msgspec.Struct):
    """A merge request was opened or changed."""

    project: GitLabProject
    object_attributes: GitLabMergeRequest
    user: GitLabUser = msgspec.field(default_factory=GitLabUser)


class NoteEvent(msgspec.Struct):
    """A note was added to something, which is a merge request if there is one."""

    project: GitLabProject
    object_attributes: GitLabNote
    merge_request: GitLabMergeRequest | None = None
    user: GitLabUser = msgspec.field(default_factory=GitLabUser)


_kind = decoder(GitLabKind)
_merge_request = decoder(MergeRequestEvent)
_note = decoder(NoteEvent)


class GitLabWebhooks:
    """The reading half of GitLab, see `forge.WebhookReader`."""

    name = FORGE
    how = "X-Gitlab-Token, or a webhook-signature by a signing token"

    def __init__(self, settings: GitLabSettings, rule: CommandRule) -> None:
        self._tokens = settings.webhook_tokens
        self._keys = [signing_key("gitlab: signing_tokens:", secret) for secret in settings.signing_tokens]
        self._rule = rule

    def plausible(self, header: Header) -> bool:
        """True if it has one of the tokens, or any signature."""
        return self._has_token(header) or (bool(self._keys) and bool(header("webhook-signature")))

    def authentic(self, header: Header, body: bytes) -> bool:
        """True if it has one of the tokens, or a signature by one of the signing tokens that is not old."""
        return self._has_token(header) or (bool(self._keys) and self._signed(header, body))

    def _has_token(self, header: Header) -> bool:
        given = header("x-gitlab-token").encode("latin-1")
        known = [same(given, token) for token in self._tokens]  # all of them, whichever it is
        return any(known)

    def _signed(self, header: Header, body: bytes) -> bool:
        moment = header("webhook-timestamp")
        if not (moment.isascii() and moment.isdigit() and len(moment) <= _MOMENT):
            return False
        if abs(time.time() - int(moment)) > TOLERANCE:
            return False
        ours = sign(header("webhook-id"), int(moment), body, self._keys)["webhook-signature"].split()
        theirs = header("webhook-signature").split()
        return any(same(mine, each) for mine in ours for each in theirs)

    def read(self, header: Header, body: bytes) -> WebhookDelivery:
        """The review or the command that the event asks for; msgspec.DecodeError if it is none of GitLab's."""
        kind = _kind(body).object_kind
        delivery = header("idempotency-key") or header("x-gitlab-event-uuid")
        if kind == "merge_request":
            return self._review(_merge_request(body), delivery)
        if kind == "note":
            return self._command(_note(body), delivery)
        return WebhookDelivery("other", delivery, ignored="only merge requests and notes are of interest")

    def _review(self, event: MergeRequestEvent, delivery: str) -> WebhookDelivery:
        request = event.object_attributes
        with_commits = request.action in _OPENING or (request.action == "update" and bool(request.oldrev))
        if request.state != OPENED or not with_commits or not request.head:
            return WebhookDelivery("merge_request", delivery, ignored="it has no new commits, or is not open")
        url = _url(event.project, request)
        job = review(event.project, request, url, event.user.username, "webhook")
        return WebhookDelivery("merge_request", delivery, [job])

    def _command(self, event: NoteEvent, delivery: str) -> WebhookDelivery:
        note, request, author = event.object_attributes, event.merge_request, event.user.username
        why = self._rule.refusal(note.text, author)
        if request is None or request.state != OPENED or note.system or note.action not in _CREATED:
            why = "it is not a new note on an open merge request"
        if why or request is None:
            return WebhookDelivery("note", delivery, ignored=why)
        url = _url(event.project, request)
        return WebhookDelivery("note", delivery, [command(event.project, request, url, note, author, "webhook")])


def _url(project: GitLabProject, request: GitLabMergeRequest) -> str:
    """The URL of the repository that has the source branch: of the project, or of a fork; "" if that one is gone."""
    if not is_fork(project.id, request.source_project_id):
        return project.url
    return request.source.url if request.source is not None else ""
