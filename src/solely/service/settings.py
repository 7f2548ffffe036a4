"""Settings: defaults, then a TOML file, then SOLELY_* of the environment, then flags; the later wins.

An unknown key is an error, which suggests a similar one. Secrets are never shown. Each application declares the fields
of its own section.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlunsplit

import msgspec

from ..apps import APPS, find
from ..client import default_url
from ..data.place import MEMORY, beside
from ..errors import InvalidInput
from ..folder import read_text
from ..stores import capabilities
from ..urls import split_url
from .security import Tokens, is_loopback
from .settings_parsing import (
    ENVIRONMENT,
    PLACEHOLDER,
    by_section,
    checked,
    masked,
    read_environment,
    read_file,
    texts_of,
)

_SECRETS = ("tokens", "session_secret")
_URLS = ("url", "data_url")
NO_APPS = "none"  # given instead of names: an empty environment variable would look like one that is not set
HIDDEN = "…"


def _described(text: str, **bounds: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, **bounds)


def _seconds(text: str, *, least: float = 0.0, most: float = 366 * 86_400.0) -> msgspec.Meta:
    return msgspec.Meta(description=text, ge=least, le=most)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the service runs. Durations are seconds, or text such as "30s", "5m", "1h30m"."""

    url: Annotated[str, _described("the store; without one, an embedded SQLite file")] = ""
    credentials: Annotated[str, _described("of the store, if they change: entra, command: …, or module:name")] = ""
    data_url: Annotated[str, _described("the SQL database of applications: sqlite or postgresql")] = ""
    apps: Annotated[tuple[str, ...], _described("applications to mount: all, unless some are named, or none")] = (
        msgspec.field(default_factory=lambda: tuple(APPS))
    )
    sections: Annotated[dict[str, Any], _described("of applications: [name] in a file, SOLELY_NAME_FIELD outside")] = {}
    host: Annotated[str, _described("the address to listen on; one that others can reach needs tokens")] = "127.0.0.1"
    port: Annotated[int, _described("0 picks a free one", ge=0, le=65_535)] = 8765
    workers: Annotated[int, _described("processes; more than one needs a store that they share", ge=1, le=64)] = 1
    demo: Annotated[bool, _described("runs example traffic, so that the dashboard has something to show")] = False

    tokens: Annotated[tuple[str, ...], _described("name:scope:sha256 of each token")] = ()
    tokens_file: Annotated[str, _described("a file with one name:scope:sha256 per line")] = ""
    public_base_url: Annotated[str, _described("where people reach this service, for links and reports")] = ""
    session_secret: Annotated[str, _described("signs dashboard sessions; random, unless several hosts share them")] = ""
    allowed_hosts: Annotated[tuple[str, ...], _described("names of this service that clients may use")] = ()

    store_timeout: Annotated[
        float, _seconds("until a store that does not reply counts as unavailable", least=0.1, most=60.0)
    ] = 5.0
    receive_timeout: Annotated[float, _seconds("for a request to arrive completely", least=0.1, most=300.0)] = 10.0
    idle_timeout: Annotated[float, _seconds("for which an idle connection is kept", least=1.0, most=600.0)] = 60.0
    stop_timeout: Annotated[float, _seconds("for requests in flight to end when the service stops", most=600.0)] = 10.0
    max_wait: Annotated[float, _seconds("the longest wait of one request", most=3600.0)] = 60.0
    max_ttl: Annotated[float, _seconds("the longest lease; marks and results may last longer")] = 86_400.0
    max_body: Annotated[int, _described("bytes of a body, unless its route allows more", ge=1024, le=1 << 28)] = 1 << 20
    max_header: Annotated[int, _described("bytes of a request's line and headers", ge=1024, le=1 << 20)] = 32 << 10
    bare_keys: Annotated[bool, _described("accept an Idempotency-Key without its double quotes")] = False
    max_connections: Annotated[int, _described("at once, per worker", ge=10, le=100_000)] = 4000
    max_unauthenticated: Annotated[
        int, _described("of these, without a valid token so far; 0: a quarter of max_connections", ge=0, le=100_000)
    ] = 0
    max_per_address: Annotated[
        int, _described("of these, from one address; 0: all of them, as a proxy needs", ge=0, le=100_000)
    ] = 0
    max_waiters: Annotated[int, _described("waiting requests per client and worker", ge=1, le=100_000)] = 200
    max_holds: Annotated[int, _described("leases per client and worker", ge=1, le=10_000_000)] = 10_000

    history: Annotated[float, _seconds("for which events of keys are kept in the data database; 0 keeps none")] = (
        7 * 86_400.0
    )
    history_events: Annotated[int, _described("that are kept at most, of all workers", ge=1000, le=10**8)] = 100_000

    log_level: Annotated[Literal["debug", "info", "warning", "error"], _described("the least that is logged")] = "info"
    log_format: Annotated[Literal["auto", "json", "console"], _described("auto: console on a terminal, else JSON")] = (
        "auto"
    )
    access_log: Annotated[bool, _described("log every request, not only failed and denied ones")] = False
    telemetry: Annotated[bool, _described("OpenTelemetry spans; needs solely[otel]")] = False

    @property
    def store_url(self) -> str:
        """The URL of the store, or that of the default store."""
        return self.url or default_url()

    @property
    def database_url(self) -> str:
        """The URL of the applications' database, or that of the default one."""
        return self.data_url or beside(self.store_url)

    @property
    def unauthenticated_bound(self) -> int:
        """The most unauthenticated connections per worker. A quarter leaves most of them to authenticated callers, and
        is enough for hundreds that connect at the same moment."""
        return self.max_unauthenticated or self.max_connections // 4

    @property
    def address_bound(self) -> int:
        """The most unauthenticated connections per address. Unlimited by default: behind a proxy, and on one host, all
        callers share one address, and a burst of honest callers is no attack. One address that uses all connections
        locks nobody out, since new connections replace idle ones."""
        return self.max_per_address or self.unauthenticated_bound

    @property
    def mounted(self) -> tuple[str, ...]:
        """The names of the applications to mount."""
        return () if self.apps == (NO_APPS,) else self.apps

    def section(self, app: str) -> Any:
        """The settings of the application; InvalidInput if a required one is missing."""
        return self.sections[app] if app in self.sections else _section(app, {})

    def token_lines(self) -> list[str]:
        """The lines of all tokens, of `tokens` and of the token file; InvalidInput if the file is unreadable."""
        if not self.tokens_file:
            return list(self.tokens)
        try:
            text = read_text(self.tokens_file)
        except (OSError, ValueError) as error:
            remedy = _remedy(self.tokens_file) if isinstance(error, PermissionError) else ""
            raise InvalidInput(f"tokens_file {self.tokens_file!r} cannot be read: {error}{remedy}") from None
        lines = (line.strip() for line in text.splitlines())
        return [*self.tokens, *(line for line in lines if line and not line.startswith("#"))]


