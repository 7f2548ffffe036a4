"""The settings of a named receiver, to be extended by an application: a URL, a webhook, a program, a mailbox.

Invalid settings raise `InvalidInput` when they are read, and no error shows a secret: a whole URL may be one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from ..errors import InvalidInput
from ..programs import Program
from .checks import check_header, check_network, check_url
from .message import Request
from .sanitizing import sanitized
from .settings import AtOnce, OutgoingSettings, Timeout
from .signing import SECRET_PREFIX, sign, signing_key
from .smtp import ForeignSubject, MailServer, Security

MAX_ANSWER = 16 << 10  # bytes: an error page says in its first lines what is wrong
ANSWER = 0.25  # seconds for the body to follow the status, which alone says whether the receiver has it
MAX_HEADER = 2048  # characters of a header's value
MAX_ERRORS = 2048  # bytes of the end of a program's standard error: the last lines say what went wrong
MAX_VARIABLE = 4096  # bytes of a text in the environment, which is small; standard input has all of it
_OURS = "SOLELY_"  # the prefix of the service's own variables, which hold tokens and passwords
# Without =?, which starts an encoded word: the email package would decode it.
_MAIL = re.compile(r"(?!.*=\?)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # a traceparent, which came from outside
# Headers that the receiver's request sets, or that frame the body: receivers disagree on which of two counts.
_OUR_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding")

Name = Annotated[
    str,
    msgspec.Meta(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", description="its name in logs, metrics and dead letters"),
]


class NamedReceiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The settings of every receiver."""

    name: Name

    @property
    def what(self) -> str:
        """The beginning of every error about these settings."""
        return f"{self.name!r}:"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, …)"


