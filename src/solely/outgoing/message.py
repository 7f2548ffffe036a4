"""What is sent, what comes back, and how a call fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Self, TypeVar

import httpx2
import msgspec

from ..errors import InvalidInput
from .certificates import PeerTls
from .checks import check_header, check_url, parsed

T = TypeVar("T")

LONGEST_RETRY_AFTER = 3_600.0  # seconds: a receiver that asks for longer is retried after an hour, since people wait
LONGEST_URL = 8192  # characters of a request's URL: a long query of an API; settings allow fewer
MAX_REDIRECTS = 3  # a move to https, to another name and to a login page; longer chains are loops
MOST_REDIRECTS = 10  # that a request may ask for: as many as Prometheus, Go and curl follow
HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,126}\.?")
# The forms of a date in HTTP (RFC 9110): of today, of RFC 850, and of C's asctime.
_HTTP_DATE = re.compile(
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT|[A-Z][a-z]+day, \d\d-[A-Z][a-z]{2}-\d\d [\d:]{8} GMT|"
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}",
    re.ASCII,
)
_BODILESS = (204, 304)  # statuses whose responses have no body, whatever they announce
_METHOD = re.compile(r"[A-Z]{1,32}")
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})  # idempotent by RFC 9110
# Headers without credentials, which another origin may get as well. Every other header counts as a secret.
SAFE_HEADERS = frozenset({"accept", "accept-language", "content-type", "traceparent", "tracestate", "user-agent"})
_FRAMING = frozenset({"connection", "content-length", "transfer-encoding"})  # receivers disagree on which of two counts
_PLAIN = frozenset({"accept-encoding", "content-length", "host"})  # made of what is no secret
_SECRET_WORD = 8  # characters: a shorter word of a header, such as `Bearer` or `true`, is no secret


class Timings(NamedTuple):
    """Seconds of each phase of a call, its redirects added up. A connection that was kept has the first three as 0."""

    resolve: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    first_byte: float = 0.0
    transfer: float = 0.0

    @property
    def total(self) -> float:
        """Seconds from the beginning to the last byte."""
        return sum(self)


class CallFailed(Exception):
    """The receiver has not done what it was asked for, as far as is known.

    `permanent` if a retry cannot help; `retry_after` is the number of seconds to wait, if the receiver asked for it.
    `phase` is how far a call without a response got: a field of Timings. `response` is the response, if its status is
    the failure.
    """

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        retry_after: float | None = None,
        phase: str = "",
        response: Response | None = None,
    ) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after = retry_after
        self.phase = phase
        self.response = response


class NotCalled(CallFailed):
    """Nothing was sent: the breaker is open, or all slots were in use."""


class AddressRefused(CallFailed):
    """Nothing was sent: the guard does not permit an address of the host, so that nothing is known about the host."""


class TooManyRedirects(CallFailed):
    """The receiver redirects again and again; `last` is its last response."""

    def __init__(self, message: str, last: Response) -> None:
        super().__init__(message, permanent=True)
        self.last = last


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Raises InvalidInput, which shows no secret, if it cannot be sent.

    `secrets` are texts that no error may show, besides the values of its headers. `fresh_headers` makes more headers at
    each try, such as a signature over the time. `repeatable`: the receiver may get it twice, as with an id that it
    remembers; by default the method decides, and a request that is not repeatable is retried only if it was not sent.
    `server_name` is the host for which the request is meant, and its certificate valid, if that is not the URL's.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    fresh_headers: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    repeatable: bool | None = None
    max_redirects: int | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if not _METHOD.fullmatch(self.method):
            raise InvalidInput(f"method {self.method!r:.40} must be upper-case letters, such as GET")
        check_url("url", self.url, LONGEST_URL)
        _check_headers(self.headers)
        if self.server_name and not HOST_NAME.fullmatch(self.server_name):
            raise InvalidInput(f"server_name {self.server_name!r:.80} is not the name of a host")
        if self.max_redirects is not None and not 0 <= self.max_redirects <= MOST_REDIRECTS:
            raise InvalidInput(f"max_redirects={self.max_redirects} is out of bounds: 0 to {MOST_REDIRECTS}")

    @classmethod
    def json(cls, method: str, url: str, value: object, headers: Mapping[str, str] | None = None, **more: Any) -> Self:
        """A request with this value as JSON."""
        body = msgspec.json.encode(value)
        return cls(method, url, {"content-type": "application/json", **(headers or {})}, body, **more)

    @property
    def may_repeat(self) -> bool:
        """True if the receiver may get it twice."""
        return self.method in _REPEATABLE if self.repeatable is None else self.repeatable

    def checked_fresh_headers(self) -> Mapping[str, str]:
        """The headers of this try; InvalidInput if they cannot be sent."""
        fresh = self.fresh_headers() if self.fresh_headers else {}
        _check_headers(fresh)
        return fresh

    def hidden(self, headers: Mapping[str, str]) -> tuple[str, ...]:
        """The texts that no error may show if it was sent with these headers."""
        values = [value for name, value in headers.items() if name.lower() not in SAFE_HEADERS | _PLAIN]
        words = [word for value in values for word in (value, *value.split()) if len(word) >= _SECRET_WORD]
        return (*self.secrets, *words)


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request, whatever its status. `url` is where the last redirect led to.

    `received` is the number of bytes of the body that arrived, `redirects` how many led here, `version` that of HTTP.
    `complete` is False if the body was longer than `max_response`, or did not arrive within `body_timeout`; `body` is
    then its beginning. `certificate_expires` is None without TLS, and if certificates are not verified. `secrets` are
    texts of the request that no error or log may show, should the body repeat them.
    """

    status: int
    headers: httpx2.Headers = field(repr=False)
    body: bytes = field(repr=False)
    url: str = field(repr=False)
    timings: Timings
    complete: bool = True
    address: str = ""
    certificate_expires: datetime | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tls: PeerTls | None = None
    version: str = ""
    received: int = 0
    redirects: int = 0

    @property
    def ok(self) -> bool:
        """True if the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def host(self) -> str:
        """The host that answered."""
        return parsed(self.url).host

    @property
    def text(self) -> str:
        """The body as UTF-8; what is no UTF-8 is replaced."""
        return self.body.decode(errors="replace")

    @property
    def retry_after(self) -> float | None:
        """Seconds of the Retry-After header, up to an hour; None if there is none."""
        return retry_after(self.headers.get("retry-after", ""))

    @property
    def date(self) -> datetime | None:
        """The receiver's clock when it answered; None if it did not say."""
        return _moment(self.headers.get("date", ""))

    @property
    def last_modified(self) -> datetime | None:
        """When what was sent has changed; None if the receiver did not say so by a date of HTTP, of which no other form
        counts in blackbox_exporter either."""
        text = self.headers.get("last-modified", "")
        return _moment(text) if _HTTP_DATE.fullmatch(text) else None

    @property
    def content_length(self) -> int:
        """The length of the body as the receiver announced it; -1 if it did not."""
        text = self.headers.get("content-length", "").strip()
        if self.status in _BODILESS:
            return 0
        return int(text[:18]) if text.isascii() and text.isdigit() and "transfer-encoding" not in self.headers else -1

    @property
    def certificate_days(self) -> float | None:
        """Days until the receiver's certificate expires; None if that is unknown."""
        expires = self.certificate_expires
        return None if expires is None else (expires - datetime.now(UTC)).total_seconds() / 86_400

    def json(self, kind: type[T]) -> T:
        """The body, decoded as `kind`; CallFailed, permanent, if it is something else."""
        if not self.complete:
            text = f"{self.host} sent more than the {len(self.body)} bytes that were read"
            raise CallFailed(text, permanent=True, response=self)
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"{self.host} sent JSON that was not expected: {error}"
            raise CallFailed(text, permanent=True, response=self) from None


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        check_header("a request's", name, value)
        if name.lower() in _FRAMING:
            raise InvalidInput(f"a request's header {name!r} is set by the call itself; remove it")


def retry_after(text: str) -> float | None:
    """The seconds of a Retry-After header, a number or a date, within bounds; None if it is invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_RETRY_AFTER)
    moment = _moment(text)
    if moment is None:
        return None
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), LONGEST_RETRY_AFTER)


def _moment(text: str) -> datetime | None:
    """The time of an HTTP date, in UTC; None if it is none."""
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
