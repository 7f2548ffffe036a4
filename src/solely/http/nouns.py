"""The nouns of the API: a class each, a method per route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UnknownReservation
from ..service.api import claims, deadletters, entries, limits, locks, marks, reservations, watermarks
from ..stores.http.codec import Page, WireEntry
from ..stores.http.settings import PAGE

if TYPE_CHECKING:
    from .client import Client


class _Noun:
    """The routes of one noun."""

    def __init__(self, client: Client) -> None:
        self._get = client.get
        self._post = client.post
        self._pages = client.pages


class Locks(_Noun):
    """Leases by token: whoever has the token renews and releases."""

    def acquire(self, key: str, *, ttl: float = 30.0, wait: float = 0.0, purpose: str = "") -> locks.HeldLock:
        """The lease; Busy if it cannot be had within `wait`."""
        body = locks.Acquire(key=key, ttl=ttl, wait=wait, purpose=purpose)
        return self._post("/v1/locks/acquire", body, locks.HeldLock, wait)

    def acquire_all(
        self, keys: Sequence[str], *, ttl: float = 30.0, wait: float = 0.0, purpose: str = ""
    ) -> list[locks.HeldLock]:
        """The leases of all keys; Busy, with none held, if they cannot be had within `wait`."""
        body = locks.Acquire(keys=list(keys), ttl=ttl, wait=wait, purpose=purpose)
        return self._post("/v1/locks/acquire", body, locks.HeldLocks, wait).leases

    def renew(self, token: str, *, ttl: float | None = None) -> float:
        """The seconds that the lease now has, from before the request was sent; LeaseLost if it is over."""
        return self._post("/v1/locks/renew", locks.Renew(token=token, ttl=ttl), locks.RenewedLock).left

    def release(self, token: str) -> str:
        """released, expired, cleared, lost or unknown."""
        return self._post("/v1/locks/release", locks.Release(token=token), locks.ReleasedLock).outcome


class Marks(_Noun):
    """What was seen before is told apart from what is new."""

    def first(self, keys: Sequence[str], *, ttl: float = 86_400.0) -> list[bool]:
        """For each key: true for exactly one caller within `ttl`."""
        return self._post("/v1/marks", marks.Mark(keys=list(keys), ttl=ttl), marks.Firsts).first

    def mark(self, keys: Sequence[str], *, ttl: float = 86_400.0) -> list[bool]:
        """Marks the keys for at least `ttl`, whoever was first: a mark that is there is extended, never shortened. For
        each key: true if there was none."""
        return self._post("/v1/marks", marks.Mark(keys=list(keys), ttl=ttl, extend=True), marks.Firsts).first

    def seen(self, keys: Sequence[str]) -> list[bool]:
        """For each key: is it marked?"""
        return self._post("/v1/marks/seen", marks.Seen(keys=list(keys)), marks.SeenKeys).seen

    def forget(self, keys: Sequence[str]) -> list[bool]:
        """For each key: was there a mark, which is gone now?"""
        return self._post("/v1/marks/forget", marks.Forget(keys=list(keys)), marks.Forgotten).forgotten


class Claims(_Noun):
    """One wins and runs; all others get its result."""

    def claim(
        self, key: str, *, ttl: float = 30.0, wait: float = 0.0, fingerprint: Any = None, purpose: str = ""
    ) -> claims.ClaimAnswer:
        """Won, with a token to publish with; or the winner's result. TimedOut if it still runs after `wait`, Mismatch
        if it was claimed for another fingerprint."""
        body = claims.ClaimBody(key=key, ttl=ttl, wait=wait, fingerprint=fingerprint, purpose=purpose)
        return self._post("/v1/claims/claim", body, claims.ClaimAnswer, wait)

    def publish(
        self, token: str, result: claims.Result, *, keep: float = 86_400.0, wait: float = 0.0
    ) -> claims.PublishedClaim:
        """Published; or superseded by another result, which stands: a later holder's, or an earlier one of its own."""
        body = claims.Publish(token=token, result=result, keep=keep, wait=wait)
        return self._post("/v1/claims/publish", body, claims.PublishedClaim, wait)

    def renew(self, token: str, *, ttl: float | None = None) -> float:
        """The seconds that the claim now has, from before the request was sent; LeaseLost if it is over."""
        return self._post("/v1/claims/renew", claims.RenewClaim(token=token, ttl=ttl), claims.RenewedClaim).left

    def release(self, token: str) -> str:
        """released, expired, cleared, lost or unknown."""
        return self._post("/v1/claims/release", claims.ReleaseClaim(token=token), claims.ReleasedClaim).outcome

    def reset(self, key: str, expected: claims.Result, *, reason: str) -> bool:
        """True if the finished claim had the expected result, and is gone now."""
        body = claims.ResetClaim(key=key, expected=expected, reason=reason)
        return self._post("/v1/claims/reset", body, claims.ResetAnswer).reset


