"""GitLab's webhooks: merge request and note events of projects, groups and the whole instance."""

from __future__ import annotations

import re
import time

import msgspec

from .....kit import same, sign, signing_key
from ...settings import GitLabSettings, HookSecret, hook_secrets
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
_SIGNATURE = re.compile(r"v1,[A-Za-z0-9+/]{43}=")  # of SHA-256 in Base64
_MOST_SIGNATURES = 16
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
        self._tokens = hook_secrets(settings.webhook_tokens)
        self._signing = hook_secrets(settings.signing_tokens)
        self._rule = rule

    def plausible(self, header: Header) -> bool:
        """True if it has one of the tokens, or what looks like a signature of just now."""
        return bool(self._by_token(header)) or bool(self._signing and _theirs(header) and _moment(header))

    def speaks_for(self, header: Header, body: bytes) -> list[HookSecret]:
        """The tokens that it has, and the signing tokens that have signed it, if that is not old."""
        return self._by_token(header) or self._by_signature(header, body)

    def _by_token(self, header: Header) -> list[HookSecret]:
        given = header("x-gitlab-token").encode("latin-1")
        return [each for each in self._tokens if same(given, each.secret)]

    def _by_signature(self, header: Header, body: bytes) -> list[HookSecret]:
        moment, theirs = _moment(header), _theirs(header)
        if not (self._signing and theirs and moment):
            return []
        keys = [signing_key("gitlab: signing_tokens:", each.secret) for each in self._signing]
        ours = sign(header("webhook-id"), moment, body, keys)["webhook-signature"].split()
        return [each for each, mine in zip(self._signing, ours, strict=True) if any(same(mine, it) for it in theirs)]

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


def _theirs(header: Header) -> list[str]:
    """The signatures in the form that Standard Webhooks has, at most as many as a rotation needs."""
    return [each for each in header("webhook-signature").split()[:_MOST_SIGNATURES] if _SIGNATURE.fullmatch(each)]


def _moment(header: Header) -> int:
    """When it was signed, in seconds; 0 if that was long ago, or it does not say."""
    moment = header("webhook-timestamp")
    if not (moment.isascii() and moment.isdigit() and len(moment) <= _MOMENT):
        return 0
    return int(moment) if abs(time.time() - int(moment)) <= TOLERANCE else 0


def _url(project: GitLabProject, request: GitLabMergeRequest) -> str:
    """The URL of the repository that has the source branch: of the project, or of a fork; "" if that one is gone."""
    if not is_fork(project.id, request.source_project_id):
        return project.url
    return request.source.url if request.source is not None else ""
