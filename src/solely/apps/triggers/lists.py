"""Lists of runs in SQL, page by page in both directions. Each page is read along the index of one of its filters, so
that it is there soon whether many runs match or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ... import InvalidInput
from ...kit import Database, Position, Row, Statements, position_after
from .model import TaskRun, json_text, run_of, stored_key_of

FOREVER = 1e11  # a moment after all others
_PART = 100  # runs that one statement reads: at most some 30 MiB, if all have the largest metadata
_MOST_LISTED = 8 << 20  # bytes after which a page ends: what a caller reads in a second
_MOST_WALKS = 10  # statements for one part of a page and environment: for more values, one that looks at all runs
_LAST = "s"  # sorts after all ids, which begin with run_, in every order of letters
_STATEMENTS = Statements.of(__package__, "queries.sql")


class RunPage(NamedTuple):
    """Runs of a list, the newest first, and the places where the next and the previous page begin; None if there is no
    such page."""

    runs: list[TaskRun]
    next: str | None
    previous: str | None


class ListFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that match all of this; what is empty matches every run. `key` is as it is stored. A run has one of the
    tasks, states, queues and machines, and at least one of the tags."""

    key: str = ""
    tags: Sequence[str] = ()
    queues: Sequence[str] = ()
    machines: Sequence[str] = ()
    tasks: Sequence[str] = ()
    states: Sequence[str] = ()
    since: float = 0.0
    until: float = FOREVER

    def lists(self) -> dict[str, Sequence[str]]:
        """The lists, as the statements take them."""
        labels = {
            "tags": [label("tag", value) for value in self.tags],
            "queues": [label("queue", value) for value in self.queues],
            "machines": [label("machine", value) for value in self.machines],
        }
        return {**labels, "tasks": self.tasks, "states": self.states}

    def walks(self) -> Iterator[tuple[str, str]]:
        """The indexes to read along, and the value in each: of the filter that usually matches the fewest runs."""
        lists = self.lists()
        of_label = next((lists[name] for name in ("tags", "queues", "machines") if lists[name]), ())
        walks = {"_of_key": [self.key] if self.key else [], "_of_label": of_label}
        walks |= {"_of_task": self.tasks, "_of_state": self.states}
        for index, values in walks.items():
            if values and len(values) <= _MOST_WALKS:
                yield from ((index, value) for value in dict.fromkeys(values))
                return
        yield "", ""


class RunLists:
    """Lists the runs of a database."""

    def __init__(self, data: Database) -> None:
        self._queries = _STATEMENTS.on(data)

    async def page(
        self, environments: Sequence[str], only: ListFilter, limit: int, *, after: str = "", before: str = ""
    ) -> RunPage:
        """A page of runs, without payloads and outputs: the newest, those that follow on the place `after`, or those
        that precede the place `before`. It has fewer than `limit` if they are large. InvalidInput for a wrong place."""
        if after and before:
            raise InvalidInput("give `after` or `before`, not both")
        start = place = position_after(after or before)
        way = "newer" if before else "older"
        rows, size, more = list[Row](), 0, True
        while more and len(rows) <= limit and size < _MOST_LISTED:
            part = min(_PART, limit + 1 - len(rows))
            found = await self._part(way, environments, only, place, part)
            rows += found
            size += sum(len(row["metadata"]) + len(row["options"]) for row in found)
            more = len(found) == part
            place = _place(rows[-1]) if rows else start
        rows = rows[:limit]
        if before:
            rows.reverse()
        # A page without runs is between these two places: the run at the place itself follows on it, or precedes it.
        first, last = (_place(rows[0]), _place(rows[-1])) if rows else (_just(start, "before"), _just(start, "after"))
        there_is_next, there_is_previous = (True, more) if before else (more, bool(after))
        runs = [run_of(row) for row in rows]
        return RunPage(runs, str(last) if there_is_next else None, str(first) if there_is_previous else None)

    async def _part(
        self, way: str, environments: Sequence[str], only: ListFilter, place: Position, limit: int
    ) -> list[Row]:
        """The rows that follow on this place, this way: older or newer."""
        given = {name: json_text(values) for name, values in only.lists().items()}
        bound = min(place, Position(only.until, _LAST)) if way == "older" else max(place, Position(only.since, ""))
        span = {"key": only.key, "since": only.since, "until": only.until, "at": bound.at, "id": bound.id}
        found: dict[str, Row] = {}
        for environment in environments:
            for index, value in only.walks():
                walked = {"value": value} if index else {}
                asked = {"environment": environment, "limit": limit, **given, **span, **walked}
                found |= {row["id"]: row for row in await self._queries.rows(f"{way}{index}", **asked)}
        return sorted(found.values(), key=_place, reverse=way == "older")[:limit]


def labels_of(run: TaskRun) -> list[str]:
    """What the run is listed by, beside its key, task and state."""
    queue, machine = run.options.get("queue"), run.options.get("machine")
    name = queue.get("name") if isinstance(queue, dict) else None
    given = [("tag", tag) for tag in run.tags] + [("queue", name), ("machine", machine)]
    return [label(kind, value) for kind, value in given if isinstance(value, str)]


def label(kind: str, value: str) -> str:
    """A tag, a queue or a machine as the index has it: not longer than a key."""
    return stored_key_of(f"{kind}:{value}")


def _place(row: Row) -> Position:
    return Position(row["created_at"], row["id"])


def _just(place: Position, side: str) -> Position:
    """A place beside that of a run, so that a list which begins there has the run itself."""
    return Position(place.at, place.id[:-1] if side == "before" else place.id + _LAST)
