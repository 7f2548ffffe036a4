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
    except ValueError as error:
        raise InvalidInput(f"the {scheme}:// URL cannot be read: {error}") from None
