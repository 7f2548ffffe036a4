"""Client methods of schedules: a job that is due again and again, run once per tick over all replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..leases.context import AsyncMethods, Methods
from ..rules import Seconds, checked_reason, stored_key

# What schedules need (time zones, cron expressions) is imported by the methods, as most programs have no schedule.
if TYPE_CHECKING:
    from datetime import tzinfo

    from .handle import AsyncSchedule, Schedule
    from .listing import ScheduleInfo

OnMisfire = Literal["skip", "once", "all"]


def _name(name: str) -> str:
    return stored_key("schedule", name).partition("/")[2]


class Schedules(Methods):
    """Schedules, for threads."""

    def every(
        self,
        name: str,
        when: str | Seconds,
        *,
        tz: str | tzinfo = "UTC",
        jitter: Seconds = 0.0,
        misfire: OnMisfire = "skip",
        ttl: Seconds = 30.0,
        max_hold: Seconds | None = None,
    ) -> Schedule:
        """A schedule whose ticks each happen once, over all replicas that run it; sends nothing yet.

        `when`: seconds, or a cron expression of five fields in the zone `tz`. Each tick is delayed by up to `jitter`
        seconds. Ticks that nobody ran in time are skipped, run once together, or all run (`misfire`). If a replica dies
        in a tick, another takes it over after `ttl`; until then the lease is renewed, for at most `max_hold`.
        """
        from .calls import plan_of
        from .handle import Schedule

        return Schedule(plan_of(name, when, tz, jitter, misfire, ttl), max_hold, self._context, self._run)

    def schedules(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ScheduleInfo]:
        """The schedules whose name starts with `prefix` and follows `after`, in order: last and next runs."""
        from .listing import schedules

        return self._run(schedules(prefix, after, limit))

    def schedule_info(self, name: str) -> ScheduleInfo | None:
        """The last and the next run of one schedule; None if no replica ever ran it."""
        from .listing import status

        return self._run(status(_name(name)))

    def forget_schedule(self, name: str, *, reason: str) -> bool:
        """Removes what the store has of a schedule that runs no more; False if there was nothing."""
        from .listing import forget

        return self._run(forget(_name(name), checked_reason(reason)))


class AsyncSchedules(AsyncMethods):
    """Schedules, for asyncio."""

    def every(
        self,
        name: str,
        when: str | Seconds,
        *,
        tz: str | tzinfo = "UTC",
        jitter: Seconds = 0.0,
        misfire: OnMisfire = "skip",
        ttl: Seconds = 30.0,
        max_hold: Seconds | None = None,
    ) -> AsyncSchedule:
        """A schedule whose ticks each happen once, over all replicas that run it; sends nothing yet.

        `when`: seconds, or a cron expression of five fields in the zone `tz`. Each tick is delayed by up to `jitter`
        seconds. Ticks that nobody ran in time are skipped, run once together, or all run (`misfire`). If a replica dies
        in a tick, another takes it over after `ttl`; until then the lease is renewed, for at most `max_hold`.
        """
        from .calls import plan_of
        from .handle import AsyncSchedule

        return AsyncSchedule(plan_of(name, when, tz, jitter, misfire, ttl), max_hold, self._context, self._run)

    async def schedules(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ScheduleInfo]:
        """The schedules whose name starts with `prefix` and follows `after`, in order: last and next runs."""
        from .listing import schedules

        return await self._run(schedules(prefix, after, limit))

    async def schedule_info(self, name: str) -> ScheduleInfo | None:
        """The last and the next run of one schedule; None if no replica ever ran it."""
        from .listing import status

        return await self._run(status(_name(name)))

    async def forget_schedule(self, name: str, *, reason: str) -> bool:
        """Removes what the store has of a schedule that runs no more; False if there was nothing."""
        from .listing import forget

        return await self._run(forget(_name(name), checked_reason(reason)))
