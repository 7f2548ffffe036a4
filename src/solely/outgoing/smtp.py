"""Sending mails by SMTP, on threads of their own, since smtplib blocks."""

from __future__ import annotations

import asyncio
import base64
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from email.header import Header
from email.message import EmailMessage
from email.policy import Policy
from typing import Any, Literal

from .checks import trusted
from .message import CallFailed
from .sanitizing import sanitized

Security = Literal["starttls", "tls", "none"]


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server and how to log in. `security`: the connection is upgraded to TLS (starttls), uses TLS from the
    start (tls), or is not encrypted (none)."""

    host: str
    port: int
    security: Security
    timeout: float
    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no error may show: the password, plain and as it is sent."""
        plain = base64.b64encode(f"\0{self.username}\0{self.password}".encode()).decode()
        return (self.password, base64.b64encode(self.password.encode()).decode(), plain) if self.password else ()


class ForeignSubject(str):
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


class Mailer:
    """Sends mails through one server. `name` begins the text of its errors."""

    def __init__(self, name: str, server: MailServer, at_once: int) -> None:
        self._name = name
        self._server = server
        self._tls = trusted(f"{name}:", server.ca_file)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=f"mail-{name}")

    async def send(self, mail: EmailMessage, sender: str, to: Sequence[str]) -> list[str]:
        """Returns when the server has it, with the recipients that it refused while it accepted others; else raises
        CallFailed."""
        delivery = _Delivery(self._server, self._tls)
        work = asyncio.get_running_loop().run_in_executor(self._threads, delivery.run, mail, sender, to)
        try:
            return sorted(await work)
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

    def close(self) -> None:
        """Shuts the threads down; safe to call twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _failed(self, how: str, permanent: bool = False) -> CallFailed:
        text = f"{self._name}: {self._server.host} {sanitized(how, self._server.secrets)}"
        return CallFailed(text, permanent=permanent)


class _Delivery:
    """One SMTP session on a thread, which another thread can abort."""

    def __init__(self, server: MailServer, tls: ssl.SSLContext) -> None:
        self._server = server
        self._tls = tls
        self._session: smtplib.SMTP | None = None

    def run(self, mail: EmailMessage, sender: str, to: Sequence[str]) -> Iterable[str]:
        """Sends the mail; returns the recipients that the server refused while it accepted others."""
        session = self._connected()
        try:
            if self._server.security == "starttls":
                session.starttls(context=self._tls)
            if self._server.username:
                session.login(self._server.username, self._server.password)
            refused = session.send_message(mail, sender, list(to))
            with suppress(OSError, smtplib.SMTPException):  # it has the mail even if this fails
                session.putcmd("quit")
            return refused
        finally:
            session.close()

    def connecting(self, session: smtplib.SMTP) -> None:
        """Remembers the session before its connection is made, so that `abort` can close it at any point."""
        self._session = session

    def abort(self) -> None:
        """Breaks the connection at whatever point it is: a server that sends a byte per second would never end."""
        if self._session is not None and self._session.sock is not None:
            with suppress(OSError):
                self._session.sock.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> smtplib.SMTP:
        server, here = self._server, socket.gethostname()
        where = (server.host, server.port, here)
        if server.security == "tls":
            return _SecureSession(self.connecting, *where, timeout=server.timeout, context=self._tls)
        return _Session(self.connecting, *where, timeout=server.timeout)


class _Session(smtplib.SMTP):
    """Calls `connecting` with itself before it connects."""

    def __init__(self, connecting: Callable[[smtplib.SMTP], None], *where: Any, **options: Any) -> None:
        connecting(self)
        super().__init__(*where, **options)


class _SecureSession(smtplib.SMTP_SSL):
    """The same, with TLS from the start."""

    def __init__(self, connecting: Callable[[smtplib.SMTP], None], *where: Any, **options: Any) -> None:
        connecting(self)
        super().__init__(*where, **options)


def _texts(answers: Iterable[tuple[int, bytes | str]]) -> str:
    texts = (f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}" for code, text in answers)
    return "; ".join(dict.fromkeys(texts))


def _permanent(answers: Sequence[tuple[int, bytes | str]]) -> bool:
    """True if all answers are permanent refusals: 5xx. smtplib reports -1 for a server that does not speak SMTP."""
    return bool(answers) and all(code >= 500 for code, _ in answers)
