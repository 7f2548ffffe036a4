"""The settings of publishers: one table per publisher, whose `type` names its kind. Invalid settings raise
`InvalidInput` when they are read, and no error shows a secret: a whole URL may be one."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import ssl
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from ....errors import InvalidInput
from ..model import Alert, Labels, Status

SECRET_PREFIX = "whsec_"
SECRET_BYTES = (24, 64)  # the shortest and the longest that the Standard Webhooks specification allows
MAX_URL = 2048  # characters: all servers and proxies accept that many
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]{0,2046}[\x21-\x7e])?")
# Without =?, which starts an encoded word: the email package would decode it.
_MAIL = re.compile(r"(?!.*=\?)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Headers that the publisher sets, or that frame the body: receivers disagree on which of two counts.
_OUR_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding")

Name = Annotated[
    str,
    msgspec.Meta(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", description="its name in logs, metrics and dead letters"),
]
Timeout = Annotated[
    float,
    msgspec.Meta(ge=0.1, le=60.0, description="seconds for one publish, its quick retries included"),
]
AtOnce = Annotated[int, msgspec.Meta(ge=1, le=1000, description="concurrent publishes per worker; others wait")]


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


class _Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The settings of every publisher."""

    name: Name
    match: Match = Match()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, …)"


class ResilientSettings(_Named, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every publisher that may fail."""

    timeout: Timeout = 10.0
    at_once: AtOnce = 20


class _Posting(ResilientSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every publisher that calls a URL. `guard` refuses addresses that are not public, except for the
    networks of `guard_allow`; `ca_file` names the certificates to trust instead of the system's."""

    url: str
    guard: bool = False
    guard_allow: tuple[str, ...] = ()
    ca_file: str = ""

    def __post_init__(self) -> None:
        check_url(self.name, self.url)
        for network in self.guard_allow:
            _check_network(self.name, network)

    def secret_texts(self) -> tuple[str, ...]:
        """What no error may show."""
        return (self.url, urlsplit(self.url).path, urlsplit(self.url).query)


class WebhookSettings(_Posting, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="webhook"):
    """Any receiver of Standard Webhooks. Each of several secrets signs, so that they can be rotated; without secrets
    nothing is signed."""

    name: Name = "webhook"
    secrets: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)] = ()
    headers: Annotated[dict[str, str], msgspec.Meta(max_length=32)] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        for secret in self.secrets:
            secret_bytes(self.name, secret)
        for header, value in self.headers.items():
            _check_header(self.name, header, value)

    def secret_texts(self) -> tuple[str, ...]:
        """What no error may show."""
        bare = (secret.removeprefix(SECRET_PREFIX) for secret in self.secrets)
        return (*super().secret_texts(), *self.secrets, *bare, *self.headers.values())


class SlackSettings(_Posting, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="slack"):
    """An incoming webhook of Slack, or a compatible one: Mattermost, Rocket.Chat, Discord under /slack."""

    name: Name = "slack"


class CommandSettings(ResilientSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="command"):
    """A program, which gets the notification as JSON on its standard input. It inherits the service's environment
    without SOLELY_… variables; `environment` adds to it."""

    name: Name = "command"
    argv: Annotated[tuple[str, ...], msgspec.Meta(max_length=256)]
    environment: Annotated[dict[str, str], msgspec.Meta(max_length=64)] = {}
    at_once: AtOnce = 4

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidInput(
                f'publisher {self.name!r}: argv is empty; give the program and its arguments: ["…", "…"]'
            )
        if any("\0" in text for text in (*self.argv, *self.environment.values())):
            raise InvalidInput(f"publisher {self.name!r}: argv and environment must not contain NUL")
        for variable in self.environment:
            if not _VARIABLE.fullmatch(variable):
                raise InvalidInput(f"publisher {self.name!r}: environment variable {variable!r:.80} has no usable name")

    def secret_texts(self) -> tuple[str, ...]:
        """What no error may show."""
        return tuple(self.environment.values())


