"""The settings of publishers: one table per publisher, whose `type` names its kind, and `match` the alerts it wants."""

from __future__ import annotations

import msgspec

from ....kit import MailReceiver, NamedReceiver, ProgramReceiver, ReceiverName, UrlReceiver, WebhookReceiver
from ..model import Alert, Labels, Status


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


class SlackSettings(UrlReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="slack"):
    """An incoming webhook of Slack, or a compatible one: Mattermost, Rocket.Chat, Discord under /slack."""

    name: ReceiverName = "slack"
    match: Match = Match()


class CommandSettings(ProgramReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="command"):
    """A program, which gets the notification as JSON on its standard input."""

    name: ReceiverName = "command"
    match: Match = Match()


class EmailSettings(MailReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="email"):
    """A mail to each of `to`."""

    name: ReceiverName = "email"
    match: Match = Match()


class LogSettings(NamedReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="log"):
    """A line in the service's log."""

    name: ReceiverName = "log"
    match: Match = Match()


PublisherSettings = WebhookSettings | SlackSettings | CommandSettings | EmailSettings | LogSettings