def _remedy(file: str) -> str:
    """Why this user may not read the file, and what to do; "" if that is unknown."""
    try:
        found = os.stat(file)
    except OSError:  # a folder above it is closed
        return f"; let uid {os.geteuid()} enter its folders"
    return (
        f"; it belongs to uid {found.st_uid} with mode {found.st_mode & 0o777:o}, and the service runs as uid "
        f"{os.geteuid()}: make it readable for that user, such as by `solely token … --mode 644` (it has only the "
        "SHA-256 of tokens)"
    )


class Loaded(NamedTuple):
    """Settings, and the source of each that is not a default."""

    settings: Settings
    sources: dict[str, str]


def load(
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """The merged settings; InvalidInput names the first invalid source, what is wrong there, and what to do.

    A flag that is None was not given. Without `file`, SOLELY_CONFIG names it, if there is one.
    """
    environ = environ or {}
    file = file or environ.get("SOLELY_CONFIG") or None
    values: dict[str, dict[str, Any]] = {"": {}}
    sources: dict[str, str] = {}
    for source, part in (
        (f"file {file}", read_file(file)),
        (ENVIRONMENT, dict(read_environment(environ, Settings.__struct_fields__))),
        ("flag", {name: value for name, value in (flags or {}).items() if value is not None}),
    ):
        for section, given in by_section(source, part).items():
            shape, hidden = (find(section).Settings, find(section).secrets) if section else (Settings, _SECRETS + _URLS)
            read = checked(source, given, shape, section=section, hidden=hidden)
            values.setdefault(section, {}).update(read)
            sources.update({f"{section}.{name}" if section else name: source for name in read})
    own = values.pop("")
    settings = Settings(**own, sections={app: _section(app, fields) for app, fields in values.items()})
    verify(settings)
    return Loaded(settings, sources)


def _section(app: str, fields: Mapping[str, Any]) -> Any:
    """The settings of an application from these fields; InvalidInput if they contradict each other."""
    shape = find(app).Settings
    try:
        return shape(**fields)
    except (TypeError, ValueError) as error:  # a TypeError names a field that has no default and was not given
        hidden = [fields[name] for name in find(app).secrets if name in fields]
        raise InvalidInput(f"[{app}]: {masked(str(error), hidden)}") from None


def verify(settings: Settings) -> None:
    """Raises InvalidInput, with all errors, if the settings contradict each other."""
    wrong = list(_errors(settings))
    if wrong:
        raise InvalidInput("; ".join(wrong))


def _errors(settings: Settings) -> Iterator[str]:
    tokens = False
    try:
        tokens = bool(Tokens(settings.token_lines()))
    except InvalidInput as error:
        yield str(error)
    if not is_loopback(settings.host) and not tokens:
        yield (
            f"host {settings.host!r} can be reached by others, and there are no tokens: anybody could release every "
            "lock; use 127.0.0.1, or give tokens or tokens_file"
        )
    if settings.workers > 1 and not capabilities(settings.store_url).shared:
        yield f"{settings.workers} workers cannot share memory://; use sqlite:// or a server, or one worker"
    if settings.workers > 1 and settings.data_url.endswith(f"/{MEMORY}"):
        yield f"{settings.workers} workers cannot share a data_url in memory; give a file, a server, or one worker"
    if settings.data_url and not capabilities(settings.data_url).sql_dialect:
        yield "data_url must begin with sqlite:/// or postgresql://"
    if settings.data_url == settings.url and capabilities(settings.url).embedded_file:
        yield "data_url and url name one file: give the data of applications a file of their own"
    if settings.max_unauthenticated >= settings.max_connections:
        yield (
            f"max_unauthenticated={settings.max_unauthenticated} leaves no connection for callers that have "
            f"authenticated; give less than max_connections={settings.max_connections}"
        )
    yield from _errors_of_apps(settings)
    yield from _placeholders(settings)
    if settings.session_secret and len(settings.session_secret) < 32:
        yield "session_secret must have 32 characters or more"


def _errors_of_apps(settings: Settings) -> Iterator[str]:
    if len(set(settings.apps)) < len(settings.apps):
        yield f"apps: {', '.join(settings.apps)} names one twice"
    for app in settings.mounted:
        try:
            settings.section(app)
        except InvalidInput as error:
            yield f"apps: {error}, or {NO_APPS} alone" if app not in APPS else str(error)


def _placeholders(settings: Settings) -> Iterator[str]:
    """The secrets that still have a value of our examples, which everybody knows."""
    secrets = {name: getattr(settings, name) for name in _SECRETS + _URLS}
    for app, section in settings.sections.items():
        secrets |= {f"{app}.{name}": getattr(section, name) for name in find(app).secrets}
    for name, secret in secrets.items():
        if any(PLACEHOLDER in text.lower() for text in texts_of(secret)):
            yield f"{name} still has {PLACEHOLDER!r} of the example in it, which everybody knows; give your own"


# -- showing


def shown(loaded: Loaded) -> dict[str, Any]:
    """The merged settings as plain data, without secrets; the section of each mounted application under its name."""
    settings = loaded.settings
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(settings, sections={}))
    del plain["sections"]
    tokens = Tokens(settings.token_lines())
    plain["tokens"] = [f"{each.name}:{each.scope.name.lower()}:{HIDDEN}" for each in tokens.principals]
    plain["session_secret"] = HIDDEN if settings.session_secret else ""
    plain["url"] = without_password(settings.store_url)
    plain["data_url"] = without_password(settings.database_url)
    for app in settings.mounted:
        fields = msgspec.to_builtins(settings.section(app))
        plain[app] = {name: HIDDEN if name in find(app).secrets else value for name, value in fields.items()}
    return plain


