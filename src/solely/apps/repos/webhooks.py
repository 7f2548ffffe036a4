"""The endpoints of webhooks. They accept what a request asks for into the queue, and answer at once.

Duplicates, events that are of no interest and events that cannot be read are answered with 200: a forge that gets 4xx
disables its webhook. 401 is for senders without the secret, 503 for an unreachable store: the poller then finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from ... import AsyncDeadLetters, InvalidInput
from ...kit import KIB, Answer, Call, JsonResponse, Route, Webhook
from .figures import RECEIVED
from .forges.commands import CommandRule
from .forges.forge import Header, WebhookReader
from .forges.github.webhook import GitHubWebhooks
from .forges.gitlab.webhook import GitLabWebhooks
from .intake import QUEUED, JobIntake
from .runtime import ReposRuntime
from .settings import ReposSettings

log = structlog.get_logger("solely.repos")

MAX_BODY = 25 * KIB * KIB  # bytes: what GitHub sends at most, and what GitLab's largest merge requests stay below
HEADERS = {"gitlab": ("x-gitlab-event", "idempotency-key", "x-gitlab-event-uuid")}
HEADERS["github"] = ("x-github-event", "x-github-delivery", "content-type")  # what a reader needs to read it again
KEPT_BODY = 128 * KIB  # bytes of a request in a dead letter, which may have 256 KiB with its escapes


class ReceivedJob(msgspec.Struct):
    """A job, and what became of it."""

    key: str
    outcome: str


class WebhookAnswer(Answer):
    """What became of a request: its jobs, or why it has none."""

    event: str
    jobs: tuple[ReceivedJob, ...] = ()
    ignored: str = ""


class ForgeWebhooks:
    """The endpoint of one forge. It accepts nothing until its settings have a secret."""

    def __init__(self, app: ReposRuntime, name: str, reader: WebhookReader | None, how: str) -> None:
        self._app, self._name, self._reader = app, name, reader
        self.auth = Webhook(self._verify, how, self._plausible)

    def _plausible(self, call: Call[Any, Any]) -> bool:
        return self._reader is not None and self._reader.plausible(call.header)

    def _verify(self, call: Call[Any, Any]) -> bool:
        return self._reader is not None and self._reader.authentic(call.header, call.raw)

    async def receive(self, call: Call[None, None]) -> WebhookAnswer | JsonResponse:
        """Accepts the jobs of a webhook's request."""
        try:
            answer = await self.read(call.header, call.raw)
        except (msgspec.DecodeError, InvalidInput) as error:
            await self._park(call, error)
            answer = WebhookAnswer(event="unreadable", ignored=f"it cannot be read: {error}")
        self._app.service.metrics.count(RECEIVED, self._name, answer.event)
        fresh = any(each.outcome == QUEUED for each in answer.jobs)
        return JsonResponse(202, answer) if fresh else answer

    async def read(self, header: Header, body: bytes) -> WebhookAnswer:
        """Accepts what the request asks for; msgspec.DecodeError if it cannot be read."""
        assert self._reader is not None, "nothing is authentic without a reader"
        intake: JobIntake = self._app.intake
        event, delivery, jobs, ignored = self._reader.read(header, body)
        if not jobs:
            intake.record(f"ignored: {ignored}", self._name, "webhook", event)
        found = [ReceivedJob(job.key, await intake.accept(job, delivery)) for job in jobs]
        return WebhookAnswer(event=event, jobs=tuple(found), ignored=ignored)

    async def _park(self, call: Call[None, None], error: Exception) -> None:
        """Keeps a request that cannot be read as a dead letter, to be replayed by a version that can."""
        log.warning("webhook_unreadable", forge=self._name, error=str(error))
        headers = {name: call.header(name) for name in HEADERS[self._name]}
        body = call.raw[:KEPT_BODY].decode(errors="replace")
        letters: AsyncDeadLetters = self._app.unread
        await letters.push({"forge": self._name, "headers": headers, "body": body}, error=error, origin="webhook")

    async def replay(self, payload: Mapping[str, Any]) -> None:
        """Reads the request of a dead letter again; raises what is wrong with it."""
        headers = payload["headers"]
        await self.read(lambda name: str(headers.get(name, "")), str(payload["body"]).encode())


def readers(settings: ReposSettings) -> dict[str, WebhookReader]:
    """The reading half of each forge that the settings have."""
    rule = CommandRule(settings.command, frozenset(settings.authors))
    found: dict[str, WebhookReader] = {}
    if settings.gitlab is not None:
        found["gitlab"] = GitLabWebhooks(settings.gitlab, rule)
    if settings.github is not None:
        found["github"] = GitHubWebhooks(settings.github, rule)
    return found


def endpoints(app: ReposRuntime) -> dict[str, ForgeWebhooks]:
    """The endpoint of each forge."""
    known = readers(app.settings)
    kinds = {"gitlab": GitLabWebhooks.how, "github": GitHubWebhooks.how}
    return {name: ForgeWebhooks(app, name, known.get(name), how) for name, how in kinds.items()}


def routes(of_forges: Mapping[str, ForgeWebhooks]) -> list[Route]:
    """The routes of webhooks."""
    titles = {"gitlab": "Receive merge request and note events of GitLab"}
    titles["github"] = "Receive pull_request and issue_comment events of GitHub"
    return [
        Route(
            "POST",
            f"/api/repos/{name}",
            each.auth,
            each.receive,
            titles[name],
            others={202: WebhookAnswer},
            cap=MAX_BODY,
            over_max_body=True,
            again="Nothing more: a job is known by its delivery and by its key.",
        )
        for name, each in of_forges.items()
    ]
