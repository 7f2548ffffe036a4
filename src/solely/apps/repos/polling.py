"""Pollers: each source is polled by one worker at a time, over all pods, and loses and repeats nothing across restarts.

The watermark is the other system's time when the poll began. It advances only after everything was handed over, so that
a poll which fails is repeated; what was handed over by then is known.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import structlog

from ... import AsyncClient, AsyncDeadLetters, AsyncLease, AsyncWatermark, InvalidInput
from ...kit import CallFailed, Job, Metrics, part_of
from .figures import LAG, POLLS
from .forges.forge import PolledSource, UnreadItem
from .intake import JobIntake
from .model import RepoJob, own

log = structlog.get_logger("solely.repos")

TTL = 60.0  # seconds until another worker takes over the poll of one that died
LOOKS = 5  # looks of each worker per interval, so that a poll is late by a fifth of it at most
SHORTEST_LOOK = 0.2  # seconds between two looks
EARLIER = 0.9  # of the interval for which others do not poll: looks are not exact
STALE = 600.0  # seconds without a poll, at least, after which people are notified: a restart of GitLab takes less
MISSED = 10  # and so many intervals
UNKNOWN_RESET = 60.0  # seconds to pause after a 429 that does not say for how long: GitLab counts by the minute


# Raises the alert that a source (its name) cannot be polled, and why; resolves it if there is no reason any more.
Announce = Callable[[str, str], Awaitable[None]]


class Pollers:
    """The pollers of one worker."""

    def __init__(
        self,
        once: AsyncClient,
        intake: JobIntake,
        unread: AsyncDeadLetters,
        metrics: Metrics,
        sources: Sequence[PolledSource],
        announce: Announce,
    ) -> None:
        self._once, self._intake, self._unread, self._metrics = once, intake, unread, metrics
        self._announce = announce
        self.sources = sources
        self.latest: dict[str, datetime] = {}  # watermarks, as this worker read them last
        self._started = time.time()
        for source in sources:
            metrics.gauge(LAG, partial(self.lag, source.name), source.name)

    def jobs(self) -> list[Job]:
        """A job per source, which polls it if it is due and no other worker does."""
        return [
            Job(f"poll {each.name}", max(SHORTEST_LOOK, each.every / LOOKS), partial(self.poll_if_due, each))
            for each in self.sources
        ]

    def lag(self, name: str) -> float:
        """Seconds since the last poll of this source began; before the first, since this worker started."""
        latest = self.latest.get(name)
        return max(0.0, time.time() - (self._started if latest is None else latest.timestamp()))

    def overdue(self) -> list[PolledSource]:
        """The sources whose last poll was too long ago."""
        return [each for each in self.sources if self._is_overdue(each)]

    def watermark(self, source: PolledSource) -> AsyncWatermark:
        """How far the source was polled."""
        return self._once.watermark(_name(source), lookback=source.lookback)

    async def rewind(self, name: str, to: datetime, reason: str) -> bool:
        """Has the source of this name polled again from then on; False if there is none, or it is not beyond that."""
        for source in self.sources:
            mark = self.watermark(source)
            if source.name == name and (before := await mark.read()) is not None:
                return await mark.rewind(to, reason=reason) != before
        return False

    async def poll_if_due(self, source: PolledSource) -> None:
        """Polls the source, unless it is not due, or another worker polls it."""
        reached = _time(await self.watermark(source).read())
        if reached is not None:
            self.latest[source.name] = reached
        lease = await self._once.try_lock(_name(source), ttl=TTL, purpose="polls")
        if lease is not None:
            async with lease:
                await self._poll_held(source, lease)

    async def _poll_held(self, source: PolledSource, lease: AsyncLease) -> None:
        """Polls; after a failure, the source is not polled until it may be called again."""
        lease.keep_closed(source.every * EARLIER)
        try:
            reached = await self.poll(source)
        except CallFailed as failure:
            pause = pause_after(failure)
            lease.keep_closed(lease.held() + max(source.every * EARLIER, pause))
            self._metrics.count(POLLS, source.name, "failed")
            log.warning("poll_failed", source=source.name, error=str(failure), pause=round(pause, 1))
            await self._report(source, str(failure))
        else:
            self._metrics.count(POLLS, source.name, "done")
            await self._report(source)
            self.latest[source.name] = reached

    async def _report(self, source: PolledSource, error: str = "") -> None:
        """Notifies people if the last poll was too long ago, or, without an error, that this is over."""
        if self._is_overdue(source):
            await self._announce(source.name, error)

    def _is_overdue(self, source: PolledSource) -> bool:
        return self.lag(source.name) > max(STALE, MISSED * source.every)

    async def poll(self, source: PolledSource) -> datetime:
        """Hands over all that came since the last poll; returns the new watermark. The first poll only sets it: what
        came before is not worked on, also if a later poll looks back to it."""
        mark, begin = self.watermark(source), self._once.watermark(own(f"began/{source.name}"))
        since, start = _time(await mark.since()), await source.now()
        if since is None:
            await begin.advance(start)
        else:
            await self._hand_over(source, since, _time(await begin.read()))
        return _time(await mark.advance(start)) or start

    async def _hand_over(self, source: PolledSource, since: datetime, began: datetime | None) -> None:
        """Accepts all jobs since then. Those from before the first poll are left out, unless the watermark was rewound
        to before it."""
        rewound = began is None or since + timedelta(seconds=source.lookback) < began
        earliest = 0.0 if rewound or began is None else began.timestamp()
        async for each in source.found(since):
            if isinstance(each, UnreadItem):
                await self._park(source, each)
            elif each.at >= earliest:
                await self._accept(source, each)

    async def _accept(self, source: PolledSource, job: RepoJob) -> None:
        try:
            await self._intake.accept(job)
        except InvalidInput as error:
            await self._park(source, UnreadItem(job.key, msgspec.to_builtins(job), str(error)))

    async def _park(self, source: PolledSource, unread: UnreadItem) -> None:
        """Keeps an item that cannot be read as a dead letter, once, however often it is listed."""
        log.warning("item_unreadable", source=source.name, item=unread.id, error=unread.error)
        payload = {"source": source.name, "item": unread.item}
        try:
            await self._unread.push(payload, error=unread.error, origin="poller", id=part_of(unread.id))
        except InvalidInput:  # it is too large to be kept
            await self._unread.push({"source": source.name}, error=unread.error, id=part_of(unread.id))


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


def _time(value: datetime | int | None) -> datetime | None:
    """The value of a watermark that only ever has times."""
    return value if isinstance(value, datetime) else None


def _name(source: PolledSource) -> str:
    """The name of its watermark, and of the lock of its poll."""
    return own(f"poll/{source.name}")
