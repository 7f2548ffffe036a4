"""Settings: defaults, then a TOML file, then SOLELY_* of the environment, then flags; the later wins.

Keys that are not known are an error, with the one that was meant. What is shown has no secrets in it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ..client import default_url
from ..errors import InvalidInput
from ..rules import duration
from .security import Tokens, is_loopback

PREFIX = "SOLELY_"
# Variables that are not the service's: where the file is, what `solely run` exports, what commands and tests read.
NOT_OURS = ("SOLELY_CONFIG", "SOLELY_FENCE", "SOLELY_TOKEN", "SOLELY_KEY", "SOLELY_OUTPUT")
NOT_OURS_PREFIXES = ("SOLELY_TEST_", "SOLELY_RUN_", "_SOLELY_")

_SECRETS = ("tokens", "session_secret")
_URLS = ("url", "data_url")


def _described(text: str, **bounds: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, **bounds)


def _seconds(text: str, *, least: float = 0.0, most: float = 366 * 86_400.0) -> msgspec.Meta:
    return msgspec.Meta(description=text, ge=least, le=most)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the service runs. Durations are seconds, or text such as "30s", "5m", "1h30m"."""

    url: Annotated[str, _described("the store; without one, an embedded SQLite file")] = ""
    data_url: Annotated[str, _described("the SQL database of applications: sqlite or postgresql")] = ""
    host: Annotated[str, _described("the address to bind; one that others can reach needs tokens")] = "127.0.0.1"
    port: Annotated[int, _described("0 takes a free one", ge=0, le=65_535)] = 8765
    workers: Annotated[int, _described("processes; more than one needs a store that they share", ge=1, le=64)] = 1
    demo: Annotated[bool, _described("runs believable traffic, so that there is something to see")] = False

    tokens: Annotated[tuple[str, ...], _described("name:scope:sha256 of each token")] = ()
    tokens_file: Annotated[str, _described("a file with one name:scope:sha256 per line")] = ""
    session_secret: Annotated[str, _described("signs dashboard sessions; random, unless several hosts share them")] = ""
    allowed_hosts: Annotated[tuple[str, ...], _described("names by which the service is called")] = ()

    store_timeout: Annotated[float, _seconds("until an unanswered store is given up", least=0.1, most=60.0)] = 5.0
    receive_timeout: Annotated[float, _seconds("for a request to arrive whole", least=0.1, most=300.0)] = 10.0
    idle_timeout: Annotated[float, _seconds("for which an idle connection is kept", least=1.0, most=600.0)] = 60.0
    stop_timeout: Annotated[float, _seconds("for requests under way to end when the service stops", most=600.0)] = 10.0
    max_wait: Annotated[float, _seconds("the longest wait of one request", most=3600.0)] = 60.0
    max_ttl: Annotated[float, _seconds("the longest lease; what is remembered may last longer")] = 86_400.0
    max_body: Annotated[int, _described("bytes of any body, whatever its route allows", ge=1024, le=1 << 28)] = 1 << 20
    max_header: Annotated[int, _described("bytes of a request's line and headers", ge=1024, le=1 << 20)] = 32 << 10
    max_connections: Annotated[int, _described("at once, per worker", ge=10, le=100_000)] = 2000
    max_waiters: Annotated[int, _described("waiting requests per client and worker", ge=1, le=100_000)] = 200
    max_holds: Annotated[int, _described("leases per client and worker", ge=1, le=10_000_000)] = 10_000

    log_level: Annotated[Literal["debug", "info", "warning", "error"], _described("the least that is logged")] = "info"
    log_format: Annotated[Literal["auto", "json", "console"], _described("auto: console on a terminal, else JSON")] = (
        "auto"
    )
    access_log: Annotated[bool, _described("a line per request; else only of those that failed")] = False
    telemetry: Annotated[bool, _described("OpenTelemetry spans; needs solely[otel]")] = False

    @property
    def store_url(self) -> str:
        """The URL of the store, of which there always is one."""
        return self.url or default_url()

    def token_lines(self) -> list[str]:
        """The lines of all tokens, from here and from the file; InvalidInput if that cannot be read."""
        if not self.tokens_file:
            return list(self.tokens)
        try:
            text = Path(self.tokens_file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"tokens_file {self.tokens_file!r} cannot be read: {error}") from None
        lines = (line.strip() for line in text.splitlines())
        return [*self.tokens, *(line for line in lines if line and not line.startswith("#"))]


class Loaded(NamedTuple):
    """Settings, and where each that is no default came from."""

    settings: Settings
    sources: dict[str, str]


