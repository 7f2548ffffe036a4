"""Redirects: where a response leads to, and what may go there."""

from __future__ import annotations

from dataclasses import replace

import httpx2

from .checks import parsed
from .message import SAFE_HEADERS, CallFailed, Request, Response

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_METHOD = frozenset({307, 308})  # after the others, a GET without a body follows, as browsers do
_DEFAULT_PORTS = {"http": 80, "https": 443}


def leads_elsewhere(response: Response) -> bool:
    """True if the response is a redirect."""
    return response.status in _REDIRECTS and bool(response.headers.get("location"))


def redirected(name: str, request: Request, response: Response) -> Request:
    """The request that follows the redirect. Another origin gets no credentials: only headers that are safe.

    Raises CallFailed, permanent, if it leads to no URL that can be called, or from https to http.
    """
    try:
        url = parsed(response.url).join(response.headers["location"]).copy_with(fragment=None)
        follow = replace(request, url=str(url))
    except (httpx2.InvalidURL, ValueError):  # of which InvalidInput is one
        raise CallFailed(f"{name}: {response.host} redirects to an invalid URL", permanent=True) from None
    if response.url.startswith("https:") and url.scheme != "https":
        raise CallFailed(f"{name}: {response.host} redirects from https to {url.scheme}: refused", permanent=True)
    if response.status not in _KEPT_METHOD and request.method not in ("GET", "HEAD"):
        plain = {header: value for header, value in follow.headers.items() if not _of_body(header)}
        follow = replace(follow, method="GET", body=b"", headers=plain)
    if origin(request.url) != origin(follow.url):
        safe = {header: value for header, value in follow.headers.items() if header.lower() in SAFE_HEADERS}
        follow = replace(follow, headers=safe, fresh_headers=None, server_name="")
    return follow


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port, which together decide who gets credentials."""
    read = parsed(url)
    return read.scheme, read.host, read.port or _DEFAULT_PORTS.get(read.scheme)


def _of_body(header: str) -> bool:
    return header.lower().startswith("content-")
