"""Who may do what: bearer tokens kept as digests, sessions of the dashboard, hosts and origins. All compares take
constant time, on bytes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from ..errors import InvalidInput

AT_ONCE = (
    2  # tokens of one name that are valid at the same time: the old one and the new one, while clients change over
)
SESSION = 12 * 3600.0  # seconds: a working day, so that a forgotten browser is shut out by the next morning
# A name or an IPv4 address, or an IPv6 address in brackets; and a port. Nothing of a URL that could stand around it.
_HOST = re.compile(
    rb"(?:(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,254})|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{0,5}))?"
)
_KNOWN_HOSTS = 256  # spellings of accepted hosts that are remembered: names times ports, and no more than that


class Scope(IntEnum):
    """What a token may do; each includes those before it."""

    READ = 1  # look
    WRITE = 2  # take, renew, finish, let go
    ADMIN = 3  # undo what others hold, with a reason that is kept


class Principal(NamedTuple):
    """Who asks. `digest` ties a session to the token that opened it."""

    name: str
    scope: Scope
    digest: bytes = b""


LOCAL = Principal("local", Scope.ADMIN)  # everybody, where there are no tokens: only ever on a loopback address
NOBODY = Principal("nobody", Scope.READ)  # the caller of a public route
WEBHOOK = Principal("webhook", Scope.WRITE)  # the caller of a route whose own check let it through


def same(given: str | bytes, expected: str | bytes) -> bool:
    """True if both are equal; takes as long for a near miss as for a far one."""
    return hmac.compare_digest(_bytes(given), _bytes(expected))


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


# -- tokens


def mint(name: str, scope: Scope) -> tuple[str, str]:
    """(a fresh token of 256 bits, the line for the file of tokens): the token is told once, its digest is kept."""
    if not re.fullmatch(r"[\w.@-]{1,64}", name):
        raise InvalidInput(f"a token's name is 1 to 64 letters, digits, or any of . _ @ -, not {name!r:.80}")
    token = secrets.token_urlsafe(32)
    return token, f"{name}:{scope.name.lower()}:{hashlib.sha256(token.encode()).hexdigest()}"


def read_token_line(line: str) -> Principal:
    """`name:scope:sha256` as a principal; else InvalidInput, which does not repeat the line: it may be a secret."""
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
    return known


class Tokens:
    """The tokens that are valid now. Without any, everybody is LOCAL."""

    principals: list[Principal]

    def __init__(self, lines: Iterable[str]) -> None:
        self.replace(lines)

    def replace(self, lines: Iterable[str]) -> None:
        """From now on these are valid, and no others; InvalidInput, and all is as it was, if they cannot be."""
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
        for each in self.principals:  # all of them, so that the time does not tell which
            if hmac.compare_digest(each.digest, digest):
                found = each
        return found

    def bearer(self, authorization: bytes) -> Principal | None:
        """Whose `Authorization` it is; None if it is no bearer token of ours."""
        scheme, _, token = authorization.partition(b" ")
        return self.whose(token.strip()) if scheme.lower() == b"bearer" else None

    def still(self, name: str, digest: bytes) -> Principal | None:
        """The principal whose token has this digest, if it is still valid."""
        for each in self.principals:
            if each.name == name and hmac.compare_digest(each.digest, digest):
                return each
        return None

    def knows(self, principal: Principal) -> bool:
        """True if what this caller was granted when it asked still stands."""
        if principal.digest:
            return principal in self.principals
        return principal is not LOCAL or not self.principals


# -- sessions


class Sessions:
    """Logins of the dashboard: signed cookies that end after SESSION, or with the token that opened them. Those that
    were ended before, by a logout, are in the store: see `logouts`."""

    COOKIE = "solely_session"

    def __init__(self, secret: bytes, tokens: Tokens) -> None:
        self._secret = secret
        self._tokens = tokens

    def open(self, principal: Principal) -> str:
        """The value of the cookie."""
        facts = f"{principal.name}\n{principal.digest.hex()}\n{int(time.time() + SESSION)}\n{secrets.token_hex(8)}"
        text = base64.urlsafe_b64encode(facts.encode()).decode()
        return f"{text}.{self._sign('session', text)}"

    def whose(self, cookie: str) -> Principal | None:
        """Whose session it is; None if it is forged, or over, or its token is no longer valid."""
        text, _, signature = cookie.partition(".")
        if not same(signature, self._sign("session", text)):
            return None
        name, digest, ends, _ = base64.urlsafe_b64decode(text).decode().split("\n")
        return self._tokens.still(name, bytes.fromhex(digest)) if time.time() < int(ends) else None

    def csrf(self, cookie: str) -> str:
        """What a write of this session must bring along, and no other site can know."""
        return self._sign("csrf", cookie)

    def _sign(self, use: str, text: str) -> str:
        return hmac.digest(self._secret, f"{use}\n{text}".encode("utf-8", "surrogatepass"), "sha256").hex()


# -- hosts and origins


class Hosts:
    """Which `Host` and `Origin` are answered, so that no other site's page can speak through a browser to us.

    An address in digits is always a host of ours: a name that is made to point here is not.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"localhost", *(name.lower() for name in names)}
        self._known: set[bytes] = set()

    def knows(self, host: bytes) -> bool:
        """True if this is a host of ours, with any port."""
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
        """True if a page of this origin is one of ours: whatever scheme a proxy speaks, the host is the same."""
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
    """True if only this machine can reach a server that binds this host."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
