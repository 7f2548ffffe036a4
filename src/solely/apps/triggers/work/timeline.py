"""The timeline of a run: what happened to it, and its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ....kit import Answer, Row
from ..model import CANCELED, TaskRun

TAKEN, RUNNING, LOST = "taken", "running", "lost"
ENDS = ("completed", "retried", LOST, "failed", "released", "waiting")  # of an attempt
_ORDER = ("triggered", "buffered", *ENDS, TAKEN)  # of what happened in the same millisecond


class TimelineEvent(Answer):
    """Something that happened to a run. `attempt` is 0 if it was not part of one."""

    at: float
    kind: str
    attempt: int
    detail: str


class AttemptRow(Answer):
    """An attempt: who had the run, from when to when, and the outcome: completed, retried, failed (for good), released
    (did not count), waiting (for a child; did not count), lost (its lease expired), canceled, or running."""

    number: int
    worker: str
    began: float
    ended: float | None
    outcome: str
    error: str


class _Noted(msgspec.Struct):
    """What is noted with an event of an attempt."""

    attempt: int = 0
    worker: str = ""
    error: str = ""
    child: str = ""


def timeline_of(run: TaskRun, rows: Sequence[Row]) -> list[TimelineEvent]:
    """All that happened, the oldest first."""
    begins = [TimelineEvent(at=run.created_at, kind="triggered", attempt=0, detail="")]
    if run.buffered_at is not None:
        begins.append(TimelineEvent(at=run.buffered_at, kind="buffered", attempt=0, detail=""))
    return sorted([*begins, *map(_event, rows)], key=_place)


def attempts_of(run: TaskRun, rows: Sequence[Row]) -> list[AttemptRow]:
    """The attempts, the oldest first. An end belongs to the first attempt of its number that has none; a last attempt
    that was lost is also the moment at which the run failed."""
    ended = sorted((row for row in rows if row["kind"] in ENDS), key=lambda row: (row["at"], row["kind"] != LOST))
    ends = [(row, _noted(row)) for row in ended]
    attempts = [_begun(row) for row in rows if row["kind"] == TAKEN]
    for row, noted in ends:
        for attempt in attempts:
            if attempt.number == noted.attempt and attempt.ended is None:
                attempt.ended, attempt.outcome, attempt.error = row["at"], row["kind"], noted.error
                break
    for attempt in attempts:
        if attempt.ended is None and run.state == CANCELED:
            attempt.ended, attempt.outcome = run.finished_at, CANCELED.lower()
    return attempts


def _begun(row: Row) -> AttemptRow:
    noted = _noted(row)
    return AttemptRow(number=noted.attempt, worker=noted.worker, began=row["at"], ended=None, outcome=RUNNING, error="")


def _event(row: Row) -> TimelineEvent:
    if row["kind"] not in (TAKEN, *ENDS):
        return TimelineEvent(at=row["at"], kind=row["kind"], attempt=0, detail=row["detail"])
    noted = _noted(row)
    detail = noted.error or noted.child or noted.worker
    return TimelineEvent(at=row["at"], kind=row["kind"], attempt=noted.attempt, detail=detail)


def _noted(row: Row) -> _Noted:
    return msgspec.json.decode(row["detail"], type=_Noted)


def _place(event: TimelineEvent) -> tuple[Any, ...]:
    return event.at, event.attempt, _ORDER.index(event.kind) if event.kind in _ORDER else len(_ORDER)
