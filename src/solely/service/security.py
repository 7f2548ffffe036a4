"""Bearer tokens, which are stored as digests, and the hosts and origins that are permitted. All secrets are compared in
constant time, as bytes."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from ..errors import InvalidInput

_OF_NO_TEXT = hashlib.sha256(b"").digest()  # what a shell makes of a variable that is not set
AT_ONCE = 2  # tokens of one name that are valid at the same time: the old and the new one, while clients change over
# A name, an IPv4 address, or an IPv6 address in brackets, with or without a port; and no other part of a URL.
_HOST = re.compile(
    rb"(?:(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,254})|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{0,5}))?"
)
_KNOWN_HOSTS = 256  # spellings of accepted hosts that are cached: names times ports


class Scope(IntEnum):
    """What a token may do; each includes those before it."""

    READ = 1  # list and inspect
    WRITE = 2  # acquire, renew, finish, release
    ADMIN = 3  # override what others hold, with a reason that is audited


class Principal(NamedTuple):
    """A caller. `digest` ties a session to the token that opened it."""

    name: str
    scope: Scope
    digest: bytes = b""


LOCAL = Principal("local", Scope.ADMIN)  # every caller, where there are no tokens: only on a loopback address
NOBODY = Principal("nobody", Scope.READ)  # the caller of a public route
WEBHOOK = Principal("webhook", Scope.WRITE)  # the caller of a route with its own check


def same(given: str | bytes, expected: str | bytes) -> bool:
    """True if both are equal; compares in constant time."""
    return hmac.compare_digest(_bytes(given), _bytes(expected))


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


# -- tokens


def mint(name: str, scope: Scope) -> tuple[str, str]:
    """(a fresh token of 256 bits, its line in the token file): the file holds only a digest of the token."""
    if not re.fullmatch(r"[\w.@-]{1,64}", name):
        raise InvalidInput(f"a token's name is 1 to 64 letters, digits, or any of . _ @ -, not {name!r:.80}")
    token = secrets.token_urlsafe(32)
    return token, f"{name}:{scope.name.lower()}:{hashlib.sha256(token.encode()).hexdigest()}"


def read_token_line(line: str) -> Principal:
    """`name:scope:sha256` as a principal. InvalidInput does not repeat the line, since it may hold a secret."""
    name, _, rest = line.strip().partition(":")
    scope, _, digest = rest.partition(":")
    try:
        known = Principal(name, Scope[scope.upper()], bytes.fromhex(digest))
    except (KeyError, ValueError):
        known = LOCAL
    if not name or len(known.digest) != 32:
        raise InvalidInput(
            "a token is written name:scope:digest, with the scope read, write or admin and the SHA-256 of the token "
            "in 64 hex digits; `solely token` makes one"
        )
    if not any(known.digest):
        raise InvalidInput(
            f"the token {name!r} has only zeros as its digest, as our examples do; `solely token` makes one"
        )
    if known.digest == _OF_NO_TEXT:
        raise InvalidInput(f"the token {name!r} is empty: its digest is that of no text; `solely token` makes one")
    return known


class Tokens:
    """The valid tokens. Without any, every caller is LOCAL."""

    principals: list[Principal]

    def __init__(self, lines: Iterable[str]) -> None:
        self.replace(lines)

    def replace(self, lines: Iterable[str]) -> None:
        """Makes only these tokens valid. Raises InvalidInput, and changes nothing, if a line is invalid."""
        principals = [read_token_line(line) for line in lines]
        names = [each.name for each in principals]
        for name in names:
            if names.count(name) > AT_ONCE:
                raise InvalidInput(f"{names.count(name)} tokens are named {name!r}; {AT_ONCE} may be valid at once")
        self.principals = principals

    def __bool__(self) -> bool:
        return bool(self.principals)

    def whose(self, token: bytes) -> Principal | None:
        """Whose token it is; None if nobody's."""
        digest, found = hashlib.sha256(token).digest(), None
        for each in self.principals:  # always all of them, so that the time reveals nothing
            if hmac.compare_digest(each.digest, digest):
                found = each
        return found

    def bearer(self, authorization: bytes) -> Principal | None:
        """The caller that sent this `Authorization`; None if it holds no valid bearer token."""
        scheme, _, token = authorization.partition(b" ")
        return self.whose(token.strip()) if scheme.lower() == b"bearer" else None

    def still(self, name: str, digest: bytes) -> Principal | None:
        """The principal whose token has this digest, if it is still valid."""
        for each in self.principals:
            if each.name == name and hmac.compare_digest(each.digest, digest):
                return each
        return None

    def knows(self, principal: Principal) -> bool:
        """True if the token with which this caller authenticated is still valid."""
        if principal.digest:
            return principal in self.principals
        return principal is not LOCAL or not self.principals


# -- hosts and origins


class Hosts:
    """Which `Host` and `Origin` are permitted, so that pages of other sites cannot call us through a browser.

    An IP address is always permitted: a name that an attacker points at this service is not.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"localhost", *(name.lower() for name in names)}
        self._known: set[bytes] = set()

    def knows(self, host: bytes) -> bool:
        """True if this host is permitted, with any port."""
        if host in self._known:
            return True
        known = self._is_ours(host)
        if known and len(self._known) < _KNOWN_HOSTS:
            self._known.add(host)
        return known

    def _is_ours(self, host: bytes) -> bool:
        name = host_name(host)
        return name in self._names or _is_address(name)

    def same_site(self, origin: bytes, host: bytes) -> bool:
        """True if the origin has the same host, whatever its scheme: a proxy may use another."""
        _, separator, authority = origin.partition(b"://")
        return bool(separator) and authority.lower() == host.lower()


def host_name(host: bytes) -> str:
    """The name or address in a `Host` header, in lower case and without its port; "" if the header is malformed."""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65_535:
        return ""
    if found["six"] is None:
        return found["name"].decode().lower()
    address = found["six"].decode().lower()
    return address if ":" in address and _is_address(address) else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server that listens on this host."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
