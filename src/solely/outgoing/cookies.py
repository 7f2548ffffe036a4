"""The cookies of a session, bounded, since receivers set them."""

from __future__ import annotations

import re

import httpx2

from .checks import parsed
from .message import Request

MAX_COOKIE = 4096  # characters with all attributes: what every browser accepts
MAX_COOKIES = 200  # of a session: more than any login sets
# Attributes without their value, which Python's jar does not expect.
_EMPTY = re.compile(r";[ \t]*(?:max-age|version)[ \t]*(?:;|$)", re.IGNORECASE)


class CookieJar:
    """Keeps what responses set, and returns what a request has to send."""

    def __init__(self) -> None:
        self._cookies = httpx2.Cookies()

    def header(self, request: Request) -> dict[str, str]:
        """The header for this request; nothing if no cookie fits."""
        asking = httpx2.Request(request.method, parsed(request.url))
        self._cookies.set_cookie_header(asking)
        return {"cookie": asking.headers["cookie"]} if "cookie" in asking.headers else {}

    def values(self) -> dict[str, str]:
        """All cookies by name."""
        return {cookie.name: cookie.value or "" for cookie in self._cookies.jar}

    def keep(self, request: Request, headers: httpx2.Headers) -> None:
        """Keeps the cookies of a response to this request; those that no request could send are ignored."""
        set_by = [("set-cookie", text) for text in headers.get_list("set-cookie") if _sendable(text)]
        asked = httpx2.Request(request.method, parsed(request.url))
        if len(self._cookies.jar) + len(set_by) <= MAX_COOKIES:
            self._cookies.extract_cookies(httpx2.Response(200, headers=set_by, request=asked))


def _sendable(text: str) -> bool:
    return text.isascii() and text.isprintable() and len(text) <= MAX_COOKIE and not _EMPTY.search(text)
