"""Pages of an API: how one response leads to the request for the next page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2

from ..errors import InvalidInput
from .checks import parsed
from .message import CallFailed, Request, Response

NextPage = Callable[[Request, Response], Request | None]  # None: that was the last page; raises only CallFailed

MAX_PAGES = 100  # of one call of `pages`: 10,000 entries at the 100 per page that most APIs allow
_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^",;\s]+))*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^",;\s]+))', re.IGNORECASE)


def by_link(request: Request, response: Response) -> Request | None:
    """Follows the Link header with rel=next (GitLab, GitHub and others)."""
    for target, parameters in _LINK.findall(response.headers.get("link", "")):
        rel = _REL.search(parameters)
        if rel and "next" in (rel[1] or rel[2] or "").lower().split():
            return _at(request, partial(parsed(response.url).join, target))
    return None


def by_header(header: str = "x-next-page", parameter: str = "page") -> NextPage:
    """Sends the value of a header as a query parameter (GitLab: X-Next-Page)."""
    return lambda request, response: _with(request, parameter, response.headers.get(header, "").strip())


def by_token(field: str = "nextPageToken", parameter: str = "") -> NextPage:
    """Sends a field of the JSON body as a query parameter, by default of the same name (Jira: nextPageToken). A field
    within others is written with dots: `paging.next`."""
    name = parameter or field.rpartition(".")[2]
    return lambda request, response: _with(request, name, str(_field(response, field) or ""))


def by_offset(items: str, parameter: str = "startAt", total: str = "total") -> NextPage:
    """Adds the number of `items` to the offset until it reaches `total` (Jira: startAt)."""

    def following(request: Request, response: Response) -> Request | None:
        found, most = _field(response, items), _field(response, total)
        if not isinstance(found, list | None) or not isinstance(most, int | None):
            raise CallFailed(f"{response.host} sent {items} or {total} in another form", permanent=True)
        after = int(parsed(request.url).params.get(parameter, "0")) + len(found or ())
        return _with(request, parameter, str(after)) if found and after < (most or 0) else None

    return following


def _with(request: Request, parameter: str, value: str) -> Request | None:
    """The request with this query parameter; None without a value."""
    return _at(request, lambda: parsed(request.url).copy_set_param(parameter, value)) if value else None


def _at(request: Request, url: Callable[[], httpx2.URL]) -> Request:
    """The request at this URL; CallFailed, permanent, if it cannot be sent there."""
    try:
        return replace(request, url=str(url()))
    except (InvalidInput, httpx2.InvalidURL, UnicodeError):  # whose text may show a part of the URL, which is a secret
        raise CallFailed("the response leads to a next page with an invalid URL", permanent=True) from None


def _field(response: Response, path: str) -> Any:
    """The field of the JSON body, None if there is none."""
    value: Any = response.json(dict)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
