"""The audit log over HTTP, and its page: who overrode what others hold, why, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..audit import AuditRecord
from ..routes import READ, Answer, Body, Call, PageSize, Route
from .rendering import READ_PAGE, Page, View, show

PAGE = Page("Audit log", "solely:audit.html", "/audit")


After = Annotated[str, msgspec.Meta(max_length=64)]


class AuditQuery(Body):
    """Records after the one with the id `after`."""

    after: After = ""
    limit: PageSize = 50


class AuditPageQuery(View):
    """The same, for the page."""

    after: After = ""
    limit: PageSize = 50


class AuditRecords(Answer):
    """Newest first. If `next` is not null there may be more, after it."""

    records: list[AuditRecord]
    next: str | None


async def records(call: Call[None, AuditQuery]) -> AuditRecords:
    """Lists the audit log, newest first."""
    return await _records(call, call.query.after, call.query.limit)


async def audit(call: Call[None, AuditPageQuery]) -> object:
    """The page of the audit log."""
    return await show(call, PAGE, lambda: _records(call, call.query.after, call.query.limit))


async def _records(call: Call[Any, Any], after: str, limit: int) -> AuditRecords:
    found = await call.service.audit.records(after, limit)
    return AuditRecords(records=found, next=found[-1].id if len(found) == limit else None)


ROUTES = [
    Route("GET", "/v1/audit", READ, records),
    Route("GET", "/audit", READ_PAGE, audit, hidden=True),
]