def load(
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """The merged settings; InvalidInput names the first source that is wrong, what is wrong there, and what to do.

    Flags whose value is None were not given. Without `file`, SOLELY_CONFIG names it, if there is one.
    """
    environ = environ or {}
    file = file or environ.get("SOLELY_CONFIG") or None
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    for source, part in (
        (f"file {file}", _read(file)),
        ("environment", dict(_from(environ))),
        ("flag", given),
    ):
        checked = _checked(source, part)
        values.update(checked)
        sources.update(dict.fromkeys(checked, source))
    settings = Settings(**values)
    verify(settings)
    return Loaded(settings, sources)


def verify(settings: Settings) -> None:
    """Nothing, if the settings go together; else InvalidInput, with all that is wrong."""
    wrong = list(_complaints(settings))
    if wrong:
        raise InvalidInput("; ".join(wrong))


def _complaints(settings: Settings) -> Iterator[str]:
    tokens = False
    try:
        tokens = bool(Tokens(settings.token_lines()))
    except InvalidInput as error:
        yield str(error)
    if not is_loopback(settings.host) and not tokens:
        yield (
            f"host {settings.host!r} can be reached by others, and there are no tokens: anybody could release every "
            "lock; bind 127.0.0.1, or give tokens or tokens_file"
        )
    if settings.workers > 1 and urlsplit(settings.store_url).scheme == "memory":
        yield f"{settings.workers} workers cannot share memory://; use sqlite:// or a server, or one worker"
    if settings.data_url and urlsplit(settings.data_url).scheme not in ("sqlite", "postgresql", "postgres"):
        yield "data_url must begin with sqlite:/// or postgresql://"
    if settings.session_secret and len(settings.session_secret) < 32:
        yield "session_secret must have 32 characters or more"


# -- reading


def _read(file: str | Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(Path(file).read_text())
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise InvalidInput(f"settings file {str(file)!r} cannot be read: {error}") from None


def _from(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith(PREFIX) and name not in NOT_OURS and not name.startswith(NOT_OURS_PREFIXES):
            yield name.removeprefix(PREFIX).lower(), value


def _checked(source: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """The part with its values as they should be; InvalidInput that names the key and the source."""
    types = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    checked = {}
    for name, value in part.items():
        if name not in types:
            meant = get_close_matches(name, types, 1)
            spelt = f"{PREFIX}{name.upper()}" if source == "environment" else name
            hint = f"; did you mean {meant[0]}?" if meant else f"; known are {', '.join(types)}"
            raise InvalidInput(f"{source}: unknown key {spelt!r}{hint}")
        try:
            checked[name] = _value(types[name], value)
        except ValueError as error:
            shown = "" if name in _SECRETS or name in _URLS else f" {value!r}"
            raise InvalidInput(f"{source}: {name}{shown}: {error}") from None
    return checked


def _value(wanted: Any, value: Any) -> Any:
    """The value as its type; text (all that an environment has) is read as what is wanted."""
    kind: Any = msgspec.inspect.type_info(wanted)
    if isinstance(value, str) and isinstance(kind.type, msgspec.inspect.FloatType):
        value = duration(value)  # all that is no whole number is a duration
    elif isinstance(value, str) and isinstance(kind.type, msgspec.inspect.VarTupleType):
        value = [part for part in re.split(r"[,\s]+", value) if part]
    return msgspec.convert(value, wanted, strict=not isinstance(value, str))


# -- showing


def shown(loaded: Loaded) -> dict[str, Any]:
    """The merged settings as plain data, without secrets."""
    settings = loaded.settings
    plain: dict[str, Any] = msgspec.to_builtins(settings)
    tokens = Tokens(settings.token_lines())
    plain["tokens"] = [f"{each.name}:{each.scope.name.lower()}:…" for each in tokens.principals]
    plain["session_secret"] = "…" if settings.session_secret else ""
    plain["url"] = without_password(settings.store_url)
    plain["data_url"] = without_password(settings.data_url)
    return plain


def without_password(url: str) -> str:
    """The URL with nothing in it that opens a door: no password, and no options, which may hold one."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    place = f"{name}:…@{host}" if ":" in user else f"{name}{at}{host}"
    query = "&".join(f"{option.partition('=')[0]}=…" for option in parts.query.split("&") if option)
    return urlunsplit((parts.scheme, place, parts.path, query, "")) if parts.netloc or query else url


def as_toml(loaded: Loaded) -> str:
    """The merged settings as a TOML file that could be read again (but for its secrets), each with its source."""
    lines = []
    for name, value in shown(loaded).items():
        text = msgspec.json.encode(value).decode()
        lines.append(f"{name} = {text}".ljust(44) + f"  # {loaded.sources.get(name, 'default')}")
    return "\n".join(lines) + "\n"
