"""URLs of stores and databases, which may name several hosts."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from .errors import InvalidInput


def split_url(url: str) -> SplitResult:
    """As urllib splits it, but where there are several hosts any of them may be an IPv6 address, which newer Pythons
    refuse behind another; InvalidInput, which shows no password, if it cannot be split."""
    scheme, mark, rest = url.partition("://")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    try:
        if "," in rest[:end]:
            return urlsplit(f"{scheme}{mark}{rest[end:]}")._replace(netloc=rest[:end])
        return urlsplit(url)
    except ValueError:  # whose text may show the password
        which = f"the {scheme}:// URL" if mark else "the URL"
        raise InvalidInput(
            f"{which} cannot be read: look at its hosts, and at the brackets of an IPv6 address"
        ) from None
