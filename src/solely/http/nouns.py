"""The nouns of the API: one class per noun, one method per route."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import UnknownReservation
from ..service.api import (
    claims,
    dead_letters,
    entries,
    history,
    limits,
    locks,
    marks,
    queue_lists,
    queues,
    reservations,
    schedules,
    watermarks,
)
from ..service.history.records import HistoryEvent
from ..stores.http.codec import WireEntries, WireEntry
from ..stores.http.settings import PAGE
from .connection import ServiceConnection


class _Noun:
    """The routes of one noun."""

    def __init__(self, client: ServiceConnection) -> None:
        self._get = client.get
        self._post = client.post
        self._pages = client.pages


class HttpLocks(_Noun):
    """Leases by token: whoever has the token renews and releases, and one caller resumes it."""

    def acquire(self, key: str, *, ttl: float = 30.0, wait: float = 0.0, purpose: str = "") -> locks.HeldLock:
        """The lease; raises Busy if it cannot be acquired within `wait`."""
        body = locks.AcquireBody(key=key, ttl=ttl, wait=wait, purpose=purpose)
        return self._post("/v1/locks/acquire", body, locks.HeldLock, wait)

    def acquire_all(
        self, keys: Sequence[str], *, ttl: float = 30.0, wait: float = 0.0, purpose: str = ""
    ) -> list[locks.HeldLock]:
        """The leases of all keys; raises Busy, and holds none, if they cannot be acquired within `wait`."""
        body = locks.AcquireBody(keys=list(keys), ttl=ttl, wait=wait, purpose=purpose)
        return self._post("/v1/locks/acquire", body, locks.HeldLocks, wait).leases

    def resume(self, token: str) -> locks.HeldLock:
        """The lease of this token, taken over under a new fence and token: the old one is void. Raises Busy if it was
        resumed before, or has ended."""
        return self._post("/v1/locks/resume", locks.ResumeBody(token=token), locks.HeldLock)

    def renew(self, token: str, *, ttl: float | None = None) -> float:
        """The seconds left, counted from before the request was sent; raises LeaseLost if the lease has ended."""
        return self._post("/v1/locks/renew", locks.RenewBody(token=token, ttl=ttl), locks.RenewedLock).left

    def release(self, token: str) -> str:
        """released, expired, cleared, resumed (by another holder), lost or unknown."""
        return self._post("/v1/locks/release", locks.ReleaseBody(token=token), locks.ReleasedLock).outcome

    def list(self, prefix: str = "") -> Iterator[locks.ListedLock]:
        """Locks that are held or closed, in key order, page by page."""
        for page in self._pages("/v1/locks", locks.ListedLocks, prefix=prefix, limit=PAGE):
            yield from page.locks


class HttpMarks(_Noun):
    """Which keys are new, and which were seen before."""

    def first(self, keys: Sequence[str], *, ttl: float = 86_400.0) -> list[bool]:
        """For each key: true for exactly one caller within `ttl`."""
        return self._post("/v1/marks", marks.MarkBody(keys=list(keys), ttl=ttl), marks.Firsts).first

    def mark(self, keys: Sequence[str], *, ttl: float = 86_400.0) -> list[bool]:
        """Marks the keys for at least `ttl`, whoever was first: an existing mark is extended, never shortened. For each
        key: true if there was none."""
        return self._post("/v1/marks", marks.MarkBody(keys=list(keys), ttl=ttl, extend=True), marks.Firsts).first

    def seen(self, keys: Sequence[str]) -> list[bool]:
        """For each key: true if it is marked."""
        return self._post("/v1/marks/seen", marks.SeenBody(keys=list(keys)), marks.SeenKeys).seen

    def forget(self, keys: Sequence[str]) -> list[bool]:
        """Removes the marks. For each key: true if there was one."""
        return self._post("/v1/marks/forget", marks.ForgetBody(keys=list(keys)), marks.Forgotten).forgotten

    def list(self, prefix: str = "") -> Iterator[marks.ListedMark]:
        """Marks in key order, page by page."""
        for page in self._pages("/v1/marks", marks.ListedMarks, prefix=prefix, limit=PAGE):
            yield from page.marks


class HttpClaims(_Noun):
    """One caller wins and runs the work; all others get its result."""

    def claim(
        self, key: str, *, ttl: float = 30.0, wait: float = 0.0, fingerprint: Any = None, purpose: str = ""
    ) -> claims.ClaimAnswer:
        """A won claim, with a token to publish with; or the winner's result. Raises TimedOut if the work still runs
        after `wait`, Mismatch if the key was claimed with another fingerprint."""
        body = claims.ClaimBody(key=key, ttl=ttl, wait=wait, fingerprint=fingerprint, purpose=purpose)
        return self._post("/v1/claims/claim", body, claims.ClaimAnswer, wait)

    def publish(
        self, token: str, result: claims.Result, *, keep: float = 86_400.0, wait: float = 0.0
    ) -> claims.PublishedClaim:
        """Published; or superseded by another result, which is final: that of a later holder, or an earlier one with
        the same token."""
        body = claims.PublishClaim(token=token, result=result, keep=keep, wait=wait)
        return self._post("/v1/claims/publish", body, claims.PublishedClaim, wait)

    def resume(self, token: str) -> claims.ClaimAnswer:
        """The won claim of this token, taken over under a new fence and token: the old one is void. Raises Busy if it
        was resumed before, or has ended."""
        return self._post("/v1/claims/resume", claims.ResumeClaim(token=token), claims.ClaimAnswer)

    def renew(self, token: str, *, ttl: float | None = None) -> float:
        """The seconds left, counted from before the request was sent; raises LeaseLost if the claim has ended."""
        return self._post("/v1/claims/renew", claims.RenewClaim(token=token, ttl=ttl), claims.RenewedClaim).left

    def release(self, token: str) -> str:
        """released, expired, cleared, resumed (by another holder), lost or unknown."""
        return self._post("/v1/claims/release", claims.ReleaseClaim(token=token), claims.ReleasedClaim).outcome

    def reset(self, key: str, expected: claims.Result, *, reason: str) -> bool:
        """True if the finished claim had the expected result, and was removed."""
        body = claims.ResetClaim(key=key, expected=expected, reason=reason)
        return self._post("/v1/claims/reset", body, claims.ResetAnswer).reset

    def list(self, prefix: str = "") -> Iterator[claims.ListedClaim]:
        """Claims in key order, page by page, without their results."""
        for page in self._pages("/v1/claims", claims.ListedClaims, prefix=prefix, limit=PAGE):
            yield from page.claims


class HttpReservations(_Noun):
    """The right to send, once per quiet window."""

    def reserve(
        self,
        key: str,
        *,
        hold: float = 30.0,
        quiet: float = 300.0,
        limit: reservations.OwnLimit | None = None,
        group: reservations.GroupLimit | None = None,
        purpose: str = "",
        details: Mapping[str, str] | None = None,
    ) -> reservations.ReservationAnswer:
        """A granted reservation, with an id to record or release with; or why it was refused."""
        given = dict(details or {})
        body = reservations.ReserveBody(
            key=key, hold=hold, quiet=quiet, limit=limit, group=group, purpose=purpose, details=given
        )
        return self._post("/v1/reservations/reserve", body, reservations.ReservationAnswer)

    def resume(self, id: str) -> reservations.ReservationAnswer:
        """The reservation of this id, taken over under a new fence and id: the old one is void. Raises
        ReservationMismatch if it was resumed before, UnknownReservation if it has ended."""
        body = reservations.ResumeReservation(id=id)
        return self._post("/v1/reservations/resume", body, reservations.ReservationAnswer)

    def renew(self, id: str, *, hold: float | None = None) -> float:
        """The seconds left, counted from before the request was sent. Raises UnknownReservation if it was recorded or
        released or has expired, ReservationMismatch if somebody else has reserved the key since."""
        body = reservations.RenewReservation(id=id, hold=hold)
        return self._post("/v1/reservations/renew", body, reservations.RenewedReservation).left

    def record(self, id: str) -> None:
        """Records that the message was sent; raises UnknownReservation or ReservationMismatch if it had expired."""
        self._post("/v1/reservations/record", reservations.RecordBody(id=id), reservations.RecordedReservation)

    def release(self, id: str) -> bool:
        """Releases the key, since the message was not sent; False if there was nothing to release."""
        body = reservations.ReleaseReservation(id=id)
        return self._post("/v1/reservations/release", body, reservations.ReleasedReservation).released

    def list(self, prefix: str = "") -> Iterator[reservations.ListedReservation]:
        """Active reservations in key order, page by page."""
        for page in self._pages("/v1/reservations", reservations.ListedReservations, prefix=prefix, limit=PAGE):
            yield from page.reservations

    def expire(self, key: str, *, reason: str) -> bool:
        """Ends a hold or a quiet window; False if there was none."""
        body = reservations.ExpireReservation(key=key, reason=reason)
        return self._post("/v1/reservations/expire", body, reservations.ExpiredReservation).expired


class HttpLimits(_Noun):
    """At most so many hits in any window."""

    def hit(self, key: str, *, limit: int, per: float) -> int:
        """The hits in the window, with this one; raises Limited, which says when to retry, if that is over the
        limit."""
        return self._post("/v1/limits/hit", limits.HitLimit(key=key, limit=limit, per=per), limits.Admitted).hits

    def list(self, prefix: str = "") -> Iterator[limits.ListedLimit]:
        """Limits that refuse calls now, in key order, page by page."""
        for page in self._pages("/v1/limits", limits.ListedLimits, prefix=prefix, limit=PAGE):
            yield from page.limits


class HttpWatermarks(_Noun):
    """How far work has progressed."""

    def advance(self, key: str, value: watermarks.Value) -> watermarks.Value:
        """The current value."""
        body = watermarks.AdvanceWatermark(key=key, value=value)
        return self._post("/v1/watermarks/advance", body, watermarks.WatermarkAnswer).value

    def rewind(self, key: str, to: watermarks.Value, *, reason: str) -> watermarks.Value:
        """The current value, after the watermark was rewound."""
        body = watermarks.RewindWatermark(key=key, to=to, reason=reason)
        return self._post("/v1/watermarks/rewind", body, watermarks.WatermarkAnswer).value

    def list(self, prefix: str = "") -> Iterator[watermarks.ListedWatermark]:
        """Watermarks in key order, page by page."""
        for page in self._pages("/v1/watermarks", watermarks.ListedWatermarks, prefix=prefix, limit=PAGE):
            yield from page.watermarks


class HttpSchedules(_Noun):
    """When jobs ran last, and when they are due next."""

    def list(self, prefix: str = "") -> Iterator[schedules.ListedSchedule]:
        """Schedules in the order of names, page by page."""
        for page in self._pages("/v1/schedules", schedules.ListedSchedules, prefix=prefix, limit=PAGE):
            yield from page.schedules

    def forget(self, name: str, *, reason: str) -> bool:
        """True if something was kept of the schedule, which is removed now."""
        body = schedules.ForgetSchedule(key=name, reason=reason)
        return self._post("/v1/schedules/forget", body, schedules.ForgottenSchedule).forgotten


class HttpQueues(_Noun):
    """Work that waits until a caller takes it, by the token of its lease."""

    def push(self, queue: str, id: str, payload: Any, *, delay: float = 0.0) -> bool:
        """True if added; False if the queue has an item of this id already. The payload is bytes or JSON."""
        given = {"raw": payload} if isinstance(payload, bytes) else {"payload": payload}
        body = queues.PushItem(queue=queue, id=id, delay=delay, **given)
        return self._post("/v1/queues/push", body, queues.PushedItem).pushed

    def take(
        self, queue: str, *, ttl: float = 30.0, wait: float = 0.0, id: str | None = None, max_attempts: int = 0
    ) -> queues.TakenQueueItem | None:
        """The item that has waited longest, or the one of this id; None if none is available within `wait`."""
        body = queues.TakeItem(queue=queue, ttl=ttl, wait=wait, id=id, max_attempts=max_attempts)
        return self._post("/v1/queues/take", body, queues.TakenQueueItems, wait).item

    def resume(self, queue: str, token: str) -> queues.TakenQueueItem:
        """The item of this token, taken over under a new token: the old one is void. Raises Busy if it was resumed or
        settled before, or its lease has ended."""
        body = queues.ResumeItem(queue=queue, token=token)
        return self._post("/v1/queues/resume", body, queues.TakenQueueItem)

    def renew(self, queue: str, token: str, *, ttl: float | None = None) -> float:
        """The seconds left, counted from before the request was sent; raises LeaseLost if the lease has ended."""
        body = queues.RenewItem(queue=queue, token=token, ttl=ttl)
        return self._post("/v1/queues/renew", body, queues.RenewedItem).left

    def ack(self, queue: str, token: str) -> bool:
        """Removes the item, since its work is done; False if another caller has taken it since."""
        return self._post("/v1/queues/ack", queues.AckItem(queue=queue, token=token), queues.AckedItem).acked

    def give_back(self, queue: str, token: str, *, delay: float = 0.0, uncounted: bool = False) -> bool:
        """Returns the item to the queue, available after `delay` seconds; False if the caller no longer had it."""
        body = queues.GiveBackItem(queue=queue, token=token, delay=delay, uncounted=uncounted)
        return self._post("/v1/queues/give-back", body, queues.GivenBackItem).given_back

    def list(self, prefix: str = "") -> Iterator[queue_lists.QueueRow]:
        """Queues that have items, page by page, with the counts of their items."""
        for page in self._pages("/v1/queues", queue_lists.QueuesPage, prefix=prefix):
            yield from page.queues

    def items(self, queue: str) -> Iterator[queue_lists.ItemRow]:
        """The items of a queue in the order of ids, page by page, without their payloads."""
        for page in self._pages("/v1/queues/items", queue_lists.ItemsPage, queue=queue):
            yield from page.items

    def read(self, queue: str, id: str) -> queue_lists.FullItem | None:
        """The item with its payload; None if there is none."""
        try:
            return self._get("/v1/queues/item", queue_lists.FullItem, queue=queue, id=id)
        except UnknownReservation:  # raised for everything that does not exist
            return None

    def count(self, queue: str) -> int:
        """The items of the queue: waiting, delayed and taken."""
        return self._get("/v1/queues/count", queue_lists.ItemCount, queue=queue).count

    def remove(self, queue: str, id: str, *, fence: int, reason: str) -> bool:
        """Removes the item that was listed with this fence; False if it has changed since, or somebody has it."""
        body = queues.RemoveItem(queue=queue, id=id, fence=fence, reason=reason)
        return self._post("/v1/queues/remove", body, queues.RemovedItem).removed


class HttpDeadLetters(_Noun):
    """Failed items, kept until they are run again or purged."""

    def push(
        self, group: str, payload: Any, *, error: str, key: str | None = None, id: str | None = None
    ) -> dead_letters.FullLetter:
        """The letter as it is now stored."""
        body = dead_letters.PushLetter(group=group, payload=payload, error=error, key=key, id=id)
        return self._post("/v1/dead-letters/push", body, dead_letters.FullLetter)

    def groups(self) -> Iterator[str]:
        """Groups that have letters."""
        for page in self._pages("/v1/dead-letters/groups", dead_letters.LetterGroups):
            yield from page.groups

    def list(self, group: str) -> Iterator[dead_letters.LetterRow]:
        """The letters of a group in the order of ids, page by page, without their payloads."""
        for page in self._pages("/v1/dead-letters", dead_letters.LettersPage, group=group):
            yield from page.letters

    def inspect(self, group: str, id: str) -> dead_letters.FullLetter | None:
        """The letter with its payload; None if there is none."""
        try:
            return self._get("/v1/dead-letters/letter", dead_letters.FullLetter, group=group, id=id)
        except UnknownReservation:  # raised for everything that does not exist
            return None

    def take(self, group: str, id: str | None = None) -> dead_letters.TakenLetter:
        """A leased letter to run; or why there is none."""
        return self._post(
            "/v1/dead-letters/take", dead_letters.TakeLetter(group=group, id=id), dead_letters.TakenLetter
        )

    def ack(self, group: str, token: str, value: Any = None) -> str:
        """Reports success: replayed, or gone."""
        body = dead_letters.AckLetter(group=group, token=token, value=value)
        return self._post("/v1/dead-letters/ack", body, dead_letters.LetterAnswer).outcome

    def fail(self, group: str, token: str, *, error: str) -> str:
        """Reports another failure: failed, or gone."""
        body = dead_letters.FailLetter(group=group, token=token, error=error)
        return self._post("/v1/dead-letters/fail", body, dead_letters.LetterAnswer).outcome

    def purge(self, group: str, id: str | None = None, *, all: bool = False, reason: str) -> int:
        """How many letters were removed."""
        body = dead_letters.PurgeLetters(group=group, id=id, all=all, reason=reason)
        return self._post("/v1/dead-letters/purge", body, dead_letters.Purged).purged


class HttpEntries(_Noun):
    """All entries of the store, of every kind."""

    def list(self, prefix: str = "", *, values: bool = False) -> Iterator[WireEntry]:
        """Entries whose stored key (`kind/name`) begins with `prefix`, in key order, page by page."""
        query = {"prefix": prefix, "limit": PAGE, "values": str(values).lower()}
        for page in self._pages("/v1/entries", WireEntries, **query):
            yield from page.entries

    def explain(self, key: str) -> entries.ExplainedKey:
        """Everything that is stored under the name."""
        return self._get("/v1/entries/explain", entries.ExplainedKey, key=key)

    def clear(self, key: str, *, fence: int, reason: str) -> bool:
        """Removes the entry with this stored key if it still has this fence; False if it has changed."""
        body = entries.ClearEntry(key=key, fence=fence, reason=reason)
        return self._post("/v1/entries/clear", body, entries.ClearedEntry).cleared


class HttpHistory(_Noun):
    """What happened to keys through the service."""

    def list(self, key: str = "", *, kind: str = "") -> Iterator[HistoryEvent]:
        """Events of the key, of one kind or of all, newest first, page by page; without a key, of all keys."""
        for page in self._pages("/v1/history", history.HistoryPage, key=key, kind=kind, limit=PAGE):
            yield from page.events