class Receiver(NamedReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every receiver that may fail."""

    timeout: Timeout = 10.0
    at_once: AtOnce = 20


class UrlReceiver(Receiver, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver at a URL. `guard` refuses addresses that are not public, except for the networks of `guard_allow`;
    `ca_file` names the certificates to trust instead of the system's."""

    url: str
    guard: bool = False
    guard_allow: tuple[str, ...] = ()
    ca_file: str = ""

    def __post_init__(self) -> None:
        check_url(f"{self.what} url", self.url)
        for network in self.guard_allow:
            check_network(f"{self.what} guard_allow:", network)

    def outgoing(self) -> OutgoingSettings:
        """How it is called: without redirects, and only the beginning of its response is read."""
        return OutgoingSettings(
            timeout=self.timeout,
            at_once=self.at_once,
            guard=self.guard,
            guard_allow=self.guard_allow,
            ca_file=self.ca_file,
            max_redirects=0,
            max_response=MAX_ANSWER,
            body_timeout=ANSWER,
        )

    def secret_texts(self) -> tuple[str, ...]:
        """What no error may show."""
        return (self.url, urlsplit(self.url).path, urlsplit(self.url).query)


class WebhookReceiver(UrlReceiver, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of Standard Webhooks. Each of several secrets signs, so that they can be rotated; without secrets
    nothing is signed."""

    secrets: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)] = ()
    headers: Annotated[dict[str, str], msgspec.Meta(max_length=32)] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keys()
        for header, value in self.headers.items():
            check_header(self.what, header, value, MAX_HEADER)
            if header.lower() in _OUR_HEADERS or header.lower().startswith("webhook-"):
                raise InvalidInput(f"{self.what} header {header!r} is set by the sender itself; remove it")

    def _keys(self) -> list[bytes]:
        return [signing_key(self.what, secret) for secret in self.secrets]

    def secret_texts(self) -> tuple[str, ...]:
        """What no error may show."""
        bare = (secret.removeprefix(SECRET_PREFIX) for secret in self.secrets)
        return (*super().secret_texts(), *self.secrets, *bare, *self.headers.values())

    def request(self, id: str, body: bytes, trace: str = "") -> Request:
        """The request that posts this JSON under this id, which is the same at every attempt, with its own signature
        each. It continues the `trace`, if that is a valid traceparent."""
        headers, keys = {**self.headers, "content-type": "application/json"}, self._keys()
        if _TRACE.fullmatch(trace):
            headers["traceparent"] = trace
        return Request(
            "POST",
            self.url,
            headers,
            body,
            self.secret_texts(),
            fresh_headers=lambda: sign(id, int(time.time()), body, keys),
            repeatable=True,  # receivers remember the id
        )


class ProgramReceiver(Receiver, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program, which gets its input on standard input. It inherits the service's environment without SOLELY_…
    variables; `environment` adds to it."""

    argv: Annotated[tuple[str, ...], msgspec.Meta(max_length=256)]
    environment: Annotated[dict[str, str], msgspec.Meta(max_length=64)] = {}
    at_once: AtOnce = 4

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidInput(f'{self.what} argv is empty; give the program and its arguments: ["…", "…"]')
        if any("\0" in text for text in (*self.argv, *self.environment.values())):
            raise InvalidInput(f"{self.what} argv and environment must not contain NUL")
        for variable in self.environment:
            if not _VARIABLE.fullmatch(variable):
                raise InvalidInput(f"{self.what} environment variable {variable!r:.80} has no usable name")

    def secret_texts(self) -> tuple[str, ...]:
        """What no error may show."""
        return tuple(self.environment.values())

    def program(self, stdin: bytes, variables: Mapping[str, str]) -> Program:
        """The program with this input and these variables, which are cut to what an environment can hold. It has no
        timeout of its own: its attempt has one."""
        return Program(
            self.argv,
            stdin,
            self.environment | {name: _variable(text) for name, text in variables.items()},
            inherit=[name for name in os.environ if not name.startswith(_OURS)],
            timeout=None,
            max_output=MAX_ERRORS,
            discard_stdout=True,
            guarded=True,  # after the expiry of its reservation another process runs it
        )


class MailReceiver(Receiver, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mail to each of `to`. `security`: the connection is upgraded to TLS (starttls), uses TLS from the start (tls),
    or is not encrypted (none), which no password is sent on."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 587
    security: Security = "starttls"
    username: str = ""
    password: str = ""
    sender: str
    to: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=50)]
    ca_file: str = ""
    at_once: AtOnce = 4

    def __post_init__(self) -> None:
        for address in (self.sender, *self.to):
            if not _MAIL.fullmatch(address):
                raise InvalidInput(f"{self.what} {address!r:.80} is not a mail address; write name@host.example")
        if bool(self.username) != bool(self.password):
            raise InvalidInput(f"{self.what} give both username and password, or neither")
        if self.password and self.security == "none":
            raise InvalidInput(f"{self.what} a password needs security starttls or tls, else it is sent in the clear")

    def mail(self, id: str, at: float, subject: str, text: str) -> EmailMessage:
        """The mail to all recipients. Its Message-ID is made of the id, which is the same at every attempt."""
        mail = EmailMessage(policy=SMTP)
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.to)
        mail["Subject"] = ForeignSubject(sanitized(subject))
        mail["Date"] = format_datetime(datetime.fromtimestamp(at, UTC))
        mail["Message-ID"] = f"<{id}@solely.invalid>"
        mail["Auto-Submitted"] = "auto-generated"  # suppresses out-of-office replies
        mail.set_content(text, cte="quoted-printable")
        return mail

    def server(self) -> MailServer:
        """The mail server and the login."""
        return MailServer(self.host, self.port, self.security, self.timeout, self.username, self.password, self.ca_file)


def _variable(text: str) -> str:
    """The text without NUL, cut to its bound."""
    return text.replace("\0", " ").encode(errors="replace")[:MAX_VARIABLE].decode(errors="ignore")


def check_names(receivers: Sequence[NamedReceiver], what: str) -> None:
    """Raises InvalidInput if two receivers have the same name."""
    names = [each.name for each in receivers]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"{what} have the same name: {', '.join(double)}; give each its own")


def check_bounds(receiver: NamedReceiver, what: str) -> None:
    """Raises InvalidInput if a field is out of bounds: decoding checks that, and settings made in Python are not
    decoded."""
    try:
        msgspec.convert(msgspec.to_builtins(receiver), type(receiver))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{what} {receiver.what} {error}") from None
