"""The pre-gate claim: all triggers of one key go through it before the gate decides between SQL and the buffer, so that
one of them runs the pipeline and the others answer its run id."""

from __future__ import annotations

import time

import msgspec
import structlog

from ... import AsyncClaim, AsyncClient, DataError, StoreError
from ...kit import AWAY, Metrics, Problem
from .figures import FAILURES, STALE, TIMEOUTS, WAITS, WINS
from .settings import TriggersSettings

log = structlog.get_logger("solely.triggers")

TIMED_OUT = "Idempotency claim resolution timed out"
_REMEMBER = 3_600.0  # seconds that a failed attempt is remembered: whoever takes over looks for what it left behind
_AWAY = 1.0  # seconds that an unreachable store is not asked again: not every trigger waits for its timeout


class ClaimedRun(msgspec.Struct, frozen=True):
    """What the winner publishes: its run."""

    id: str
    digest: str
    buffered: bool = False


class KeyClaims:
    """The claims of keys. Each step that the store does not perform is logged and counted, and the caller goes on under
    the constraint alone, or is refused (`on_outage`)."""

    def __init__(self, once: AsyncClient, settings: TriggersSettings, metrics: Metrics) -> None:
        self._once, self._settings, self._metrics = once, settings, metrics
        self._ask_from = 0.0
        self.enabled = settings.claim

    @property
    def away(self) -> bool:
        """True if the store did not answer a moment ago: it is not asked for every trigger."""
        return time.monotonic() < self._ask_from

    async def claim(self, name: str) -> AsyncClaim | None:
        """The claim, won or cached; None if there is none to rely on: the claims are off, or the store is unreachable.
        Raises Problem (503) if the winner does not publish in time, or the outage refuses."""
        if not self.enabled:
            return None
        if self.away:
            self._count_failure("skipped")
            return None
        try:
            claim = await self._once.claim(
                name, ttl=self._settings.claim_ttl, wait=self._settings.claim_wait, keep=_REMEMBER
            )
        except StoreError as error:
            if isinstance(error, DataError):
                raise
            self._ask_from = time.monotonic() + _AWAY
            log.warning("idempotency claim failed", key=name, error=str(error))
            self._count_failure("claim")
            return None
        if claim.timed_out:
            self._metrics.count(TIMEOUTS)
            raise Problem(AWAY, TIMED_OUT, again=claim.retry_after)
        self._metrics.count(WINS if claim.won else WAITS)
        return claim

    def _count_failure(self, step: str) -> None:
        """Raises Problem if the settings refuse triggers whose claim cannot be made."""
        self._metrics.count(FAILURES, step)
        if self._settings.on_outage == "refuse":
            raise Problem(AWAY, "the claim of this idempotency key cannot be made, and on_outage=refuse")

    async def publish(self, claim: AsyncClaim, run: ClaimedRun, keep: float) -> ClaimedRun | None:
        """The run that the claim answers from now on: this one, or that of a later holder. None if the store did not
        publish it: waiters time out, and the claim expires."""
        try:
            publication = await claim.publish(msgspec.to_builtins(run), keep=keep)
        except StoreError as error:
            self._metrics.count(FAILURES, "publish")
            log.warning("idempotency claim publish failed", key=claim.key, error=str(error))
            return None
        return run if publication.published else published_run(publication.value)

    async def release(self, claim: AsyncClaim, error: BaseException) -> None:
        """Frees the claim after a failure of the pipeline: one waiter takes over."""
        try:
            await claim.fail(error)
        except StoreError as failure:
            self._metrics.count(FAILURES, "release")
            log.warning("idempotency claim release failed", key=claim.key, error=str(failure))

    async def drop(self, name: str, run: ClaimedRun) -> None:
        """Removes the claim of a run whose key was reset or has expired, if it is still that run's."""
        self._metrics.count(STALE)
        try:
            await self._once.reset(name, expected=msgspec.to_builtins(run))
        except StoreError as error:
            log.warning("idempotency claim reset failed", key=name, error=str(error))


def published_run(value: object) -> ClaimedRun | None:
    """The run in the value of a claim; None if another program wrote it."""
    try:
        return msgspec.convert(value, ClaimedRun)
    except msgspec.ValidationError:
        return None
