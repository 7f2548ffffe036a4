"""A list of ops as the statements that perform it, and their results as its answers: for threads and asyncio alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...ops import MAX_BATCH, Mark, Op, Release
from .. import Answers
from ..batches import exchange, run_of_marks
from . import codec
from .codec import Values

# Marks in one statement: enough to share one commit, few enough for the server's table of locks (6,400 by default).
MOST_MARKS = 1_000
FEWEST_MARKS = 8  # from here on a run of marks is worth a statement of its own
# Seconds that an op of a batch waits for a busy key while strangers wait for the batch: about what a commit to a disk
# takes, which is what keeps a key busy; a caller's own transaction takes longer, and then the driver tries again.
LINGER = 0.005
# Of the timeout: how long an op waits for a busy key if nobody else waits for it; the server answers in any case
# before the statement's own time is over.
PATIENCE = 0.7

SWEEP_EVERY = 256  # ops: one short statement more per so many costs each of them about a µs
SWEEP_ROWS = 2 * SWEEP_EVERY  # so that the sweep goes round faster than ops can add rows

_DIGITS: dict[int, codec.ReplyRow] = {ord("1"): (None, 1), ord("0"): (None, 0), ord("b"): ("b",)}  # of mark_many


def parts(ops: Sequence[Op]) -> Iterator[Sequence[Op]]:
    """The ops in the same order, in portions of one statement each."""
    start = 0
    while start < len(ops):
        end = min(run_of_marks(ops, start), start + MOST_MARKS)
        if end - start < FEWEST_MARKS:
            end = start + 1
            while end < len(ops) and end - start < MAX_BATCH and not _begins_run(ops, end):
                end += 1
        yield ops[start:end] if end - start < len(ops) else ops
        start = end


def _begins_run(ops: Sequence[Op], at: int) -> bool:
    last = at + FEWEST_MARKS - 1
    return type(ops[at]) is Mark and last < len(ops) and type(ops[last]) is Mark and run_of_marks(ops, at) > last


def statement(part: Sequence[Op], clock: int | None) -> tuple[str, Values]:
    """What performs one portion; an op whose key is busy is answered so."""
    if len(part) == 1:
        return codec.lone(part[0], clock, None)
    if run_of_marks(part, 0) == len(part):
        return codec.marks(part, clock)  # type: ignore[arg-type]
    plain = exchange(part)
    return codec.exchanging(plain, clock) if plain is not None else codec.batch(part, clock)


def answers(part: Sequence[Op], result: Any, busy: list[int]) -> Answers:
    """One reply per op; the places of those that were not performed are added to `busy`, with None as their reply."""
    if len(part) == 1:
        rows = [codec.decode_lone(part[0], result)]
    elif result.nfields == 1 and type(part[0]) is Mark:  # a run of them: a batch has more columns
        rows = [_DIGITS[digit] for digit in result.get_value(0, 0)]
    elif result.nfields == 1:
        rows = codec.handed_over(part, result)
    elif result.nfields == 3:
        rows = codec.exchanged(part, result)
    else:
        rows = [codec.decode(result, place) for place in range(len(part))]
    busy += [place for place, row in enumerate(rows) if row[0] == "b"]
    return [None if row[0] == "b" else codec.reply(op, row) for op, row in zip(part, rows, strict=True)]


def can_wait(ops: Sequence[Op], busy: Sequence[int]) -> bool:
    """True if nobody is harmed when this batch waits for its busy keys: it has one owner, or only releases, or all that
    is busy is one key, and who asked for the rest wants that key too.

    A batch of strangers that all want one key waits for it as each of them would alone. A caller that releases several
    keys has an owner for each; and a released key is free, however late its former holder gets the answer.
    """
    owners = {owner for op in ops if (owner := getattr(op, "owner", None)) is not None}
    if len(owners) <= 1 or all(type(op) is Release for op in ops):
        return True
    waiting = {getattr(ops[place], "owner", None) for place in busy}
    return owners <= waiting and len({codec.lock_name(ops[place]) for place in busy}) == 1


class SweepCursor:
    """When to delete what no longer matters, and where to go on: a stretch of keys each time. Never needed for a right
    answer."""

    def __init__(self) -> None:
        self._ops = 0
        self.after = ""

    def due(self, ops: int) -> bool:
        """Counts these ops; True once in SWEEP_EVERY."""
        self._ops += ops
        if self._ops < SWEEP_EVERY:
            return False
        self._ops = 0
        return True
