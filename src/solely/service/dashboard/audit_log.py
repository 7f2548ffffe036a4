"""The page of the audit log: who overrode what others hold, and why."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..audit import AuditRecord
from ..routes import Answer, Call, PageSize, Route
from .rendering import READ_PAGE, Page, View, show

PAGE = Page("Audit log", "solely:audit.html", "/audit")


class AuditQuery(View):
    """Records after the one with the id `after`."""

    after: Annotated[str, msgspec.Meta(max_length=64)] = ""
    limit: PageSize = 50


class AuditRecords(Answer):
    """Newest first. If `next` is not null there may be more, after it."""

    records: list[AuditRecord]
    next: str | None


async def audit(call: Call[None, AuditQuery]) -> object:
    """The audit log."""
    query = call.query

    async def load() -> AuditRecords:
        records = await call.service.audit.records(query.after, query.limit)
        return AuditRecords(records=records, next=records[-1].id if len(records) == query.limit else None)

    return await show(call, PAGE, load)


ROUTES = [Route("GET", "/audit", READ_PAGE, audit, hidden=True)]
