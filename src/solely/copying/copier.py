"""Copies entries from store to store: reads pages, sends batches, retries requests without a response, and counts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ..drivers.retrying import pause
from ..errors import InvalidInput, StoreError, StoreFailed, StoreUnavailable
from ..functions import plain_function
from ..holder import describe
from ..model import Entry
from ..ops import MAX_BATCH, MAX_BATCH_BYTES, Op, Reply
from ..rules import local_clock
from ..stores import Store
from . import plan
from .plan import PlannedEntry
from .report import CopyFailure, CopyOutcome, CopyReport, LeftBehind, Progress

T = TypeVar("T")
OnProgress = Callable[[Progress], None]

FIRST_PAGE = 32  # entries: 8 MiB if each has the largest value; the size of the next page follows from the last
# Entries: half a GiB if all of them were the largest; Redis scans all its keys for every page.
MOST_PER_PAGE = 2_000
PAGE_BYTES = 8 * 1024 * 1024  # of a page, estimated from the entries of the page before
ENTRY_BYTES = 512  # an entry without its value, generously
RETRY_FOR = 30.0  # seconds without any response before a copy gives up: a server that restarts is back by then
MOST_LISTED = 10_000  # leases and failures in the report: a few MB


def copy_stores(
    source: Store,
    target: Store,
    *,
    progress: OnProgress | None = None,
    prefixes: Iterable[str] = ("",),
    dry_run: bool = False,
    clock: Callable[[], float] = local_clock,
) -> CopyReport:
    """`copy` between two open stores, which stay open. `clock` measures how long entries are in transit."""
    copier = Copier(target, None if progress is None else plain_function("progress", progress), dry_run, clock)
    for prefix in _apart(prefixes):
        for page, read_at in _pages(source, prefix, clock):
            copier.copy(page, read_at)
    return copier.report()


def _apart(prefixes: Iterable[str]) -> list[str]:
    """The prefixes without those that others cover, so that no entry is read twice."""
    given = [] if isinstance(prefixes, str | bytes) else list(prefixes)
    if not given or not all(isinstance(prefix, str) for prefix in given):
        raise InvalidInput(f"prefixes must be a list of str such as ['mark/', 'claim/'], not {prefixes!r:.80}")
    return [p for p in sorted(set(given)) if not any(p != other and p.startswith(other) for other in given)]


def _pages(source: Store, prefix: str, clock: Callable[[], float]) -> Iterator[tuple[list[Entry], float]]:
    """The source's entries, a page at a time, each with the time before its request."""

    def read_page() -> tuple[list[Entry], float]:
        read_at = clock()
        return source.scan(prefix, after, limit), read_at

    after, limit = "", FIRST_PAGE
    while True:
        page, read_at = _retried(read_page)
        if not page:
            return
        yield page, read_at
        after = page[-1].key
        mean = sum(map(_bytes, page)) // len(page)
        limit = max(1, min(MOST_PER_PAGE, PAGE_BYTES // mean))


def _retried(request: Callable[[], T]) -> T:
    """What `request` returns, retried while the store is unreachable; StoreUnavailable after RETRY_FOR."""
    window = RetryWindow()
    while True:
        try:
            return request()
        except StoreUnavailable:
            if not window.another_try():
                raise


class RetryWindow:
    """Pauses between tries, until RETRY_FOR has passed."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + RETRY_FOR
        self._tries = 0

    def another_try(self) -> bool:
        """True, after a pause, if there is time for another try."""
        if time.monotonic() >= self._ends:
            return False
        time.sleep(pause(self._tries, random.random()))
        self._tries += 1
        return True


def _bytes(entry: Entry) -> int:
    return ENTRY_BYTES + len(entry.value or b"")


def _batches(entries: Iterable[PlannedEntry]) -> Iterator[list[PlannedEntry]]:
    """Batches within the limits of a store."""
    batch, weight = list[PlannedEntry](), 0
    for planned in entries:
        if batch and (len(batch) == MAX_BATCH or weight + _bytes(planned.entry) > MAX_BATCH_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append(planned)
        weight += _bytes(planned.entry)
    if batch:
        yield batch


class Copier:
    """Copies pages of entries into the target and counts the outcomes."""

    def __init__(
        self, target: Store, on_progress: OnProgress | None, dry_run: bool, clock: Callable[[], float]
    ) -> None:
        self._target = target
        self._on_progress = on_progress
        self._dry_run = dry_run
        self._clock = clock
        self._began = time.monotonic()
        self._outcomes = dict.fromkeys(CopyOutcome, 0)
        self._left_behind: list[LeftBehind] = []
        self._failures: list[CopyFailure] = []

    def copy(self, page: list[Entry], read_at: float) -> None:
        """Copies what is not held, in the order of creation: an item that waited longer goes first."""
        to_copy = list[PlannedEntry]()
        for entry in sorted(page, key=lambda entry: entry.fence):
            if plan.is_held_at_source(entry):
                self._leave_behind(entry)
            else:
                to_copy.append(plan.planned(entry, read_at))
        for batch in _batches(to_copy):
            now = self._clock()
            live = [planned for planned in batch if not plan.has_expired(planned, now)]
            self._outcomes[CopyOutcome.EXPIRED] += len(batch) - len(live)
            if live:
                self._copy_batch(live)
            self._report_progress()
        if not to_copy:
            self._report_progress()

    def report(self) -> CopyReport:
        return CopyReport(self._progress(), tuple(self._left_behind), tuple(self._failures), self._dry_run)

    def _copy_batch(self, batch: list[PlannedEntry]) -> None:
        if self._dry_run:
            for planned, reply in zip(batch, self._replies(batch, plan.read_op), strict=True):
                self._count(planned, plan.outcome_of_dry_run(planned, reply))
            return
        prepared = list[PlannedEntry]()
        for planned, reply in zip(batch, self._replies(batch, plan.first_op), strict=True):
            outcome = plan.outcome_of_first(planned, reply)
            if outcome is None:
                prepared.append(planned)
            else:
                self._count(planned, outcome)
        if prepared:
            for planned, reply in zip(prepared, self._replies(prepared, plan.second_op), strict=True):
                self._count(planned, plan.outcome_of_second(planned, reply))

    def _replies(
        self, batch: list[PlannedEntry], op_for: Callable[[PlannedEntry, float], Op]
    ) -> list[Reply | StoreError]:
        """The target's replies. Ops without a response are repeated with the time that is then left.
        StoreUnavailable if no op of the batch got a response within RETRY_FOR."""
        replies: list[Reply | StoreError] = [None] * len(batch)
        waiting, window = list(range(len(batch))), RetryWindow()
        while True:
            now = self._clock()
            answers = self._try([op_for(batch[place], now) for place in waiting])
            for place, answer in zip(waiting, answers, strict=True):
                replies[place] = answer
            waiting = [place for place in waiting if isinstance(replies[place], StoreUnavailable)]
            if not waiting:
                return replies
            if not window.another_try():
                break
        last = replies[waiting[0]]
        if len(waiting) == len(batch) and isinstance(last, StoreUnavailable):
            raise last
        return replies

    def _try(self, ops: Sequence[Op]) -> Sequence[Reply | StoreError]:
        try:
            return self._target.perform(ops)
        except StoreUnavailable as error:
            return [error] * len(ops)
        except (StoreError, InvalidInput) as error:  # invalid: an entry that an earlier version accepted
            if len(ops) == 1:
                return [error if isinstance(error, StoreError) else StoreFailed(str(error), key=error.key)]
            return [self._try([op])[0] for op in ops]  # one invalid op fails the whole batch

    def _leave_behind(self, entry: Entry) -> None:
        self._outcomes[CopyOutcome.LEFT_BEHIND] += 1
        if len(self._left_behind) < MOST_LISTED:
            self._left_behind.append(LeftBehind(entry.key, entry.state, describe(entry.info), entry.left))

    def _count(self, planned: PlannedEntry, outcome: CopyOutcome | str) -> None:
        if isinstance(outcome, CopyOutcome):
            self._outcomes[outcome] += 1
            return
        self._outcomes[CopyOutcome.FAILED] += 1
        if len(self._failures) < MOST_LISTED:
            self._failures.append(CopyFailure(planned.entry.key, outcome))

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._progress())

    def _progress(self) -> Progress:
        counts = {outcome.name.lower(): count for outcome, count in self._outcomes.items()}
        return Progress(seen=sum(counts.values()), elapsed=time.monotonic() - self._began, **counts)
