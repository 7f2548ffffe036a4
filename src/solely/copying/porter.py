"""Carries entries from store to store: reads pages, sends batches, tries again what got no answer, counts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ..drivers.retrying import pause
from ..errors import InvalidInput, StoreError, StoreFailed, StoreUnavailable
from ..holder import describe
from ..model import Entry
from ..ops import MAX_BATCH, MAX_BATCH_BYTES, Op, Reply
from ..rules import local_clock
from ..stores import Store
from . import cargo as cargo_of
from .cargo import Cargo
from .report import CopyReport, Failure, Fate, LeftBehind, Progress

T = TypeVar("T")
OnProgress = Callable[[Progress], None]

FIRST_PAGE = 32  # entries: 8 MiB if each has the largest value; the size of the next page follows from the last
# Entries: half a GiB if all at once turned out to be the largest; Redis looks through all its keys for every page.
MOST_PER_PAGE = 2_000
PAGE_BYTES = 8 * 1024 * 1024  # of a page whose entries are as large as those of the last one
ENTRY_BYTES = 512  # an entry without its value, generously
PATIENCE = 30.0  # seconds without any answer before a copy gives up: a server that restarts is back by then
MOST_LISTED = 10_000  # leases and failures in the report: more than anybody reads, a few MB


def copy_stores(
    source: Store,
    target: Store,
    *,
    progress: OnProgress | None = None,
    prefixes: Iterable[str] = ("",),
    dry_run: bool = False,
    clock: Callable[[], float] = local_clock,
) -> CopyReport:
    """`copy` between two open stores, which stay open. `clock` measures how long entries are under way."""
    porter = Porter(target, progress, dry_run, clock)
    for prefix in _apart(prefixes):
        for page, read_at in _pages(source, prefix, clock):
            porter.carry(page, read_at)
    return porter.report()


def _apart(prefixes: Iterable[str]) -> list[str]:
    """The prefixes without those that others cover, so that no entry is seen twice; else InvalidInput."""
    given = [] if isinstance(prefixes, str | bytes) else list(prefixes)
    if not given or not all(isinstance(prefix, str) for prefix in given):
        raise InvalidInput(f"prefixes must be a list of str such as ['mark/', 'claim/'], not {prefixes!r:.80}")
    return [p for p in sorted(set(given)) if not any(p != other and p.startswith(other) for other in given)]


def _pages(source: Store, prefix: str, clock: Callable[[], float]) -> Iterator[tuple[list[Entry], float]]:
    """The source's entries, a page at a time, each with the moment before it was asked for."""

    def look() -> tuple[list[Entry], float]:
        asked_at = clock()
        return source.scan(prefix, after, limit), asked_at

    after, limit = "", FIRST_PAGE
    while True:
        page, asked_at = _patiently(look)
        if not page:
            return
        yield page, asked_at
        after = page[-1].key
        mean = sum(map(_bytes, page)) // len(page)
        limit = max(1, min(MOST_PER_PAGE, PAGE_BYTES // mean))


def _patiently(ask: Callable[[], T]) -> T:
    """What `ask` returns, asked again while the store is away; StoreUnavailable after PATIENCE."""
    patience = Patience()
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if not patience.lasts():
                raise


class Patience:
    """Pauses between tries, until PATIENCE is over."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + PATIENCE
        self._tries = 0

    def lasts(self) -> bool:
        """True, after a pause, if it is worth another try."""
        if time.monotonic() >= self._ends:
            return False
        time.sleep(pause(self._tries, random.random()))
        self._tries += 1
        return True


def _bytes(entry: Entry) -> int:
    return ENTRY_BYTES + len(entry.value or b"")


def _batches(cargo: Iterable[Cargo]) -> Iterator[list[Cargo]]:
    """Portions that a store takes in one batch."""
    batch, weight = list[Cargo](), 0
    for piece in cargo:
        if batch and (len(batch) == MAX_BATCH or weight + _bytes(piece.entry) > MAX_BATCH_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append(piece)
        weight += _bytes(piece.entry)
    if batch:
        yield batch


class Porter:
    """Brings pages of entries into the target and keeps count."""

    def __init__(self, target: Store, tell: OnProgress | None, dry_run: bool, clock: Callable[[], float]) -> None:
        self._target = target
        self._tell = tell
        self._dry_run = dry_run
        self._clock = clock
        self._began = time.monotonic()
        self._fates = dict.fromkeys(Fate, 0)
        self._left_behind: list[LeftBehind] = []
        self._failures: list[Failure] = []

    def carry(self, page: list[Entry], asked_at: float) -> None:
        """Brings what can be brought, in the order in which it came to be: an item that waited longer goes first."""
        moving = list[Cargo]()
        for entry in sorted(page, key=lambda entry: entry.fence):
            if cargo_of.stays(entry):
                self._leave(entry)
            else:
                moving.append(cargo_of.load(entry, asked_at))
        for batch in _batches(moving):
            now = self._clock()
            live = [piece for piece in batch if not cargo_of.is_over(piece, now)]
            self._fates[Fate.EXPIRED] += len(batch) - len(live)
            if live:
                self._bring(live)
            self._report_progress()
        if not moving:
            self._report_progress()

    def report(self) -> CopyReport:
        return CopyReport(self._progress(), tuple(self._left_behind), tuple(self._failures), self._dry_run)

    def _bring(self, batch: list[Cargo]) -> None:
        if self._dry_run:
            for piece, reply in zip(batch, self._ask(batch, cargo_of.look), strict=True):
                self._settle(piece, cargo_of.after_look(piece, reply))
            return
        prepared = list[Cargo]()
        for piece, reply in zip(batch, self._ask(batch, cargo_of.first), strict=True):
            outcome = cargo_of.after_first(piece, reply)
            if outcome is None:
                prepared.append(piece)
            else:
                self._settle(piece, outcome)
        if prepared:
            for piece, reply in zip(prepared, self._ask(prepared, cargo_of.second), strict=True):
                self._settle(piece, cargo_of.after_second(piece, reply))

    def _ask(self, batch: list[Cargo], op_for: Callable[[Cargo, float], Op]) -> list[Reply | StoreError]:
        """The target's replies. What got none is repeated with the time that is then left; StoreUnavailable if
        nothing of the batch was answered while PATIENCE lasted."""
        replies: list[Reply | StoreError] = [None] * len(batch)
        waiting, patience = list(range(len(batch))), Patience()
        while True:
            now = self._clock()
            answers = self._try([op_for(batch[place], now) for place in waiting])
            for place, answer in zip(waiting, answers, strict=True):
                replies[place] = answer
            waiting = [place for place in waiting if isinstance(replies[place], StoreUnavailable)]
            if not waiting:
                return replies
            if not patience.lasts():
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
        except (StoreError, InvalidInput) as error:  # invalid: an entry that a version before had let in
            if len(ops) == 1:
                return [error if isinstance(error, StoreError) else StoreFailed(str(error), key=error.key)]
            return [self._try([op])[0] for op in ops]  # one op may have spoiled it for all

    def _leave(self, entry: Entry) -> None:
        self._fates[Fate.LEFT_BEHIND] += 1
        if len(self._left_behind) < MOST_LISTED:
            self._left_behind.append(LeftBehind(entry.key, entry.state, describe(entry.info), entry.left))

    def _settle(self, piece: Cargo, outcome: Fate | str) -> None:
        if isinstance(outcome, Fate):
            self._fates[outcome] += 1
            return
        self._fates[Fate.FAILED] += 1
        if len(self._failures) < MOST_LISTED:
            self._failures.append(Failure(piece.entry.key, outcome))

    def _report_progress(self) -> None:
        if self._tell is not None:
            self._tell(self._progress())

    def _progress(self) -> Progress:
        counts = {fate.name.lower(): count for fate, count in self._fates.items()}
        return Progress(seen=sum(counts.values()), elapsed=time.monotonic() - self._began, **counts)
