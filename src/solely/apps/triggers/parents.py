"""Parents: runs that wait for a child. The end of the child makes them takeable again in the same transaction, so that
no crash in between leaves one waiting."""

from __future__ import annotations

from ...kit import Database, Statements

_STATEMENTS = Statements.of(__package__, "parents.sql")


async def resume_parents(inside: Database, child: str, now: float | None = None) -> bool:
    """Makes the runs that wait for this one QUEUED, in the caller's transaction; False if none does. Tests give `now`;
    otherwise the database's clock decides."""
    queries = _STATEMENTS.on(inside)
    resumed = await queries.rows("resume", child=child, now=now)
    for row in resumed:
        await queries.run("add_event", id=row["id"], child=child, now=now)
    return bool(resumed)
