"""E-mail: one message to all recipients, with the same Message-ID at every attempt."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from itertools import islice

import structlog

from .... import AsyncClient
from ....kit import ForeignSubject, Mailer, sanitized
from ..model import Notification
from .publisher import MatchingPublisher, attempts_of
from .settings import EmailSettings

log = structlog.get_logger("solely.alerts")

MAX_LINES = 100  # labels and annotations each: beyond that nobody reads


class EmailPublisher(MatchingPublisher[EmailSettings]):
    """Sends each notification as a mail."""

    def __init__(self, settings: EmailSettings, once: AsyncClient) -> None:
        super().__init__(settings)
        self._attempts = attempts_of(settings, once)
        self._mailer = Mailer(settings.name, settings.server(), settings.at_once)

    async def publish(self, notification: Notification) -> None:
        """Returns when the server has it; else raises PublishFailed. If the server refuses only some recipients, these
        are logged and not retried, since the others would get the mail twice."""
        mail, settings = message(notification, self._settings), self._settings
        refused = await self._attempts.run(lambda: self._mailer.send(mail, settings.sender, settings.to))
        if refused:
            log.warning("mail_recipients_refused", publisher=self.name, recipients=refused)

    async def close(self) -> None:
        """Shuts its threads down; safe to call twice."""
        self._mailer.close()


def message(notification: Notification, settings: EmailSettings) -> EmailMessage:
    """The mail: the alert as lines of plain text."""
    alert = notification.alert
    mail = EmailMessage(policy=SMTP)
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    remarks = f" ({', '.join(notification.remarks)})" if notification.remarks else ""
    mail["Subject"] = ForeignSubject(sanitized(f"[{alert.status.upper()}] {alert.severity}: {alert.name}{remarks}"))
    mail["Date"] = format_datetime(datetime.fromtimestamp(notification.at, UTC))
    mail["Message-ID"] = f"<{notification.id}@solely.invalid>"
    mail["Auto-Submitted"] = "auto-generated"  # suppresses out-of-office replies
    facts = (("name", alert.name), ("severity", alert.severity), ("source", alert.source))
    group = [("alert of the group", f"{each.severity}: {each.name}") for each in notification.members]
    parts = ((*facts, ("fingerprint", alert.fingerprint)), group, alert.annotations.items(), alert.labels.items())
    mail.set_content("\n".join(_lines(part) for part in parts if part), cte="quoted-printable")
    return mail


def _lines(facts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{sanitized(name)}: {sanitized(value)}\n" for name, value in islice(facts, MAX_LINES))
