"""The endpoints of webhooks. They accept what a request asks for into the queue, and answer at once.

Duplicates, events that are of no interest and events that cannot be read are answered with 200: a forge that gets 4xx
disables its webhook. 401 is for senders without the secret, 503 for an unreachable store: the poller then finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from ... import AsyncDeadLetters, InvalidInput
from ...kit import KIB, Answer, Call, CallFailed, JsonResponse, Route, Webhook
from .figures import RECEIVED
from .forges.commands import CommandRule
from .forges.forge import Header, WebhookReader
from .forges.github.webhook import GitHubWebhooks
from .forges.gitlab.webhook import GitLabWebhooks
from .intake import QUEUED, JobIntake
from .model import RepoJob
from .runtime import ReposRuntime
from .settings import HookSecret, ReposSettings

log = structlog.get_logger("solely.repos")

MAX_BODY = 25 * KIB * KIB  # bytes: what GitHub sends at most, and what GitLab's largest merge requests stay below
HEADERS = {"gitlab": ("x-gitlab-event", "idempotency-key", "x-gitlab-event-uuid")}
HEADERS["github"] = ("x-github-event", "x-github-delivery", "content-type")  # what a reader needs to read it again
_LONG = 1 * KIB * KIB  # bytes: digests of more would stop the event loop for longer than a millisecond or two
_SECRETS = "repos.secrets"  # of a request that was verified
_ASK = 3.0  # seconds for the forge to say whose id it is: it waits ten for our answer
_MOST_KNOWN = 10_000  # projects
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
        self._known: set[tuple[int, str]] = set()  # ids and paths of projects that belong together
        self.auth = Webhook(self._verify, how, self._plausible)

    def _plausible(self, call: Call[Any, Any]) -> bool:
        return self._reader is not None and self._reader.plausible(call.header)

    def _verify(self, call: Call[Any, Any]) -> bool | Awaitable[bool]:
        return asyncio.to_thread(self._verified, call) if len(call.raw) > _LONG else self._verified(call)

    def _verified(self, call: Call[Any, Any]) -> bool:
        secrets = () if self._reader is None else self._reader.speaks_for(call.header, call.raw)
        call.scope[_SECRETS] = secrets
        return bool(secrets)

    async def receive(self, call: Call[None, None]) -> WebhookAnswer | JsonResponse:
        """Accepts the jobs of a webhook's request."""
        secrets: Sequence[HookSecret] = call.scope[_SECRETS]
        try:
            answer = await self.read(call.header, call.raw, secrets)
        except (msgspec.DecodeError, InvalidInput) as error:
            await self._park(call, secrets, error)
            answer = WebhookAnswer(event="unreadable", ignored=f"it cannot be read: {error}")
        self._app.service.metrics.count(RECEIVED, self._name, answer.event)
        fresh = any(each.outcome == QUEUED for each in answer.jobs)
        return JsonResponse(202, answer) if fresh else answer

    async def read(self, header: Header, body: bytes, secrets: Sequence[HookSecret]) -> WebhookAnswer:
        """Accepts what the request asks for in a project for which one of the secrets speaks; msgspec.DecodeError if it
        cannot be read."""
        assert self._reader is not None, "nothing is authentic without a reader"
        intake: JobIntake = self._app.intake
        event, delivery, jobs, ignored = self._reader.read(header, body)
        if other := [job for job in jobs if not await self._may_report(secrets, job)]:
            jobs, ignored = (), f"the secret of this hook does not speak for {other[0].project_path}"
            log.warning("webhook_of_other_project", forge=self._name, project=other[0].project_path)
        if not jobs:
            intake.record(f"ignored: {ignored}", self._name, "webhook", event)
        found = [ReceivedJob(job.key, await intake.accept(job, delivery)) for job in jobs]
        return WebhookAnswer(event=event, jobs=tuple(found), ignored=ignored)

    async def _may_report(self, secrets: Sequence[HookSecret], job: RepoJob) -> bool:
        """True if one of the secrets speaks for the project of the job. Keys have its id: if only its path is
        permitted, the forge is asked whether they belong together, as one project could use up the jobs of another
        otherwise. A job for which it does not answer is accepted, and finds out itself before it does anything."""
        id, path = job.project_id, job.project_path
        if any(each.covers(id, "") for each in secrets):
            return True
        if not any(each.covers(id, path) for each in secrets):
            return False
        if (id, path) not in self._known:
            try:
                async with asyncio.timeout(_ASK):
                    if not await self._app.work.forges[self._name].client.has_project(id, path):
                        return False
            except (TimeoutError, CallFailed):
                return True
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known.add((id, path))
        return True

    async def _park(self, call: Call[None, None], secrets: Sequence[HookSecret], error: Exception) -> None:
        """Keeps a request that cannot be read as a dead letter, to be replayed by a version that can."""
        log.warning("webhook_unreadable", forge=self._name, error=str(error))
        headers = {name: call.header(name) for name in HEADERS[self._name]}
        body = call.raw[:KEPT_BODY].decode(errors="replace")
        letters: AsyncDeadLetters = self._app.unread
        projects = [list(each.projects) for each in secrets]
        letter = {"forge": self._name, "headers": headers, "body": body, "projects": projects}
        await letters.push(letter, error=error, origin="webhook")

    async def replay(self, payload: Mapping[str, Any]) -> None:
        """Reads the request of a dead letter again; raises what is wrong with it."""
        headers, projects = payload["headers"], payload.get("projects", [[]])  # letters of earlier versions have none
        secrets = [HookSecret(secret="", projects=tuple(each)) for each in projects]  # nosec B106 - it was verified
        await self.read(lambda name: str(headers.get(name, "")), str(payload["body"]).encode(), secrets)


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