def without_password(url: str) -> str:
    """The URL without its secrets: no password, and no values of options, which may hold one."""
    parts = split_url(url)
    user, at, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    place = f"{name}:…@{host}" if ":" in user else f"{name}{at}{host}"
    query = "&".join(f"{option.partition('=')[0]}=…" for option in parts.query.split("&") if option)
    return urlunsplit((parts.scheme, place, parts.path, query, "")) if parts.netloc or query else url


def as_toml(loaded: Loaded) -> str:
    """The merged settings as a TOML file that can be read again (but for its secrets), each with its source."""
    plain = shown(loaded)
    sections = {app: plain.pop(app) for app in loaded.settings.mounted}
    lines = [_line(name, value, loaded.sources.get(name)) for name, value in plain.items()]
    for app, fields in sections.items():
        lines += ["", f"[{app}]".ljust(44) + f"  # {find(app).about or find(app).title}"]
        lines += [_line(name, value, loaded.sources.get(f"{app}.{name}")) for name, value in fields.items()]
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any, source: str | None) -> str:
    start = f"# {name} =" if value is None else f"{name} = {_as_toml(value)}"
    return start.ljust(44) + f"  # {source or 'default'}"


def _as_toml(value: Any) -> str:
    """A value on one line. Fields that are None are omitted, since TOML has no null."""
    if isinstance(value, dict):
        fields = (f"{_as_toml(str(name))} = {_as_toml(each)}" for name, each in value.items() if each is not None)
        return f"{{ {', '.join(fields)} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_as_toml, value))}]"
    return msgspec.json.encode(value).decode()
