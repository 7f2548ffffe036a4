"""The audit log as a page: who did what to what others hold, and why."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..audit import Record
from ..routes import Answer, Call, PageSize, Route
from .rendering import READ_PAGE, Page, View, show

PAGE = Page("Audit log", "solely:audit.html", "/audit")


class AuditQuery(View):
    """Records after the one of the id `after`."""

    after: Annotated[str, msgspec.Meta(max_length=64)] = ""
    limit: PageSize = 50


class AuditLog(Answer):
    """Newest first. If `next` is not null there may be more: ask for those after it."""

    records: list[Record]
    next: str | None


async def audit(call: Call[None, AuditQuery]) -> object:
    """The log."""
    asked = call.query

    async def look() -> AuditLog:
        records = await call.service.audit.records(asked.after, asked.limit)
        return AuditLog(records=records, next=records[-1].id if len(records) == asked.limit else None)

    return await show(call, PAGE, look)


ROUTES = [Route("GET", "/audit", READ_PAGE, audit, PAGE.title, hidden=True)]
