"""Leases: the handle of a held key, for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any, Self

from .. import events
from ..errors import ClientClosed, InvalidInput, LeaseLost, SolelyError, StoreError
from ..flow import RUN, Ask, Flow, Run
from ..logs import get_logger
from ..model import RELEASED, Entry, Released
from ..ops import Renew
from ..rules import (
    MAX_TTL,
    Seconds,
    deadline,
    duration_text,
    local_clock,
    number_text,
    seconds,
    ttl_seconds,
)
from .context import AsyncRunFlow, Context, RunFlow
from .flow import release
from .hold import HANDED_OVER, Hold, why_lost
from .token import Token, write_token

if TYPE_CHECKING:
    import asyncio

log = get_logger()


class LeaseBase:
    """A lease; all its properties are local. A guarded resource compares its `fence`."""

    _hold: Hold
    _context: Context
    _over = False  # released or handed over

    @property
    def key(self) -> str:
        """The key as the user wrote it."""
        return self._hold.key.partition("/")[2]

    @property
    def fence(self) -> int:
        """Grows with every hold of the key. Pass it to the protected resource, which refuses smaller ones."""
        return self._hold.fence

    @property
    def unguarded(self) -> bool:
        """True if this client proceeded without an unreachable store (`on_outage="proceed"`): nothing is held."""
        return not self._hold.owner

    @property
    def waited(self) -> float:
        """Seconds from the request to the grant."""
        return self._hold.waited

    def held(self) -> float:
        """Seconds since the lease was requested."""
        return local_clock() - self._hold.since

    @property
    def lost(self) -> bool:
        """True as soon as the lease is no longer safe to rely on, also while the network hangs or after a suspend."""
        return bool(self.lost_how)

    @property
    def lost_how(self) -> str:
        """expired, cleared, resumed (by another process, though this one had not let go), lost (the store no longer had
        it), max_hold, forked, handed over; "" while it is held."""
        return self._hold.how(local_clock())

    def remaining(self) -> float:
        """Seconds that the lease is safe to rely on without a renewal; 0 if it is lost."""
        return 0.0 if self.lost else max(0.0, self._hold.deadline - local_clock())

    @property
    def token(self) -> str:
        """The token with which one other process can `resume` this lease, and any process renew or release it. A
        secret.

        This holder loses the lease when the token is resumed: it learns of that at its next renewal.
        """
        if self.unguarded:
            raise InvalidInput(f"lease of {self.key!r} is unguarded (the store was unreachable): it has no token")
        hold = self._hold
        since = round(time() - self.held(), 3)
        return write_token(Token(hold.key, hold.owner, hold.ttl, hold.fence, since, hold.fingerprint))

    def keep_closed(self, at_least: Seconds) -> None:
        """Keeps the key closed until `at_least` seconds after the request for it, even if it is released sooner."""
        self._hold.opens = self._hold.since + seconds("at_least", at_least, least=0.0, most=MAX_TTL)

    def _check_held(self) -> None:
        """Raises LeaseLost if the lease is over, since nothing would guard the block."""
        if self._over or self._hold.lost:
            raise self._lost_error()

    def _lost_error(self) -> LeaseLost:
        how = why_lost(self.lost_how or "expired")
        text = f"lease of {self.key!r} (fence {self.fence}) was lost: {how}; another may hold it now"
        return LeaseLost(text, key=self.key)

    def _wanted(self, needed: Seconds) -> float:
        wanted = seconds("seconds", needed, least=0.0, most=MAX_TTL)
        if wanted > deadline(0.0, self._hold.ttl):
            ttl = duration_text(self._hold.ttl)
            raise InvalidInput(f"ensure({number_text(wanted)}) needs more than the lease's ttl of {ttl} provides")
        return wanted

    def __repr__(self) -> str:
        state = self.lost_how or f"{self.remaining():.1f} s left"
        return f"<{type(self).__name__} {self.key!r} fence={self.fence} {state}>"

    # -- operations, the same for threads and asyncio

    def _renewing(self, ttl: Seconds | None) -> Flow[None]:
        """Extends the lease now; raises LeaseLost if it is lost."""
        hold, keeper = self._hold, self._context.keeper
        wanted = hold.ttl if ttl is None else ttl_seconds(ttl)
        if self.unguarded:
            return
        now: float = yield Ask.NOW
        if hold.how(now):
            raise self._lost_error()
        bounded = min(wanted, max(0.001, hold.ends - now))
        entry: Entry = yield Renew(hold.key, hold.owner, bounded)
        run: Run = yield RUN
        if entry.owner != hold.owner:
            keeper.lose(hold, hold.gone(entry.gone))
            raise self._lost_error()
        hold.ttl = wanted
        if not keeper.renewed(hold, entry, bounded, run.sent):
            raise self._lost_error()
        keeper.wake_for(hold)

    def _ensuring(self, needed: Seconds) -> Flow[None]:
        """Ensures that at least `needed` seconds are left, with a renewal if necessary; else raises LeaseLost."""
        wanted = self._wanted(needed)
        if self.lost:
            raise self._lost_error()
        if self.remaining() < wanted:
            yield from self._renewing(None)
            left = self.remaining()
            if left < wanted and not self.lost:
                lacking = duration_text(wanted)
                text = f"lease of {self.key!r} has {left:.3g}s left, not {lacking}: max_hold ends it then"
                raise LeaseLost(text, key=self.key)
            if left < wanted:
                raise self._lost_error()

    def _releasing(self) -> Flow[Released]:
        """Releases the key; returns whether it was still held."""
        self._context.keeper.remove(self._hold)
        return release(self._hold)

    def _released(self, outcome: Released) -> Released:
        """Notes that the lease is over, and reports it to the hook."""
        self._over = True
        if self._context.hook is not None:
            self._context.hook(events.ReleasedLease(self._hold.key, self.fence, self.held(), outcome.value))
        return outcome

    def _end_block(self, outcome: Released, error: BaseException | None) -> None:
        """Ends a guarded block: raises LeaseLost if the block outlived its lease; never masks the block's own error."""
        self._over = True
        if self._context.hook is not None:
            self._released(outcome)
        if outcome is not RELEASED and error is None and not self.unguarded:
            raise self._lost_error()

    def _not_released(self, failure: SolelyError, error: BaseException | None) -> None:
        """Raises the failure of the release at the end of a block, or logs it if the block itself raised an error."""
        if error is None:
            raise failure
        facts = {"key": self.key, "error": str(failure)}
        log.warning(
            "release_failed: %(key)r was not released, and stays held until its ttl ends: %(error)s",
            facts,
            extra=facts,
        )

    def _drop(self, how: str) -> None:
        """Stops keeping the lease, without releasing it."""
        keeper = self._context.keeper
        keeper.remove(self._hold)
        keeper.wake(self._hold.key)  # waiters of this process must ask the store now
        self._hold.lost = how
        self._over = True


