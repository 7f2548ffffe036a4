"""What a URL says: where the servers are, how to reach them, and our own options.

A password never shows in a repr or in an error.

redis://user:password@host:6379/0 · rediss:// (TLS) · unix:///path/to/socket?db=0
redis+sentinel://user:password@host1:26379,host2:26379/mymaster?db=0
redis+cluster://user:password@host1:6379,host2:6379

Options: namespace (default "solely"; all keys begin with it and a colon), eviction=warn (go on although the server may
evict our keys), ssl=true (TLS with Sentinel and Cluster), sentinel_username and sentinel_password, and what redis-py
takes for a connection: see OPTIONS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ssl import TLSVersion
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

from redis.connection import URL_QUERY_ARGUMENT_PARSERS

from ...credentials import Login, Logins
from ...errors import InvalidInput
from ...urls import read_namespace, split_url

OPTIONS = (
    "db", "username", "password", "client_name", "socket_keepalive",
    "ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data",
    "ssl_check_hostname", "ssl_include_verify_flags", "ssl_exclude_verify_flags", "ssl_min_version", "ssl_ciphers",
)  # fmt: skip
_OURS = ("namespace", "eviction", "ssl", "sentinel_username", "sentinel_password")
_PARSERS: dict[str, Any] = {**URL_QUERY_ARGUMENT_PARSERS, "ssl_min_version": lambda text: TLSVersion(int(text))}
_PORTS = {"redis": 6379, "rediss": 6379, "redis+sentinel": 26379, "redis+cluster": 6379}


class ServerAddress(NamedTuple):
    """Where a server listens: a host and port, or the path of a socket and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


@dataclass(frozen=True)
class RedisSettings:
    """A parsed URL."""

    scheme: str
    seeds: tuple[ServerAddress, ...]
    service: str  # the name under which Sentinel knows the primary
    prefix: str
    tls: bool
    eviction_warns: bool
    login: dict[str, Any] = field(repr=False)  # what redis-py's connections take
    sentinel_login: dict[str, Any] = field(repr=False)
    logins: Logins | None = None  # instead of a password in `login`

    @property
    def cluster(self) -> bool:
        return self.scheme == "redis+cluster"

    @property
    def sentinel(self) -> bool:
        return self.scheme == "redis+sentinel"

    def tries(self, *, seed: bool) -> Iterator[Login | None]:
        """The logins to try, one after the other; None: the one of the URL."""
        return iter((None,)) if self.logins is None or (seed and self.sentinel) else self.logins.tries()

    def __str__(self) -> str:
        return f"{self.scheme}://{','.join(map(str, self.seeds))}{'/' + self.service if self.service else ''}"


def parse(url: str, logins: Logins | None = None) -> RedisSettings:
    """The settings in the URL; InvalidInput, which names the invalid part, if it has one."""
    parts = split_url(url)
    given = _options(parts)
    _check_tls(given)
    login = {name: value for name, value in given.items() if name not in _OURS}
    user, hosts = _user(parts)
    login |= user
    if logins is not None and "password" in login:
        raise InvalidInput("the URL has a password, and credentials are given, too; give one of them")
    service = ""
    path = unquote(parts.path)
    if parts.scheme == "unix":
        seeds: tuple[ServerAddress, ...] = (ServerAddress(path, 0),)
    else:
        seeds = tuple(_address(host, _PORTS[parts.scheme]) for host in hosts.split(","))
        if parts.scheme == "redis+sentinel":
            service = path.strip("/")
            if not service:
                raise InvalidInput("redis+sentinel:// needs the primary's name: redis+sentinel://host:26379/mymaster")
        elif path.strip("/"):
            login["db"] = _number(path.strip("/"), "the database (the path of the URL)")
    if parts.scheme == "redis+cluster" and login.get("db"):
        raise InvalidInput("a cluster has no databases; use ?namespace= instead of db")
    return RedisSettings(
        scheme=parts.scheme,
        seeds=seeds,
        service=service,
        prefix=f"{read_namespace(parse_qsl(parts.query, keep_blank_values=True))}:",
        tls=parts.scheme == "rediss" or _is_true(given.get("ssl", "")),
        eviction_warns=_eviction(given.get("eviction", "")),
        login=login,
        sentinel_login={
            name: given[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in given
        },
        logins=logins,
    )


def _options(parts: SplitResult) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS and name not in _OURS:
            raise InvalidInput(
                f"{parts.scheme}:// does not know the option {name!r}; it takes {', '.join((*_OURS, *OPTIONS))}"
            )
        try:
            options[name] = _PARSERS.get(name, str)(text)
        except ValueError:
            raise InvalidInput(f"the option {name} of the {parts.scheme}:// URL has an invalid value") from None
    return options


def _check_tls(given: dict[str, Any]) -> None:
    """Raises InvalidInput for what redis-py would only find when it connects."""
    wanted = given.get("ssl_cert_reqs", "required")
    if wanted not in ("none", "optional", "required"):
        raise InvalidInput(f"ssl_cert_reqs must be none, optional or required, not {wanted!r:.40}")
    if not ((certificates := given.get("ssl_ca_data", "none")) and certificates.isascii()):
        raise InvalidInput("ssl_ca_data must be certificates in PEM form")
    if given.get("ssl_keyfile") and not given.get("ssl_certfile"):
        raise InvalidInput("ssl_keyfile needs ssl_certfile, the certificate that the key is for")


def _user(parts: SplitResult) -> tuple[dict[str, str], str]:
    """The login in front of the hosts, and the hosts."""
    user, at, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    login = {"username": unquote(name), "password": unquote(password)} if at else {}
    return {part: text for part, text in login.items() if text}, hosts


def _address(text: str, default_port: int) -> ServerAddress:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    return ServerAddress(unquote(host).strip("[]") or "localhost", _number(port, "the port"))


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidInput(f"{what} must be a number, not {text!r:.40}")
    return int(text)


def _is_true(text: str) -> bool:
    return text.lower() in ("1", "true", "yes")


def _eviction(text: str) -> bool:
    if text not in ("", "refuse", "warn"):
        raise InvalidInput(f"eviction must be refuse or warn, not {text!r:.40}")
    return text == "warn"
