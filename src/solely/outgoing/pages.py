"""Pages of an API: how one response leads to the request for the next page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .checks import parsed
from .message import Request, Response

NextPage = Callable[[Request, Response], Request | None]  # None: that was the last page

MAX_PAGES = 100  # of one call of `pages`: 10,000 entries at the 100 per page that most APIs allow
_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^",;\s]+))*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^",;\s]+))', re.IGNORECASE)


def by_link(request: Request, response: Response) -> Request | None:
    """Follows the Link header with rel=next (GitLab, GitHub and others)."""
    for target, parameters in _LINK.findall(response.headers.get("link", "")):
        rel = _REL.search(parameters)
        if rel and "next" in (rel[1] or rel[2] or "").lower().split():
            return replace(request, url=str(parsed(response.url).join(target)))
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
        count = len(_field(response, items) or ())
        after = int(parsed(request.url).params.get(parameter, "0")) + count
        return _with(request, parameter, str(after)) if count and after < int(_field(response, total) or 0) else None

    return following


def _with(request: Request, parameter: str, value: str) -> Request | None:
    """The request with this query parameter; None without a value."""
    return replace(request, url=str(parsed(request.url).copy_set_param(parameter, value))) if value else None


def _field(response: Response, path: str) -> Any:
    """The field of the JSON body, None if there is none."""
    value: Any = response.json(dict)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
