"""The intake: each job is put into the queue once, whoever reports it and however often.

The mark of a job is set after the job is in the queue, so that a process that dies in between loses nothing: the next
report finds the job in the queue, or its claim finished. Marks stay when a job fails for good: its dead letter is
replayed by people, and not by the next poll.
"""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import msgspec

from ... import AsyncClient, AsyncQueue
from ...kit import DAY, Journal, Metrics
from .figures import ACCEPTED, DUPLICATES
from .model import Origin, RepoJob, claim_key, deliveries_of, delivery_key, received_key

Outcome = Literal["queued", "same_delivery", "known", "in_queue"]
QUEUED: Outcome = "queued"
SAME_DELIVERY: Outcome = "same_delivery"  # the forge repeats a delivery that was accepted
KNOWN: Outcome = "known"  # the job was accepted before: it waits, runs, is done, or failed for good
IN_QUEUE: Outcome = "in_queue"  # the same, found in the queue: another process was just about to mark it
DELIVERY_KEEP = 3 * DAY  # GitHub redelivers for three days; GitLab shows and resends those of the last two
MAX_TEXT = 16 << 10  # characters of a note or a description: at most 192 KiB as JSON, of the 256 that an item may have
MAX_TITLE = 1_000  # characters: more than any of these systems allows
_PAGE = 100  # marks of deliveries in one listing: a job has one per hook


class JobIntake:
    """Accepts jobs into the queue, records what was received, and forgets keys."""

    def __init__(self, once: AsyncClient, queue: AsyncQueue, metrics: Metrics, received: Journal) -> None:
        self._once, self._queue, self._metrics, self._received = once, queue, metrics, received

    async def accept(self, job: RepoJob, delivery: str = "") -> Outcome:
        """Puts the job into the queue, unless it is known; returns which. `delivery` is the forge's id of the request.

        Raises StoreError, and the job is to be reported again, if the store is unreachable; InvalidInput if no queue
        can hold it.
        """
        outcome = await self._decide(job, delivery)
        if outcome == QUEUED:
            self._metrics.count(ACCEPTED, job.kind, job.received_by)
        else:
            self._metrics.count(DUPLICATES, job.kind, job.received_by, outcome)
        self.record(outcome, job.forge, job.received_by, job.key, job.kind, job.project_path, job.title)
        return outcome

    async def _decide(self, job: RepoJob, delivery: str) -> Outcome:
        marks = [received_key(job.key), *([delivery_key(job.key, delivery)] if delivery else [])]
        seen = await asyncio.gather(*map(self._once.seen, marks))  # one round trip
        if any(seen):
            return KNOWN if seen[0] else SAME_DELIVERY
        fresh = await self._queue.push(job.key, msgspec.to_builtins(_bounded(job)))
        await self._once.mark(marks[0], ttl=job.keep)
        if delivery:
            await self._once.mark(marks[1], ttl=DELIVERY_KEEP)
        return QUEUED if fresh else IN_QUEUE

    def record(
        self, outcome: str, forge: str, origin: Origin, key: str, kind: str = "", project: str = "", title: str = ""
    ) -> None:
        """Records what was received, and what became of it, for people; repeats are counted."""
        row = {"key": key, "origin": origin, "outcome": outcome, "forge": forge, "kind": kind}
        more = {"project": project, "title": title[:200], "first": time.time()}
        self._received.count((key, origin, outcome), lambda: row | more)

    async def forget(self, key: str) -> bool:
        """Removes every mark of this key, and its finished claim, so that the next report performs the job again; False
        if there was none. A job that waits or runs is not touched."""
        forgotten = [await self._once.forget(received_key(key)), await self._forget_claim(claim_key(key))]
        deliveries = await self._once.marks(deliveries_of(key), limit=_PAGE)
        return any([*forgotten, *[await self._once.forget(mark.key) for mark in deliveries]])

    async def _forget_claim(self, key: str) -> bool:
        found = [each for each in await self._once.claims(key, limit=1) if each.key == key and each.outcome]
        if not found:
            return False
        claim = await self._once.claim(key, wait=0, renew=False)
        if claim.won:  # it has expired since
            await claim.release()
            return False
        return claim.cached and await self._once.reset(key, expected=claim.failed or claim.value)


def _bounded(job: RepoJob) -> RepoJob:
    """The job with the beginning of its text and title."""
    return msgspec.structs.replace(job, text=job.text[:MAX_TEXT], title=job.title[:MAX_TITLE])
