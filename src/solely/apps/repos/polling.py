"""Pollers: each source is polled by one worker at a time, over all pods, and loses and repeats nothing across restarts.

The watermark is the other system's time when the poll began. It advances only after everything was handed over, so that
a poll which fails is repeated; what was handed over by then is known.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import structlog

from ... import AsyncClient, AsyncDeadLetters, AsyncLease, AsyncWatermark
from ...kit import CallFailed, Job, Metrics, part_of
from .figures import LAG, POLLS
from .forges.forge import PolledSource, UnreadItem
from .intake import JobIntake
from .model import own

log = structlog.get_logger("solely.repos")

TTL = 60.0  # seconds until another worker takes over the poll of one that died
LOOKS = 5  # looks of each worker per interval, so that a poll is late by a fifth of it at most
SHORTEST_LOOK = 0.2  # seconds between two looks
EARLIER = 0.9  # of the interval for which others do not poll: looks are not exact
UNKNOWN_RESET = 60.0  # seconds to pause after a 429 that does not say for how long: GitLab counts by the minute


class Pollers:
    """The pollers of one worker."""

    def __init__(
        self,
        once: AsyncClient,
        intake: JobIntake,
        unread: AsyncDeadLetters,
        metrics: Metrics,
        sources: Sequence[PolledSource],
    ) -> None:
        self._once, self._intake, self._unread, self._metrics = once, intake, unread, metrics
        self.sources = sources
        self.latest: dict[str, datetime] = {}  # watermarks, as this worker read them last
        for source in sources:
            metrics.gauge(LAG, partial(self.lag, source.name), source.name)

    def jobs(self) -> list[Job]:
        """A job per source, which polls it if it is due and no other worker does."""
        return [
            Job(f"poll {each.name}", max(SHORTEST_LOOK, each.every / LOOKS), partial(self.poll_if_due, each))
            for each in self.sources
        ]

    def lag(self, name: str) -> float:
        """Seconds since the last poll of this source began; 0 before the first."""
        latest = self.latest.get(name)
        return max(0.0, time.time() - latest.timestamp()) if latest is not None else 0.0

    def watermark(self, source: PolledSource) -> AsyncWatermark:
        """How far the source was polled."""
        return self._once.watermark(_name(source), lookback=source.lookback)

    async def poll_if_due(self, source: PolledSource) -> None:
        """Polls the source, unless it is not due, or another worker polls it."""
        lease = await self._once.try_lock(_name(source), ttl=TTL, purpose="polls")
        if lease is None:
            reached = await self.watermark(source).read()
        else:
            async with lease:
                reached = await self._polled(source, lease)
        if isinstance(reached, datetime):
            self.latest[source.name] = reached

    async def _polled(self, source: PolledSource, lease: AsyncLease) -> datetime | None:
        """Polls; after a failure, the source is not polled until it may be called again."""
        lease.keep_closed(source.every * EARLIER)
        try:
            reached = await self.poll(source)
        except CallFailed as failure:
            pause = pause_after(failure)
            lease.keep_closed(lease.held() + max(source.every * EARLIER, pause))
            self._metrics.count(POLLS, source.name, "failed")
            log.warning("poll_failed", source=source.name, error=str(failure), pause=round(pause, 1))
            return None
        self._metrics.count(POLLS, source.name, "done")
        return reached

    async def poll(self, source: PolledSource) -> datetime:
        """Hands over all that came since the last poll; returns the new watermark. The first poll only sets it: what
        came before is not worked on."""
        mark = self.watermark(source)
        since, start = await mark.since(), await source.now()
        if isinstance(since, datetime):
            async for each in source.found(since):
                if isinstance(each, UnreadItem):
                    await self._park(source, each)
                else:
                    await self._intake.accept(each)
        reached = await mark.advance(start)
        assert isinstance(reached, datetime), "a watermark that was advanced with a time is one"
        return reached

    async def _park(self, source: PolledSource, unread: UnreadItem) -> None:
        """Keeps an item that cannot be read as a dead letter, once, however often it is listed."""
        log.warning("item_unreadable", source=source.name, item=unread.id, error=unread.error)
        payload = {"source": source.name, "item": unread.item}
        await self._unread.push(payload, error=unread.error, origin="poller", id=part_of(unread.id))


def pause_after(failure: CallFailed) -> float:
    """Seconds for which the other system asked not to be called: Retry-After, or when its rate limit is reset."""
    if failure.retry_after is not None:
        return failure.retry_after
    response = failure.response
    if response is None or response.status != 429:
        return 0.0
    reset = response.headers.get("ratelimit-reset") or response.headers.get("x-ratelimit-reset") or ""
    if not reset.isdigit():
        return UNKNOWN_RESET
    return min(max(0.0, int(reset[:12]) - datetime.now(UTC).timestamp()), 3_600.0)


def _name(source: PolledSource) -> str:
    """The name of its watermark, and of the lock of its poll."""
    return own(f"poll/{source.name}")