class Lease(LeaseBase):
    """A key held by this process, for threads. As a context manager it releases the key at the end."""

    def __init__(self, hold: Hold, context: Context, run: RunFlow) -> None:
        self._hold = hold
        hold.caller = context.caller()
        self._context = context
        self._run = run

    def renew(self, ttl: Seconds | None = None) -> None:
        """Extends the lease now; raises LeaseLost if it is lost."""
        self._run(self._renewing(ttl))

    def ensure(self, needed: Seconds = 0.0) -> None:
        """Ensures that at least `needed` seconds are left, with a renewal if necessary; else raises LeaseLost."""
        self._run(self._ensuring(needed))

    def release(self) -> Released:
        """Releases the key; returns whether it was still held. Safe to repeat: it returns the same outcome."""
        return self._released(self._run(self._releasing()))

    def hand_over(self) -> str:
        """Stops keeping the lease here, without a release; returns the token with which another process resumes it."""
        token = self.token
        self._drop(HANDED_OVER)
        return token

    def __enter__(self) -> Self:
        self._check_held()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._over:
            return
        try:
            outcome = self._run(self._releasing())
        except (StoreError, ClientClosed) as failure:
            self._not_released(failure, error)
        else:
            self._end_block(outcome, error)


class AsyncLease(LeaseBase):
    """A key held by this process, for asyncio. As an async context manager it releases the key at the end.

    With `on_lost="cancel"` (the default) the task inside `async with` is cancelled when the lease is lost, and the
    block then raises LeaseLost. Outside `async with` no task is cancelled, since it is unknown which one relies on it.
    """

    def __init__(self, hold: Hold, context: Context, run: AsyncRunFlow, *, cancel: bool) -> None:
        self._hold = hold
        hold.caller = context.caller()
        self._context = context
        self._run = run
        self._guard = TaskGuard(hold, context.caller) if cancel else None

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Extends the lease now; raises LeaseLost if it is lost."""
        await self._run(self._renewing(ttl))

    async def ensure(self, needed: Seconds = 0.0) -> None:
        """Ensures that at least `needed` seconds are left, with a renewal if necessary; else raises LeaseLost."""
        await self._run(self._ensuring(needed))

    async def release(self) -> Released:
        """Releases the key; returns whether it was still held. Safe to repeat: it returns the same outcome."""
        return self._released(await self._run(self._releasing()))

    def hand_over(self) -> str:
        """Stops keeping the lease here, without a release; returns the token with which another process resumes it."""
        token = self.token
        self._drop(HANDED_OVER)
        return token

    def guard(self) -> None:
        """With `on_lost="cancel"`, the current task is cancelled from now on when the lease is lost."""
        if self._guard is not None:
            self._guard.enter()

    def unguard(self, error: BaseException | None) -> bool:
        """Cancels the task no more; True if `error` is the cancellation by the loss of the lease, and no other."""
        return self._guard is not None and self._guard.exit(error)

    async def __aenter__(self) -> Self:
        self._check_held()
        self.guard()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        cancelled = self.unguard(error)
        if not self._over:
            try:
                outcome = await self._run(self._releasing())
            except (StoreError, ClientClosed) as failure:
                self._not_released(failure, error)
            else:
                self._end_block(outcome, error)
        if cancelled:
            raise self._lost_error() from error


class TaskGuard:
    """Cancels the task in a guarded block when the lease is lost; distinguishes that from any other cancellation."""

    __slots__ = ("_cancelled", "_cancelling", "_current_task", "_task")

    def __init__(self, hold: Hold, current_task: Callable[[], Any]) -> None:
        hold.on_lost = self._lost
        self._current_task = current_task
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def enter(self) -> None:
        """Makes the current task the one to cancel."""
        self._task = task = self._current_task()
        self._cancelling = task.cancelling() if task is not None else 0

    def _lost(self, hold: Hold) -> None:
        if self._task is not None and self._task is not self._current_task():  # its own call raises LeaseLost
            self._cancelled = True
            self._task.cancel(f"lease of {hold.key.partition('/')[2]!r} was lost: {hold.lost}")

    def exit(self, error: BaseException | None) -> bool:
        """True if `error` is this guard's cancellation and no other: the caller then raises LeaseLost in its place."""
        task, self._task = self._task, None
        if task is None or not self._cancelled:
            return False
        from asyncio import CancelledError  # here, as threads do not need asyncio, which takes long to import

        only_ours = task.uncancel() <= self._cancelling
        return only_ours and isinstance(error, CancelledError)
