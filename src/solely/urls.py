"""URLs of stores and databases, which may name several hosts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from .errors import InvalidInput

MAX_PORT = 65_535


def split_url(url: str) -> SplitResult:
    """Splits the URL as urllib does, but any of several hosts may be an IPv6 address, which newer Pythons refuse.

    Raises InvalidInput, without the password, if the URL is invalid.
    """
    scheme, mark, rest = url.partition("://")
    if not url.isascii():
        try:
            url.encode()
        except UnicodeEncodeError:
            raise InvalidInput("the URL has half of a surrogate pair in it, which is no character") from None
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    try:
        if "," in rest[:end]:
            parts = urlsplit(f"{scheme}{mark}{rest[end:]}")._replace(netloc=rest[:end])
        else:
            parts = urlsplit(url)
    except ValueError:  # its text may contain the password
        which = f"the {scheme}:// URL" if mark else "the URL"
        raise InvalidInput(f"{which} is invalid: check its hosts, and the brackets of an IPv6 address") from None
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port.isdecimal() and not 0 < int(port[:6]) <= MAX_PORT:
            raise InvalidInput(f"the {scheme}:// URL has the port {port:.20}; ports are 1 to {MAX_PORT}")
    return parts


# Valid as a name in every store: 40 characters, so that PostgreSQL's 63 bytes also fit a suffix.
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")


def read_namespace(options: Sequence[tuple[str, str]], default: str = "solely") -> str:
    """The value of `?namespace=`, which keeps apart applications that share a server; `default` if it is not given.

    InvalidInput if it is given twice, or if not every store can have it.
    """
    given = [value for name, value in options if name == "namespace"]
    if not given:
        return default
    if len(given) > 1:
        raise InvalidInput("namespace is given twice in the URL; give it once")
    if not _NAMESPACE.fullmatch(given[0]):
        raise InvalidInput(
            f"namespace must be 1 to 40 letters, digits, _ or -, not starting with a digit: {given[0]!r:.60}"
        )
    return given[0]
