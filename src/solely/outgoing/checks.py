"""Checks of what is to be called: URLs, headers, networks, certificates. Invalid ones raise `InvalidInput`, whose text
begins with `what` and shows no secret: a whole URL may be one."""

from __future__ import annotations

import re
import ssl
from functools import cache, lru_cache
from ipaddress import ip_network
from urllib.parse import urlsplit

import httpcore2
import httpx2

from ..errors import InvalidInput

MAX_URL = 2048  # characters: all servers and proxies accept that many
MAX_HEADER = 8190  # characters of a value: the limit of most servers for a line
_REMEMBERED = 256  # URLs: a caller has few, and parsing one takes as long as to sign a request
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")


def check_url(what: str, url: str, most: int = MAX_URL) -> None:
    """Raises InvalidInput, which shows no more of the URL than its scheme, unless it can be called."""
    if wrong := _wrong(url, most):
        raise InvalidInput(f"{what} {wrong}")


@lru_cache(_REMEMBERED)
def parsed(url: str) -> httpx2.URL:
    """The URL as it is called; httpx2.InvalidURL if it is none."""
    return httpx2.URL(url)


@lru_cache(_REMEMBERED)
def _wrong(url: str, most: int) -> str:
    """What is wrong with the URL, "" if it can be called."""
    try:
        parts = urlsplit(url)
        place = (parts.hostname, parts.port)
    except ValueError as error:  # with a text that shows user and password if they are not ASCII
        return f"is invalid: {error}" if url.isascii() else "is invalid: it must be ASCII"
    if parts.scheme not in ("http", "https"):
        return f"must begin with https:// or http://, not {parts.scheme or 'nothing'!r:.40}"
    if not place[0] or place[1] == 0:
        return "names no host that can be called"
    if parts.username is not None or parts.password is not None:
        return "has a user or password in it; give them as a header instead"
    if len(url) > most or not url.isascii() or not url.isprintable() or " " in url or parts.fragment:
        return f"must be up to {most} ASCII characters without spaces and without a #fragment"
    return "" if _readable(url) else "names a host that cannot be"


def _readable(url: str) -> bool:
    """True if the parser that is used for the call reads it as well: the two differ in strange cases."""
    try:
        return bool(parsed(url).host)
    except (httpx2.InvalidURL, UnicodeError):
        return False


def check_header(what: str, name: str, value: str, most: int = MAX_HEADER) -> None:
    """Raises InvalidInput, which does not show the value, unless the header can be sent."""
    if not _HEADER.fullmatch(name) or not _HEADER_VALUE.fullmatch(value) or len(value) > most:
        raise InvalidInput(f"{what} header {name!r:.80} must be printable ASCII, name and value")


def check_network(what: str, network: str) -> None:
    """Raises InvalidInput unless it is a network of addresses."""
    try:
        ip_network(network)
    except ValueError as error:
        raise InvalidInput(f"{what} {error}; write networks such as 10.1.2.0/24") from None


def trusted(what: str, ca_file: str = "") -> ssl.SSLContext:
    """Trusts the certificates of the file, or the system's without one; InvalidInput if it cannot be read."""
    if not ca_file:
        return _system_trust()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # of which SSLError is one
        raise InvalidInput(f"{what} ca_file {ca_file!r} cannot be read: {error}") from None


@cache
def _system_trust() -> ssl.SSLContext:
    """Shared, because loading all certificates takes a tenth of a second."""
    return httpcore2.default_ssl_context()


def unverified() -> ssl.SSLContext:
    """Trusts any certificate, of any name."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls
