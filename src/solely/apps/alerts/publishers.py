"""Publishers send notifications to people: webhook, Slack, e-mail, a program, the log. Each has its own timeout, quick
retries and breaker. Settings have one table per publisher, whose `type` names its kind."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

import msgspec
import structlog

from ... import AsyncClient, InvalidInput
from ...kit import (
    CallFailed,
    MailReceiver,
    MailSender,
    NamedReceiver,
    Program,
    ProgramReceiver,
    ProgramSender,
    ReceiverName,
    Request,
    RequestSender,
    Sender,
    UrlReceiver,
    WebhookReceiver,
    check_bounds,
    check_names,
)
from .messages import event, mail_subject, mail_text, slack_message, variables
from .model import RESOLVED, Alert, Labels, Notification, Status, own

log = structlog.get_logger("solely.alerts")

PublishFailed = CallFailed  # the receiver does not have the notification, as far as is known
MAX_PUBLISHERS = 32  # each is a metric label and a call per alert; for more, put a router behind one of them
_LEVELS = {"critical": logging.ERROR, "info": logging.INFO}  # other firing alerts are warnings


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the alerts that a publisher wants: those that match every field that is set."""

    severities: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    labels: Labels = {}

    def fits(self, alert: Alert) -> bool:
        """True if the alert matches."""
        return (
            (not self.severities or alert.severity in self.severities)
            and (not self.statuses or alert.status in self.statuses)
            and all(alert.labels.get(name) == value for name, value in self.labels.items())
        )


class WebhookSettings(WebhookReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="webhook"):
    """Any receiver of Standard Webhooks."""

    name: ReceiverName = "webhook"
    match: Match = Match()

    def message(self, notification: Notification) -> Request:
        """The notification as a signed event."""
        return self.request(notification.id, event(notification), notification.trace)


class SlackSettings(UrlReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="slack"):
    """An incoming webhook of Slack, or a compatible one: Mattermost, Rocket.Chat, Discord under /slack."""

    name: ReceiverName = "slack"
    match: Match = Match()

    def message(self, notification: Notification) -> Request:
        """The notification as a message."""
        content, secrets = slack_message(notification), self.secret_texts()
        return Request.json("POST", self.url, content, secrets=secrets, repeatable=True)


class CommandSettings(ProgramReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="command"):
    """A program, which gets the notification as JSON on its standard input, and exits with 0 on success."""

    name: ReceiverName = "command"
    match: Match = Match()

    def message(self, notification: Notification) -> Program:
        """The program with its input and its environment."""
        return self.program(event(notification), variables(notification))


class EmailSettings(MailReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="email"):
    """A mail to each of `to`."""

    name: ReceiverName = "email"
    match: Match = Match()

    def message(self, notification: Notification) -> EmailMessage:
        """The mail, with the same Message-ID at every attempt."""
        return self.mail(notification.id, notification.at, mail_subject(notification), mail_text(notification))


class LogSettings(NamedReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="log"):
    """A line in the service's log."""

    name: ReceiverName = "log"
    match: Match = Match()

    def message(self, notification: Notification) -> Notification:
        """The notification itself."""
        return notification


PublisherSettings = WebhookSettings | SlackSettings | CommandSettings | EmailSettings | LogSettings


class LogSender:
    """Writes a line per notification; it cannot fail."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def send(self, message: Notification) -> list[str]:
        """Writes the line, at a level by severity; a resolved alert is logged as info."""
        alert = message.alert
        resolved = alert.status == RESOLVED
        facts = msgspec.structs.asdict(alert) | ({"remarks": message.remarks} if message.remarks else {})
        del facts["status"], facts["group"]
        log.log(
            logging.INFO if resolved else _LEVELS.get(alert.severity, logging.WARNING),
            "alert_resolved" if resolved else "alert_firing",
            publisher=self._name,
            id=message.id,
            at=datetime.fromtimestamp(message.at, UTC).isoformat(),
            **facts,
        )
        return []

    async def close(self) -> None:
        """Does nothing."""


class Publisher:
    """Sends notifications to one receiver."""

    def __init__(self, settings: PublisherSettings, once: AsyncClient) -> None:
        self.name = settings.name
        self._settings = settings
        self._sender = _sender(settings, once)

    def wants(self, alert: Alert) -> bool:
        """True if its `match` selects this alert."""
        return self._settings.match.fits(alert)

    async def publish(self, notification: Notification) -> None:
        """Returns when the receiver has it; else raises PublishFailed. If a mail server refuses only some recipients,
        these are logged and not retried, since the others would get the mail twice."""
        refused = await self._sender.send(self._settings.message(notification))
        if refused:
            log.warning("mail_recipients_refused", publisher=self.name, recipients=refused)

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""
        await self._sender.close()


def _sender(settings: PublisherSettings, once: AsyncClient) -> Sender[Any]:
    breaker = own(f"publishers/{settings.name}")
    match settings:
        case WebhookSettings() | SlackSettings():
            return RequestSender(settings, once, breaker)
        case CommandSettings():
            return ProgramSender(settings, once, breaker)
        case EmailSettings():
            return MailSender(settings, once, breaker)
    return LogSender(settings.name)


def build(settings: Sequence[PublisherSettings], *, once: AsyncClient) -> list[Publisher]:
    """The publishers, in the order of their settings; InvalidInput if these are invalid."""
    if len(settings) > MAX_PUBLISHERS:
        raise InvalidInput(f"{len(settings)} publishers; the most is {MAX_PUBLISHERS}")
    check_names(settings, "publishers")
    for each in settings:
        check_bounds(each, "publisher")
    return [Publisher(each, once) for each in settings]