class EmailSettings(ResilientSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="email"):
    """A mail to each of `to`. `security`: the connection is upgraded to TLS (starttls), uses TLS from the start (tls),
    or is not encrypted (none), which no password is sent on."""

    name: Name = "email"
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str = ""
    password: str = ""
    sender: str
    to: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=50)]
    ca_file: str = ""
    at_once: AtOnce = 4

    def __post_init__(self) -> None:
        for address in (self.sender, *self.to):
            if not _MAIL.fullmatch(address):
                raise InvalidInput(
                    f"publisher {self.name!r}: {address!r:.80} is not a mail address; write name@host.example"
                )
        if bool(self.username) != bool(self.password):
            raise InvalidInput(f"publisher {self.name!r}: give both username and password, or neither")
        if self.password and self.security == "none":
            raise InvalidInput(
                f"publisher {self.name!r}: a password needs security starttls or tls, else it is sent in the clear"
            )

    def secret_texts(self) -> tuple[str, ...]:
        """What no error may show: the password, plain and as it is sent."""
        plain = base64.b64encode(f"\0{self.username}\0{self.password}".encode()).decode()
        return (self.password, base64.b64encode(self.password.encode()).decode(), plain)


class LogSettings(_Named, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="log"):
    """A line in the service's log."""

    name: Name = "log"


PublisherSettings = WebhookSettings | SlackSettings | CommandSettings | EmailSettings | LogSettings


def check_url(name: str, url: str) -> None:
    """Raises InvalidInput, which shows no more of the URL than its scheme, unless it can be posted to."""
    try:
        parts = urlsplit(url)
        place = (parts.hostname, parts.port)
    except ValueError as error:
        raise InvalidInput(f"publisher {name!r}: url is invalid: {error}") from None
    wrong = ""
    if parts.scheme not in ("http", "https"):
        wrong = f"must begin with https:// or http://, not {parts.scheme or 'nothing'!r:.40}"
    elif not place[0] or place[1] == 0:
        wrong = "names no host that can be called"
    elif parts.username is not None or parts.password is not None:
        wrong = "has a user or password in it; give them as a header instead"
    elif len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url or parts.fragment:
        wrong = f"must be up to {MAX_URL} ASCII characters without spaces and without a #fragment"
    if wrong:
        raise InvalidInput(f"publisher {name!r}: url {wrong}")


def secret_bytes(name: str, secret: str) -> bytes:
    """The bytes of a signing secret; InvalidInput, which does not show it, if it is invalid."""
    how = f"write {SECRET_PREFIX} and the base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[1]} random bytes"
    if not secret.startswith(SECRET_PREFIX):
        raise InvalidInput(f"publisher {name!r}: a secret does not begin with {SECRET_PREFIX}; {how}")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"publisher {name!r}: what follows {SECRET_PREFIX} is not base64; {how}") from None
    if not SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]:
        raise InvalidInput(f"publisher {name!r}: a secret has {len(key)} bytes; {how}")
    return key


def _check_header(name: str, header: str, value: str) -> None:
    lower = header.lower()
    if not _HEADER.fullmatch(header) or not _HEADER_VALUE.fullmatch(value):
        raise InvalidInput(f"publisher {name!r}: header {header!r:.80} must be printable ASCII, name and value")
    if lower in _OUR_HEADERS or lower.startswith("webhook-"):
        raise InvalidInput(f"publisher {name!r}: header {header!r} is set by the publisher itself; remove it")


def _check_network(name: str, network: Any) -> None:
    try:
        ipaddress.ip_network(network)
    except ValueError as error:
        raise InvalidInput(f"publisher {name!r}: guard_allow: {error}; write networks such as 10.1.2.0/24") from None


def trusted(name: str, ca_file: str) -> ssl.SSLContext:
    """Trusts the certificates of the file, or the system's without one; InvalidInput if it cannot be read."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # of which SSLError is one
        raise InvalidInput(f"publisher {name!r}: ca_file {ca_file!r} cannot be read: {error}") from None
