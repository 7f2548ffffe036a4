"""E-mail: one message to all recipients, with the same Message-ID at every attempt."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP, Policy
from email.utils import format_datetime
from itertools import islice
from typing import Any

import structlog

from ..model import Notification
from .failure import PublishFailed, sanitized
from .settings import EmailSettings, trusted

log = structlog.get_logger("solely.alerts")

MAX_LINES = 100  # labels and annotations each: beyond that nobody reads


class EmailSender:
    """Sends mails on its own threads, since smtplib blocks."""

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._tls = trusted(settings.name, settings.ca_file)
        self._threads = ThreadPoolExecutor(settings.at_once, thread_name_prefix=f"mail-{settings.name}")

    async def send(self, notification: Notification, attempt: int) -> None:
        """Returns when the server has it; else raises PublishFailed. If the server refuses only some recipients, these
        are logged and not retried, since the others would get the mail twice."""
        delivery = _Delivery(self._settings, self._tls, message(notification, self._settings))
        try:
            refused = await asyncio.get_running_loop().run_in_executor(self._threads, delivery.run)
        except asyncio.CancelledError:
            delivery.abort()
            raise
        except smtplib.SMTPNotSupportedError as error:
            raise self._failed(f"lacks a required feature: {error}", permanent=True) from None
        except smtplib.SMTPRecipientsRefused as error:
            answers = list(error.recipients.values())
            raise self._failed(f"refused all recipients: {_texts(answers)}", permanent=_permanent(answers)) from None
        except smtplib.SMTPResponseException as error:
            answer = (error.smtp_code, error.smtp_error)
            raise self._failed(f"answered {_texts([answer])}", permanent=_permanent([answer])) from None
        except (smtplib.SMTPException, OSError) as error:
            raise self._failed(f"did not answer: {str(error) or type(error).__name__}") from None
        if refused:
            log.warning("mail_recipients_refused", publisher=self._settings.name, recipients=sorted(refused))

    async def close(self) -> None:
        """Shuts the threads down; safe to call twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _failed(self, how: str, permanent: bool = False) -> PublishFailed:
        settings = self._settings
        text = f"{settings.name}: {settings.host} {sanitized(how, settings.secret_texts())}"
        return PublishFailed(text, permanent=permanent)


class _Delivery:
    """One SMTP session on a thread, which another thread can abort."""

    def __init__(self, settings: EmailSettings, tls: ssl.SSLContext, mail: EmailMessage) -> None:
        self._settings = settings
        self._tls = tls
        self._mail = mail
        self._server: smtplib.SMTP | None = None

    def run(self) -> dict[str, tuple[int, bytes]]:
        """Sends the mail; returns the recipients that the server refused while it accepted others."""
        settings = self._settings
        server = self._connected()
        try:
            if settings.security == "starttls":
                server.starttls(context=self._tls)
            if settings.username:
                server.login(settings.username, settings.password)
            refused = server.send_message(self._mail, settings.sender, list(settings.to))
            with suppress(OSError, smtplib.SMTPException):  # it has the mail even if this fails
                server.putcmd("quit")
            return refused
        finally:
            server.close()

    def connecting(self, server: smtplib.SMTP) -> None:
        """Remembers the server before its connection is made, so that `abort` can close it at any point."""
        self._server = server

    def abort(self) -> None:
        """Breaks the connection at whatever point it is: a server that sends a byte per second would never end."""
        if self._server is not None and self._server.sock is not None:
            with suppress(OSError):
                self._server.sock.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> smtplib.SMTP:
        where, here = (self._settings.host, self._settings.port), socket.gethostname()
        if self._settings.security == "tls":
            return _SecureServer(self.connecting, *where, here, timeout=self._settings.timeout, context=self._tls)
        return _Server(self.connecting, *where, here, timeout=self._settings.timeout)


class _Server(smtplib.SMTP):
    """Calls `connecting` with itself before it connects."""

    def __init__(self, connecting: Callable[[smtplib.SMTP], None], *where: Any, **options: Any) -> None:
        connecting(self)
        super().__init__(*where, **options)


class _SecureServer(smtplib.SMTP_SSL):
    """The same, with TLS from the start."""

    def __init__(self, connecting: Callable[[smtplib.SMTP], None], *where: Any, **options: Any) -> None:
        connecting(self)
        super().__init__(*where, **options)


def message(notification: Notification, settings: EmailSettings) -> EmailMessage:
    """The mail: the alert as lines of plain text."""
    alert = notification.alert
    mail = EmailMessage(policy=SMTP)
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    remarks = f" ({', '.join(notification.remarks)})" if notification.remarks else ""
    mail["Subject"] = _Subject(sanitized(f"[{alert.status.upper()}] {alert.severity}: {alert.name}{remarks}"))
    mail["Date"] = format_datetime(datetime.fromtimestamp(notification.at, UTC))
    mail["Message-ID"] = f"<{notification.id}@solely.invalid>"
    mail["Auto-Submitted"] = "auto-generated"  # suppresses out-of-office replies
    facts = (("name", alert.name), ("severity", alert.severity), ("source", alert.source))
    group = [("alert of the group", f"{each.severity}: {each.name}") for each in notification.members]
    parts = ((*facts, ("fingerprint", alert.fingerprint)), group, alert.annotations.items(), alert.labels.items())
    mail.set_content("\n".join(_lines(part) for part in parts if part), cte="quoted-printable")
    return mail


class _Subject(str):
    """A subject with foreign text, which is always sent encoded.

    The email package decodes a text that looks like an encoded word (RFC 2047) and writes the result, line breaks
    included. It neither parses nor writes a header object, which has a `name` and a `fold`.
    """

    __slots__ = ()
    name = "Subject"

    def fold(self, *, policy: Policy) -> str:
        """The encoded header."""
        text = Header(self, "utf-8", policy.max_line_length, self.name).encode(linesep=policy.linesep)
        return f"{self.name}: {text}{policy.linesep}"


def _lines(facts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{sanitized(name)}: {sanitized(value)}\n" for name, value in islice(facts, MAX_LINES))


def _texts(answers: Iterable[tuple[int, bytes | str]]) -> str:
    texts = (f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}" for code, text in answers)
    return "; ".join(dict.fromkeys(texts))


def _permanent(answers: Sequence[tuple[int, bytes | str]]) -> bool:
    """True if all answers are permanent refusals: 5xx. smtplib reports -1 for a server that does not speak SMTP."""
    return bool(answers) and all(code >= 500 for code, _ in answers)
