"""Decisions on signals, the same for threads and asyncio: lock the group, generate, leave out what was written within
the window, write the rest once, park what fails.

A signal is written in three steps. *Acquire*: a mark, made by the first that tries, whose fence is the signal's id.
*Write*, by that id. *Finish*: the credential is marked for the window. A process that dies in between leaves the first
mark, so whoever comes next writes under the same id: a signal that was written already is not written twice.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ... import (
    Breaker,
    BreakerOpen,
    Cache,
    InvalidInput,
    SolelyError,
    StoreUnavailable,
)
from ...kit import get_logger, plain_function
from .metrics import SignalAlert, SignalMetrics
from .model import (
    LETTERS,
    MAX_HELD,
    GroupResult,
    PendingSignal,
    Signal,
    SignalGroup,
    SignalOptions,
    intent_key,
    signal_id,
)
from .steps import Step, Steps, Together

log = get_logger("solely.signals")
CACHED = 300.0  # seconds that the cache remembers a credential at most, as the document says; the store does for longer
Failed = list[tuple[PendingSignal, BaseException]]
MAX_REPR = 10_000  # characters kept of a signal that has no JSON form


class SignalGeneratorBase(ABC):
    """What both modes share. `use_idempotent_signals` may be changed at any time."""

    def __init__(
        self,
        generate: Callable[[SignalGroup, Any], Any],
        write: Callable[..., Any],
        *,
        once: Any,
        letters: Any,
        unprotected: Callable[[Signal], Any] | None,
        transaction: Callable[[], Any] | None,
        use_idempotent_signals: bool,
        breaker: Breaker | None,
        on_alert: Callable[[SignalAlert], object] | None,
        options: SignalOptions,
        clock: Callable[[], float],
    ) -> None:
        self._generate, self._write, self._transaction = generate, self._checked("write", write), transaction
        self._on_alert = None if on_alert is None else plain_function("on_alert", on_alert)
        self._unprotected = self._write_unguarded if unprotected is None else self._checked("unprotected", unprotected)
        if transaction is not None:
            plain_function("transaction", transaction, "it must return a context manager")
        self._once, self._options, self._clock = once, options, plain_function("clock", clock)
        self._letters = letters.dead_letters(options.own(LETTERS))
        self.use_idempotent_signals = use_idempotent_signals
        self.breaker = breaker or Breaker("signals", on=StoreUnavailable)
        self.cache = Cache(size=options.cache_size, ttl=min(options.window, CACHED))
        self.metrics = SignalMetrics()
        self._reported = clock()

    @abstractmethod
    def _checked(self, what: str, write: Callable[..., Any]) -> Callable[..., Any]:
        """The caller's function, which raises InvalidInput if its work was not done; so does this, for one of the wrong
        kind: its signals would be taken for written."""

    @abstractmethod
    def _collect(self, group: SignalGroup, context: Any) -> Any:
        """The signals of the wrapped generator, as a list."""

    @abstractmethod
    def _write_unguarded(self, signal: Signal) -> Any:
        """Writes the signal without a mark, if the caller gave no old way to write it."""

    @abstractmethod
    def _sleep(self, seconds: float) -> Any:
        """Pauses this thread or task."""

    @abstractmethod
    def _commit(self, pending: Sequence[PendingSignal]) -> Any:
        """Marks and writes the signals in a transaction of the caller's; one bool each: True if it was written."""

    def report(self) -> list[SignalAlert]:
        """Logs the metrics and applies the alert rules; returns, logs and passes to `on_alert` what changed."""
        self._reported = self._clock()
        log.info("signal_metrics: %s", self.metrics.line())
        changed = self.metrics.judge(self.breaker)
        for alert in changed:
            level = logging.WARNING if alert.firing else logging.INFO
            state = "firing" if alert.firing else "resolved"
            log.log(level, "signal_alert: %s is %s: %s", alert.name, state, alert.summary)
            if self._on_alert is not None:
                self._on_alert(alert)
        return changed

    # -- one group

    def _generating(self, group: tuple[str, str], context: Any) -> Steps[GroupResult]:
        """The result of the group; raises StoreUnavailable if the store is unreachable and the old path not chosen."""
        result, began = GroupResult(SignalGroup(*group)), self._clock()
        try:
            if self.use_idempotent_signals:
                yield from self._guarded(result, context)
            else:
                yield from self._old_path(result, context, "off")
        except StoreUnavailable as error:
            result.outcome, result.error = "refused", error
            raise
        except Exception as error:
            result.error = error
            raise
        finally:
            result.seconds = self._clock() - began
            self.metrics.record(result)
            if self._options.report_every and self._clock() - self._reported >= self._options.report_every:
                self.report()
        return result

    def _guarded(self, result: GroupResult, context: Any) -> Steps[None]:
        """Handles the group under its lock, as one call through the breaker."""
        worked: bool | None = None
        try:
            passed = self.breaker.admit()
        except BreakerOpen as refusal:
            unreachable = StoreUnavailable(f"no request was sent to the store: {refusal}", left=refusal.left)
            yield from self._without_store(result, context, unreachable)
            return
        try:
            yield from self._locked(result, context)
            worked = True
        except Exception as error:
            worked = not isinstance(error, StoreUnavailable)
            raise
        finally:
            self.breaker.judge(passed, worked if result.outcome != "unprotected" else False)

    def _locked(self, result: GroupResult, context: Any) -> Steps[None]:
        options, name = self._options, self._options.own(result.group.lock)
        most = options.ttl * MAX_HELD
        try:
            lease = yield partial(self._once.try_lock, name, ttl=options.ttl, max_hold=most, on_lost="flag")
        except StoreUnavailable as error:
            yield from self._without_store(result, context, error)
            return
        if lease is None:
            result.outcome = "contended"
            return
        try:
            signals = yield partial(self._collect, result.group, context)
            yield from self._settle(result, signals, lease.ensure)
        finally:
            yield from self._released(lease)

    def _released(self, lease: Any) -> Steps[None]:
        """Releases the lock. A failure is logged only: the lock expires, and what was written stays written."""
        try:
            yield lease.release
        except SolelyError as error:
            log.warning("signal_lock_not_released: %s expires by itself: %s", lease.key, error)

    def _without_store(self, result: GroupResult, context: Any, error: StoreUnavailable) -> Steps[None]:
        """The old path, if that was chosen for outages; else raises the error, and nothing is written."""
        if self._options.on_outage == "refuse":
            raise error
        log.warning("signals_unprotected: %s is generated without the store: %s", result.group.lock, error)
        yield from self._old_path(result, context, "unprotected")

    def _old_path(self, result: GroupResult, context: Any, outcome: Any) -> Steps[None]:
        """What happened before there was this wrapper: everything that is generated is written."""
        result.outcome = outcome
        for signal in (yield partial(self._collect, result.group, context)):
            yield partial(self._unprotected, signal)
            result.generated += 1

    # -- its signals

    def _settle(self, result: GroupResult, signals: Sequence[Signal], ensure: Step) -> Steps[None]:
        """Writes what the window does not have yet, and parks what fails."""
        failed: Failed = []
        yield from self._write_all(result, self._pending(result, signals, failed), ensure, failed)
        for each, error in failed:
            yield from self._park(each, error)
            result.dead_lettered += 1

    def _write_all(
        self, result: GroupResult, pending: Sequence[PendingSignal], ensure: Step, failed: Failed
    ) -> Steps[None]:
        """Writes what the window does not have yet; `ensure` raises LeaseLost if the group's lock is lost."""
        if pending:
            write = self._write_by_id if self._transaction is None else self._write_in_transactions
            yield from write(result, pending, ensure, failed)

    def _pending(self, result: GroupResult, signals: Sequence[Signal], failed: Failed) -> list[PendingSignal]:
        """The signals that are not known to be written, one per credential."""
        pending: dict[str, PendingSignal] = {}
        for signal in signals:
            try:
                username = self._options.username_of(signal)
                key = self._options.own(result.group.key(username))
            except Exception as error:  # noqa: BLE001 - whatever a signal of another form raises
                lost = InvalidInput(f"the signal names no valid credential: {type(error).__name__}: {error}")
                failed.append((PendingSignal("", "", signal, result.group), lost))
                continue
            if key in pending or self.cache.has(key):
                result.deduplicated += 1
            else:
                pending[key] = PendingSignal(key, username, signal, result.group)
        return list(pending.values())

    def _write_by_id(
        self, result: GroupResult, pending: Sequence[PendingSignal], ensure: Step, failed: Failed
    ) -> Steps[None]:
        """Acquire, write, finish."""
        fresh = yield from self._acquire(pending)
        result.deduplicated += len(pending) - len(fresh)
        yield ensure
        replies = yield from self._attempt([partial(self._write, each.signal, each.id) for each in fresh])
        outcomes = list(zip(fresh, replies, strict=True))
        failed += [(each, error) for each, error in outcomes if isinstance(error, BaseException)]
        written = [each.key for each, reply in outcomes if not isinstance(reply, BaseException)]
        yield partial(self._once.first_many, written, ttl=self._options.window)
        self._remember(written)
        result.generated += len(written)

    def _acquire(self, pending: Sequence[PendingSignal]) -> Steps[list[PendingSignal]]:
        """The signals that the window does not have, each with its id: a replayed one has it already.

        The mark with the id lasts a window from its last use, so that it ends no later than the window of a signal that
        is written under it. If another process finished meanwhile, the mark is removed, since it was just extended.
        """
        opened = yield from self._outside_window(pending)
        own, window = self._options.own, self._options.window
        intents = [own(intent_key(each.group.key(each.username))) for each in opened]
        marks = yield partial(self._once.ensure_marks, intents, ttl=window)
        fresh = yield from self._outside_window(opened)
        kept = {each.key for each in fresh}
        for each, intent in zip(opened, intents, strict=True):
            if each.key not in kept:
                yield partial(self._once.forget, intent)
        ids = {each.key: signal_id(each.key, mark.fence) for each, mark in zip(opened, marks, strict=True)}
        return [each._replace(id=each.id or ids[each.key]) for each in fresh]

    def _outside_window(self, pending: Sequence[PendingSignal]) -> Steps[list[PendingSignal]]:
        """Those whose credential has no signal in the current window; the cache remembers the others."""
        windows = yield partial(self._once.read_marks, [each.key for each in pending])
        for known in filter(None, windows):
            self.cache.add(known.key, known.left)
        return [each for each, known in zip(pending, windows, strict=True) if known is None]

    def _write_in_transactions(
        self, result: GroupResult, pending: Sequence[PendingSignal], ensure: Step, failed: Failed
    ) -> Steps[None]:
        """All in one transaction; if that keeps failing, each in its own, so that a bad signal stops no other."""
        batches = [list(pending)]
        while batches:
            batch = batches.pop()
            yield ensure
            (written,) = yield from self._attempt([partial(self._commit, batch)])
            if isinstance(written, StoreUnavailable):
                raise written
            if isinstance(written, BaseException) and len(batch) > 1:
                batches += [[each] for each in batch]
            elif isinstance(written, BaseException):
                failed.append((batch[0], written))
            else:
                self._remember([each.key for each, is_new in zip(batch, written, strict=True) if is_new])
                result.generated += sum(written)
                result.deduplicated += len(batch) - sum(written)

    def _attempt(self, steps: Sequence[Step]) -> Steps[list[Any]]:
        """The replies of the steps; those that fail are repeated, all together, after each pause of `backoff`."""
        replies: list[Any] = yield Together(steps)
        for pause in self._options.backoff:
            failing = [place for place, reply in enumerate(replies) if isinstance(reply, BaseException)]
            if not failing:
                break
            yield partial(self._sleep, pause)
            again = yield Together([steps[place] for place in failing])
            for place, reply in zip(failing, again, strict=True):
                replies[place] = reply
        return replies

    def _remember(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.cache.add(key, self._options.window)

    # -- dead letters

    def _park(self, failed: PendingSignal, error: BaseException) -> Steps[None]:
        """Makes a dead letter of the signal: one per credential, which counts its failures."""
        attempts = 1 + len(list(self._options.backoff)) if failed.key else 1
        push = partial(self._letters.push, error=error, attempts=attempts, id=failed.key or None)
        try:
            yield partial(push, failed.payload(self._options.dump))
        except InvalidInput:
            text = {"house": failed.group.house, "game": failed.group.game, "repr": repr(failed.signal)[:MAX_REPR]}
            yield partial(push, text)

    def _replaying(self, payload: dict[str, Any]) -> Steps[str]:
        """Writes the signal of a dead letter, unless its credential got one within the window; raises what fails."""
        if "signal" not in payload:
            raise InvalidInput(f"the signal has no JSON form, and cannot be replayed: {payload.get('repr', '')!s:.200}")
        result = GroupResult(SignalGroup(payload["house"], payload["game"]))
        failed: Failed = []
        pending = self._pending(result, [self._options.load(payload)], failed)
        again = [each._replace(id=payload.get("id", "")) for each in pending]
        yield from self._write_all(result, again, lambda: None, failed)
        for _, error in failed:
            raise error
        self.metrics.record(GroupResult(result.group, "off", result.generated, result.deduplicated))
        return "generated" if result.generated else "deduplicated"