class Reservations(_Noun):
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
    ) -> reservations.ReservationAnswer:
        """Granted, with an id to record or release with; or why not."""
        body = reservations.Reserve(key=key, hold=hold, quiet=quiet, limit=limit, group=group, purpose=purpose)
        return self._post("/v1/reservations/reserve", body, reservations.ReservationAnswer)

    def renew(self, id: str, *, hold: float | None = None) -> float:
        """The seconds that the hold now has, from before the request was sent; UnknownReservation if it was recorded or
        released, or ran out, ReservationMismatch if it is another's since."""
        body = reservations.RenewReservation(id=id, hold=hold)
        return self._post("/v1/reservations/renew", body, reservations.RenewedReservation).left

    def record(self, id: str) -> None:
        """It was sent; UnknownReservation or ReservationMismatch if it was another's by then."""
        self._post("/v1/reservations/record", reservations.Record(id=id), reservations.RecordedReservation)

    def release(self, id: str) -> bool:
        """It was not sent; False if there was nothing to free."""
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


class Limits(_Noun):
    """So many in any window, and not one more."""

    def hit(self, key: str, *, limit: int, per: float) -> int:
        """The hits in the window, with this one; Limited, which says when the next is allowed, if it would be over."""
        return self._post("/v1/limits/hit", limits.HitLimit(key=key, limit=limit, per=per), limits.Admitted).hits


class Watermarks(_Noun):
    """How far the work has come."""

    def advance(self, key: str, value: watermarks.Value) -> watermarks.Value:
        """The value that now stands."""
        body = watermarks.AdvanceWatermark(key=key, value=value)
        return self._post("/v1/watermarks/advance", body, watermarks.WatermarkAnswer).value

    def rewind(self, key: str, to: watermarks.Value, *, reason: str) -> watermarks.Value:
        """The value that now stands, after it was taken back."""
        body = watermarks.RewindWatermark(key=key, to=to, reason=reason)
        return self._post("/v1/watermarks/rewind", body, watermarks.WatermarkAnswer).value

    def list(self, prefix: str = "") -> Iterator[watermarks.ListedWatermark]:
        """Watermarks in key order, page by page."""
        for page in self._pages("/v1/watermarks", watermarks.ListedWatermarks, prefix=prefix, limit=PAGE):
            yield from page.watermarks


class DeadLetters(_Noun):
    """What failed, parked until it is run again or purged."""

    def push(
        self, group: str, payload: Any, *, error: str, key: str | None = None, id: str | None = None
    ) -> deadletters.FullLetter:
        """The letter as it now stands."""
        body = deadletters.PushLetter(group=group, payload=payload, error=error, key=key, id=id)
        return self._post("/v1/dead-letters/push", body, deadletters.FullLetter)

    def groups(self) -> Iterator[str]:
        """Groups that have letters."""
        for page in self._pages("/v1/dead-letters/groups", deadletters.Groups):
            yield from page.groups

    def list(self, group: str) -> Iterator[deadletters.LetterFacts]:
        """The letters of a group in the order of ids, page by page, without their payloads."""
        for page in self._pages("/v1/dead-letters", deadletters.LettersPage, group=group):
            yield from page.letters

    def inspect(self, group: str, id: str) -> deadletters.FullLetter | None:
        """The letter with its payload; None if there is none."""
        try:
            return self._get("/v1/dead-letters/letter", deadletters.FullLetter, group=group, id=id)
        except UnknownReservation:  # as what is not there is told
            return None

    def take(self, group: str, id: str | None = None) -> deadletters.TakenLetter:
        """A letter to run as the only one; or why there is none."""
        return self._post("/v1/dead-letters/take", deadletters.TakeLetter(group=group, id=id), deadletters.TakenLetter)

    def ack(self, group: str, token: str, value: Any = None) -> str:
        """It succeeded: replayed, or gone."""
        body = deadletters.AckLetter(group=group, token=token, value=value)
        return self._post("/v1/dead-letters/ack", body, deadletters.LetterAnswer).outcome

    def fail(self, group: str, token: str, *, error: str) -> str:
        """It failed again: failed, or gone."""
        body = deadletters.FailLetter(group=group, token=token, error=error)
        return self._post("/v1/dead-letters/fail", body, deadletters.LetterAnswer).outcome

    def purge(self, group: str, id: str | None = None, *, all: bool = False, reason: str) -> int:
        """How many were removed."""
        body = deadletters.PurgeLetters(group=group, id=id, all=all, reason=reason)
        return self._post("/v1/dead-letters/purge", body, deadletters.Purged).purged


class Entries(_Noun):
    """All that the store keeps, of every kind."""

    def list(self, prefix: str = "", *, values: bool = False) -> Iterator[WireEntry]:
        """Entries whose stored key (`kind/name`) begins with `prefix`, in key order, page by page."""
        told = {"prefix": prefix, "limit": PAGE, "values": str(values).lower()}
        for page in self._pages("/v1/entries", Page, **told):
            yield from page.entries

    def explain(self, key: str) -> entries.Explained:
        """All that is known under the name."""
        return self._get("/v1/entries/explain", entries.Explained, key=key)

    def clear(self, key: str, *, fence: int, reason: str) -> bool:
        """Removes the entry of this stored key if it still has this fence; False if it had moved on."""
        body = entries.ClearEntry(key=key, fence=fence, reason=reason)
        return self._post("/v1/entries/clear", body, entries.ClearedEntry).cleared
