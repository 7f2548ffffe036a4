"""Publishers send notifications to people: webhook, Slack, e-mail, a program, the log. Each has its own timeout, quick
retries and breaker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .... import AsyncClient, InvalidInput
from ....kit import check_bounds, check_names
from ..model import Alert, Notification
from . import slack, webhook
from .command import CommandPublisher
from .log import LogPublisher
from .mail import EmailPublisher
from .publisher import PostPublisher, PublishFailed
from .settings import (
    CommandSettings,
    EmailSettings,
    LogSettings,
    Match,
    PublisherSettings,
    SlackSettings,
    WebhookSettings,
)

__all__ = [
    "CommandSettings",
    "EmailSettings",
    "LogSettings",
    "Match",
    "PublishFailed",
    "Publisher",
    "PublisherSettings",
    "SlackSettings",
    "WebhookSettings",
    "build",
]

MAX_PUBLISHERS = 32  # each is a metric label and a call per alert; for more, put a router behind one of them


class Publisher(Protocol):
    """Sends notifications to one receiver."""

    @property
    def name(self) -> str:
        """Its name in the settings."""

    def wants(self, alert: Alert) -> bool:
        """True if its `match` selects this alert."""

    async def publish(self, notification: Notification) -> None:
        """Returns when the receiver has it; else raises PublishFailed, within its timeout or little more."""

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""


def build(settings: Sequence[PublisherSettings], *, once: AsyncClient) -> list[Publisher]:
    """The publishers, in the order of their settings; InvalidInput if these are invalid."""
    if len(settings) > MAX_PUBLISHERS:
        raise InvalidInput(f"{len(settings)} publishers; the most is {MAX_PUBLISHERS}")
    check_names(settings, "publishers")
    for each in settings:
        check_bounds(each, "publisher")
    return [_publisher(each, once) for each in settings]


def _publisher(settings: PublisherSettings, once: AsyncClient) -> Publisher:
    match settings:
        case WebhookSettings():
            return PostPublisher(settings, once, webhook.request)
        case SlackSettings():
            return PostPublisher(settings, once, slack.request)
        case CommandSettings():
            return CommandPublisher(settings, once)
        case EmailSettings():
            return EmailPublisher(settings, once)
        case LogSettings():
            return LogPublisher(settings)
