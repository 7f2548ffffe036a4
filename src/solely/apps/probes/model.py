"""Targets: what is probed, how, and what is expected of it; and the result of a probe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urljoin, urlsplit

import msgspec

from ... import InvalidInput
from ...kit import (
    HOST_NAME,
    MOST_REDIRECTS,
    Answer,
    Request,
    Timeout,
    check_header,
    check_pattern,
    check_schedule,
    check_url,
)

Kind = Literal["http", "tcp", "tls", "dns"]
State = Literal["UP", "DOWN", "PENDING", "PAUSED", "REFUSED"]
UP: State = "UP"
DOWN: State = "DOWN"
PENDING: State = "PENDING"
PAUSED: State = "PAUSED"
REFUSED: State = "REFUSED"  # the guard does not permit its address
# Why a probe was skipped:
LOCKED = "locked"  # another one of the same URL is running
LOST = "lost"  # its result is refused: the mutex had expired, and another probe may have run since
BUSY = "busy"  # all slots of the worker were in use
NOT_PERMITTED = "refused"  # the guard does not permit an address of the target: it was never called

Name = Annotated[
    str,
    msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$(?!\n)", description="its name in lists, addresses and alerts"),
]
MAX_PATTERN = 500  # characters: a piece of a page around what is extracted
Pattern = Annotated[
    str, msgspec.Meta(max_length=MAX_PATTERN, description="a regular expression, by RE2, that is searched for")
]
Path = Annotated[str, msgspec.Meta(max_length=500, description='a path in JSON such as "$.checks[0].ok"')]
Interval = Annotated[float, msgspec.Meta(ge=1.0, le=86_400.0, description="seconds between probes")]
Method = Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{1,32}$(?!\n)")]
Texts = Annotated[dict[str, str], msgspec.Meta(max_length=32)]
Threshold = Annotated[int, msgspec.Meta(ge=1, le=100)]
Scalar = str | int | float | bool | None

KINDS: dict[str, Kind] = {"http": "http", "https": "http", "tcp": "tcp", "tls": "tls", "dns": "dns"}
RECORD_TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33}
SOURCES = ("body", "header", "cookie", "json")  # where a step finds a value
MAX_BODY = 64 << 10  # characters that a probe sends: a login or a query has some hundred
DNS_PORT = 53
_STATUS = re.compile(r"[1-5]\d\d|[1-5]xx")
_USED = re.compile(r"\{(\w+)\}")  # a value that is used
_VALUE = re.compile(r"\w{1,100}")  # its name


class Expectations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a response must be. `status` are codes or classes such as "2xx". `body` must be found in it, `body_not` must
    not. `json` has the expected value of each path, such as "$.checks[0].ok". It must arrive within `latency` seconds,
    and its certificate be valid for `certificate_days` more."""

    status: tuple[int | str, ...] = ("2xx",)
    body: Pattern = ""
    body_not: Pattern = ""
    json: Annotated[dict[Path, Scalar], msgspec.Meta(max_length=32)] = {}
    latency: Annotated[float, msgspec.Meta(gt=0.0, le=60.0)] | None = None
    certificate_days: Annotated[float, msgspec.Meta(ge=0.0, le=3650.0)] | None = None

    def check(self, what: str) -> None:
        """Raises InvalidInput if it can never be met."""
        for status in self.status:
            if not _STATUS.fullmatch(str(status)):
                raise InvalidInput(
                    f'{what}: status {status!r:.20} is neither a code such as 200 nor a class such as "2xx"'
                )
        for pattern in (self.body, self.body_not):
            _check_pattern(what, pattern)


class FlowStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of a login flow. Its `url` may be relative to the target's. In `url`, `headers`, `form` and `body`,
    {name} stands for a value of the target, or for one that an earlier step extracted: `extract` has the source of
    each, such as "cookie:csrftoken", "header:Location", "json:$.token" or "body:name=.csrf. value=.(\\w+)". A step
    that is `signed_in` fails unless the session has stuck."""

    name: Name = "step"
    url: str = ""
    method: Method = "GET"
    headers: Texts = {}
    form: Texts = {}
    body: Annotated[str, msgspec.Meta(max_length=MAX_BODY)] = ""
    extract: Texts = {}
    expect: Expectations = Expectations(status=("2xx", "3xx"))
    signed_in: bool = False

    def check(self, what: str, known: set[str]) -> None:
        """Raises InvalidInput if it uses a value that is not in `known`, or extracts from nowhere. Adds to `known` what
        it extracts."""
        self.expect.check(what)
        for place, text in self._texts():
            if unknown := sorted(set(_USED.findall(text)) - known):
                raise InvalidInput(
                    f"{what}: {place}: {{{unknown[0]}}} is neither a value of the target nor extracted before; "
                    f"known are {', '.join(map(repr, sorted(known))) or 'none'}"
                )
        for name, text in self.headers.items():
            check_header(f"{what}:", name, _USED.sub("x", text))
        _check_values(f"{what}: extract", self.extract)
        for name, source in self.extract.items():
            place, _, where = source.partition(":")
            if place not in SOURCES or not where:
                raise InvalidInput(
                    f"{what}: extract {name!r}: write one of {', '.join(f'{each}:…' for each in SOURCES)}"
                )
            if len(where) > MAX_PATTERN:
                raise InvalidInput(f"{what}: extract {name!r} has {len(where)} characters; the most is {MAX_PATTERN}")
            if place == "body":
                _check_pattern(f"{what}: extract {name!r}", where)
        known.update(self.extract)

    def _texts(self) -> Iterator[tuple[str, str]]:
        """The texts in which values are used, and where each stands."""
        yield from (("url", self.url), ("body", self.body))
        yield from ((f"header {name!r}", text) for name, text in self.headers.items())
        yield from ((f"form {name!r}", text) for name, text in self.form.items())


class ProbeTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target. Its URL decides what is done: https:// and http:// are requested, or run through `steps`; tcp://host:port
    is connected to; tls://host:port is connected to with TLS; dns://server/name?type=A is asked for a name.

    It is probed every `interval` seconds, or by the cron expression `schedule` in the time zone `tz`. `timeout` is that
    of the whole probe. It is DOWN after `failure_threshold` failures in a row, UP after `success_threshold` successes.
    `hostname` is the host that is asked for, and whose certificate is expected, if that is not the URL's.
    A `public` target is on the status page and has a badge.
    """

    name: Name
    url: str
    title: Annotated[str, msgspec.Meta(max_length=100)] = ""
    interval: Interval = 60.0
    schedule: Annotated[str, msgspec.Meta(max_length=200)] = ""
    tz: Annotated[str, msgspec.Meta(max_length=64)] = "UTC"
    timeout: Timeout = 10.0
    method: Method = "GET"
    headers: Texts = {}
    body: Annotated[str, msgspec.Meta(max_length=MAX_BODY)] = ""
    expect: Expectations = Expectations()
    steps: Annotated[tuple[FlowStep, ...], msgspec.Meta(max_length=20)] = ()
    values: Texts = {}
    session_cookie: Annotated[str, msgspec.Meta(max_length=200)] = ""
    hostname: Annotated[str, msgspec.Meta(max_length=253)] = ""
    max_redirects: Annotated[int, msgspec.Meta(ge=0, le=MOST_REDIRECTS)] = MOST_REDIRECTS
    failure_threshold: Threshold = 2
    success_threshold: Threshold = 1
    severity: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "critical"
    public: bool = False

    @property
    def kind(self) -> Kind:
        """What is done, by the scheme of the URL."""
        return KINDS[urlsplit(self.url).scheme]

    @property
    def shown(self) -> str:
        """Its title, or else its name."""
        return self.title or self.name

    def check(self, what: str = "") -> None:
        """Raises InvalidInput, which shows no secret, if it can never be probed. The error calls it `what`, by default
        by its name."""
        what = what or f"target {self.name!r}"
        self.expect.check(what)
        _check_place(what, self.url)
        for name, value in self.headers.items():
            check_header(f"{what}:", name, value)
        if self.hostname and not HOST_NAME.fullmatch(self.hostname):
            raise InvalidInput(f"{what}: hostname {self.hostname!r:.80} is not the name of a host")
        if self.steps and self.kind != "http":
            raise InvalidInput(f"{what}: steps need a URL that begins with https:// or http://")
        _check_schedule(what, self.schedule or self.interval, self.tz)
        _check_values(f"{what}: values", self.values)
        known = set(self.values)
        for step in self.steps:
            step.check(f"{what}, step {step.name!r}", known)
            if not _USED.search(step.url):
                _check_step_url(f"{what}, step {step.name!r}", self.url, step.url)

    def without_secrets(self) -> ProbeTarget:
        """As it is shown: without the values of headers, of login flows and of bodies."""
        hidden = msgspec.structs.replace(self, headers=_hidden(self.headers), values=_hidden(self.values), body="")
        steps = tuple(
            msgspec.structs.replace(each, headers=_hidden(each.headers), form=_hidden(each.form), body="")
            for each in self.steps
        )
        return msgspec.structs.replace(hidden, steps=steps)


