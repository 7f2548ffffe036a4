"""The targets of the settings and of the database, with pauses and maintenance windows, as all workers see them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import structlog

from ... import InvalidInput
from ...kit import Answer, Database, from_row
from .history import STATEMENTS
from .model import ProbeTarget

log = structlog.get_logger("solely.probes")

LONGEST_WINDOW = 366 * 86_400.0  # seconds of maintenance: a longer one is a pause
MOST_TARGETS = 5_000  # that the API adds: far more than a worker can probe


class PausedTarget(Answer):
    """A target that is not probed until somebody resumes it."""

    target: str
    at: float
    made_by: str
    reason: str


class Maintenance(Answer):
    """A window in which targets are neither probed nor announced; all of them if `targets` is empty."""

    id: str
    targets: list[str]
    starts: float
    ends: float
    made: float
    made_by: str
    reason: str

    def covers(self, target: str, now: float) -> bool:
        """True if this target is in maintenance now."""
        return self.starts <= now < self.ends and (not self.targets or target in self.targets)


class Targets:
    """The targets, as `refresh` has read them last. A target of the settings takes precedence over one of the database
    with the same name."""

    def __init__(self, data: Database, configured: Sequence[ProbeTarget]) -> None:
        self._queries = STATEMENTS.on(data)
        self._configured = {target.name: target for target in configured}
        self.all: Mapping[str, ProbeTarget] = dict(self._configured)
        self.pauses: Mapping[str, PausedTarget] = {}
        self.windows: Sequence[Maintenance] = ()

    async def refresh(self) -> None:
        """Reads what other workers have changed."""
        rows = await self._queries.rows("targets")
        added = [target for row in rows if (target := _decoded(row["name"], row["definition"])) is not None]
        pauses = [from_row(PausedTarget, row) for row in await self._queries.rows("pauses")]
        windows = [from_row(Maintenance, row) for row in await self._queries.rows("maintenance", now=time.time())]
        self.all = dict(sorted(({target.name: target for target in added} | self._configured).items()))
        self.pauses, self.windows = {each.target: each for each in pauses}, windows

    def include(self, targets: Iterable[ProbeTarget]) -> None:
        """Adds targets of this worker, as if the settings had them."""
        self._configured |= {target.name: target for target in targets}

    def find(self, name: str) -> ProbeTarget | None:
        """The target of this name."""
        return self.all.get(name)

    def is_configured(self, name: str) -> bool:
        """True if the settings have this target."""
        return name in self._configured

    def window(self, name: str) -> Maintenance | None:
        """The maintenance window that covers the target now."""
        now = time.time()
        return next((each for each in self.windows if each.covers(name, now)), None)

    def is_due(self, name: str) -> bool:
        """True if a target of this name is probed now: it is neither paused nor in maintenance."""
        return name not in self.pauses and self.window(name) is None

    def due(self) -> dict[str, ProbeTarget]:
        """The targets that are probed now."""
        return {name: target for name, target in self.all.items() if self.is_due(name)}

    async def add(self, target: ProbeTarget, made_by: str) -> None:
        """Adds a target, or replaces the one of this name; InvalidInput if the settings have it."""
        target.check()
        if self.is_configured(target.name):
            raise InvalidInput(f"target {target.name!r} is in the settings: change it there, or use another name")
        if len(self.all) >= MOST_TARGETS and target.name not in self.all:
            raise InvalidInput(f"there are {MOST_TARGETS} targets already; remove some")
        definition = msgspec.json.encode(target).decode()
        await self._queries.run(
            "add_target", name=target.name, definition=definition, made=time.time(), made_by=made_by
        )
        await self.refresh()

    async def remove(self, name: str) -> bool:
        """Removes a target of the database; False if there was none. InvalidInput if the settings have it."""
        if self.is_configured(name):
            raise InvalidInput(f"target {name!r} is in the settings: remove it there, or pause it")
        removed = await self._queries.run("remove_target", name=name)
        await self._queries.run("resume", target=name)
        await self.refresh()
        return removed > 0

    async def pause(self, name: str, made_by: str, reason: str) -> bool:
        """Pauses a target; False if it is paused already."""
        changed = await self._queries.run("pause", target=name, at=time.time(), made_by=made_by, reason=reason)
        await self.refresh()
        return changed > 0

    async def resume(self, name: str) -> bool:
        """Resumes a target; False if it was not paused."""
        changed = await self._queries.run("resume", target=name)
        await self.refresh()
        return changed > 0

    async def add_window(self, targets: Iterable[str], starts: float, ends: float, by: str, why: str) -> Maintenance:
        """Adds a maintenance window; InvalidInput if it has no such targets, or no future."""
        names = list(dict.fromkeys(targets))
        if unknown := [name for name in names if name not in self.all]:
            raise InvalidInput(f"there is no target {unknown[0]!r}; known are {', '.join(self.all) or 'none'}")
        now = time.time()
        if not (starts < ends and now < ends <= now + LONGEST_WINDOW and ends - starts <= LONGEST_WINDOW):
            raise InvalidInput("the window must end after it starts, in the future, and within 366 days")
        window = Maintenance(
            id=secrets.token_hex(6), targets=names, starts=starts, ends=ends, made=now, made_by=by, reason=why
        )
        values = msgspec.structs.asdict(window) | {"targets": msgspec.json.encode(names).decode()}
        await self._queries.run("add_maintenance", **values)
        await self.refresh()
        return window

    async def end_window(self, id: str) -> bool:
        """Ends a current or future window now; False if there is none of this id."""
        ended = await self._queries.run("end_maintenance", id=id, now=time.time())
        await self.refresh()
        return ended > 0


def _decoded(name: str, definition: str) -> ProbeTarget | None:
    """The target; None, which is logged, if a later version has written it."""
    try:
        return msgspec.json.decode(definition, type=ProbeTarget)
    except msgspec.DecodeError as error:  # of which ValidationError is one
        log.warning("target_unreadable", target=name, error=str(error))
        return None
