"""The application as webhooks and pollers reach it: a service of its own, whose jobs stay in the queue."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx2
import msgspec

from solely import WatermarkInfo
from solely.apps.repos.app import ReposApp
from solely.apps.repos.forges.forge import PolledSource
from solely.apps.repos.model import RepoJob, own
from tests.apps.operator import Operator, operating
from tests.apps.repos.forge_server import TOKEN, Forges

HOOK_TOKEN = "hook-token-of-these-tests"
SECRET = "github-secret-of-these-tests"
SELDOM = 86_400  # seconds between polls: tests poll themselves


class Receiving:
    """A service with the application, as forges call it."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.service = operator, operator.service
        app = self.service.service.apps["repos"]
        assert isinstance(app, ReposApp)
        self.app = app

    def gitlab(self, event: dict[str, Any], token: str = HOOK_TOKEN, **headers: str) -> httpx2.Response:
        """What GitLab is answered."""
        given = {"x-gitlab-token": token, "x-gitlab-event": "Merge Request Hook", **_names(headers)}
        return self.service.http.post("/api/repos/gitlab", content=json.dumps(event).encode(), headers=given)

    def github(self, kind: str, event: dict[str, Any], secret: str = SECRET, **headers: str) -> httpx2.Response:
        """What GitHub is answered."""
        body = json.dumps(event).encode()
        signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        given = {"x-hub-signature-256": signature, "x-github-event": kind, "content-type": "application/json"}
        return self.service.http.post("/api/repos/github", content=body, headers={**given, **_names(headers)})

    def jobs(self) -> list[RepoJob]:
        """The jobs that wait, by key."""
        items = self.service.run(self.app.queue("jobs").list(limit=1000))
        return [msgspec.convert(each.payload, RepoJob) for each in items]

    def keys(self) -> list[str]:
        return sorted(each.key for each in self.jobs())

    def finish(self, key: str) -> None:
        """Performs the job as its worker does: the claim is published, and the item acked."""

        async def perform() -> None:
            item = await self.app.queue("jobs").take(ttl=30, id=key)
            assert item is not None
            claim = await self.app.once.claim(own(f"job/{key}"))
            await claim.publish("done")
            await item.ack()

        self.service.run(perform())

    @property
    def sources(self) -> list[PolledSource]:
        return list(self.app.pollers.sources)

    def poll(self, number: int = 0) -> datetime:
        """Polls this source now; returns its watermark."""
        return self.service.run(self.app.pollers.poll(self.sources[number]))

    def watermarks(self) -> list[WatermarkInfo]:
        return self.service.run(self.app.once.watermarks(own("poll/")))

    def letters(self) -> list[Any]:
        """The payloads of what could not be read."""
        return [each.payload for each in self.service.run(self.app.unread.list())]


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def settings_of(forges: Forges | None = None, projects: tuple[int | str, ...] = (), **more: Any) -> dict[str, Any]:
    """Settings with a GitLab and a GitHub, which are the stubs if there are any."""
    url = "https://gitlab.example.org" if forges is None else forges.url
    gitlab = {"url": url, "token": TOKEN, "webhook_tokens": [HOOK_TOKEN], "projects": list(projects)}
    return {
        "gitlab": {**gitlab, "poll_every": SELDOM, **more.pop("gitlab", {})},
        "github": {"webhook_secrets": [SECRET]},
        **more,
    }


@contextmanager
def receiving(settings: dict[str, Any], **service: Any) -> Iterator[Receiving]:
    """A service with these settings of the application."""
    with operating("repos", settings, **service) as operator:
        yield Receiving(operator)