class ProbeResult(Answer):
    """The result of a probe. `skipped` says why it was not run, which counts neither as a failure nor as a sample.
    `phases` are the seconds of each phase (resolve, connect, tls, processing, transfer), `steps` those of each step of
    a login flow. `attempts` counts the tries at the mutex; `fence` is that of the mutex, 0 if it was not acquired.
    `due` is the moment for which it was scheduled, null if somebody asked for it."""

    target: str
    url: str
    at: float
    passed: bool
    skipped: str = ""
    error: str = ""
    status: int | None = None
    seconds: float = 0.0
    phases: dict[str, float] = msgspec.field(default_factory=dict)
    steps: dict[str, float] = msgspec.field(default_factory=dict)
    certificate_expires: float | None = None
    attempts: int = 0
    fence: int = 0
    due: float | None = None


def _check_pattern(what: str, pattern: str) -> None:
    try:
        check_pattern(pattern, MAX_PATTERN)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def _check_values(what: str, names: Iterable[str]) -> None:
    for name in names:
        if not _VALUE.fullmatch(name):
            raise InvalidInput(f"{what}: {name!r:.80} cannot be used as {{name}}: write letters, digits and _")


def _check_step_url(what: str, base: str, url: str) -> None:
    try:
        Request("GET", urljoin(base, url))
    except ValueError as error:  # of which InvalidInput is one
        raise InvalidInput(f"{what}: {error}") from None


def _check_schedule(what: str, when: str | float, tz: str) -> None:
    try:
        check_schedule(when, tz)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def place_of(url: str) -> tuple[str, int]:
    """The host and port of a URL that is not HTTP."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or DNS_PORT


def origin_of(url: str) -> tuple[str, str]:
    """The scheme of a URL, and its host with the port."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def question_of(url: str) -> tuple[str, str]:
    """The name and the record type of a dns:// URL."""
    parts = urlsplit(url)
    return parts.path.strip("/"), parse_qs(parts.query).get("type", ["A"])[0].upper()


def filled(text: str, values: dict[str, str]) -> str:
    """The text with {name} replaced by the value of that name."""
    return _USED.sub(lambda found: values.get(found[1], found[0]), text)


def _check_place(what: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{what}: url is invalid: {error}") from None
    kind: Any = KINDS.get(parts.scheme)
    if kind is None:
        raise InvalidInput(f"{what}: url must begin with {'://, '.join(KINDS)}://, not {parts.scheme!r:.20}")
    if kind == "http":
        check_url(f"{what}: url", url)
    elif not parts.hostname or parts.username is not None:
        raise InvalidInput(f"{what}: write {kind}://host:port")
    elif kind != "dns" and not port:
        raise InvalidInput(f"{what}: {kind}:// needs a port, as in {kind}://{parts.hostname}:443")
    elif kind == "dns" and not (question_of(url)[0] and question_of(url)[1] in RECORD_TYPES):
        raise InvalidInput(f"{what}: write dns://server/name?type=A, with one of the types {', '.join(RECORD_TYPES)}")


def _hidden(values: dict[str, str]) -> dict[str, str]:
    return dict.fromkeys(values, "…")
