"""What the store must answer about marks, and what their callers must be told."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...drivers.simulated import SimulatedRun
from ...ops import Clear, Mark, Op, Release, Reply
from ...stores.transitions import us
from .history import History


class LiveMark(NamedTuple):
    """A mark that lives until then."""

    owner: str
    until: int


class MarkChecks:
    """Exactly one first per key and mark; nobody's mark outlives a caller that could not be told of it."""

    def __init__(self, history: History, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.runs = runs
        self.latest: dict[str, LiveMark] = {}
        self._made: set[tuple[str, str]] = set()
        self._gone: set[tuple[str, str]] = set()  # taken back, or forgotten
        self._cleared: set[int] = set()  # fences

    def lost_everything(self) -> None:
        """The store came back empty."""
        self.latest.clear()

    def performed(self, op: Op, reply: Reply, now: int, forgotten: Collection[str]) -> None:
        """The store performed this op on a mark, and answered so."""
        live = self._live(op.key, now)  # type: ignore[union-attr]
        if type(op) is Mark:
            if op.owner not in forgotten:
                self._check(op, reply is True, live)
            if reply is True and live is None:
                self._made.add((op.key, op.owner))
                self.latest[op.key] = LiveMark(op.owner, now + us(op.ttl))
            elif live is not None and op.extend and not self._refused(op, forgotten):
                self.latest[op.key] = live._replace(until=max(live.until, now + us(op.ttl)))
        elif type(op) is Release:
            if live is not None and live.owner == op.owner:
                del self.latest[op.key]
            self._gone.add((op.key, op.owner))
        elif type(op) is Clear and reply is True and op.fence not in self._cleared:
            self._cleared.add(op.fence)
            if live is not None:
                self._gone.add((op.key, live.owner))
                del self.latest[op.key]

    def _refused(self, op: Mark, forgotten: Collection[str]) -> bool:
        """True if the store remembers that this owner may mark nothing any more."""
        return (op.key, op.owner) in self._gone and op.owner not in forgotten

    def _live(self, key: str, now: int) -> LiveMark | None:
        mark = self.latest.get(key)
        return mark if mark is not None and now < mark.until else None

    def _check(self, op: Mark, first: bool, live: LiveMark | None) -> None:
        violated, who = self.history.violated, (op.key, op.owner)
        if first and live is not None and live.owner != op.owner:
            violated("marks", f"{op.owner} is told it is first at {op.key}, as {live.owner} was")
        elif first and live is None:
            run, expired = self.runs[op.owner], who in self._made and who not in self._gone
            # A known limit: a mark shorter than REMEMBER may be made again by a late copy, for the same short time.
            if who in self._gone or (run.over and run.undone and not run.driver.dead and not expired):
                violated("marks", f"a late copy of {op} marked the key for a caller that had left")
        elif not first and live is not None and live.owner == op.owner:
            violated("marks", f"{op.owner} marked {op.key}, and its repeat was told: seen. Nobody does the work")
        elif not first and live is None and who not in self._gone:
            violated("marks", f"{op.key} is not marked, but {op.owner} was told that it is")

    def told(self, key: str, run: SimulatedRun, first: bool, forgotten: Collection[str]) -> None:
        """A caller was told whether it is the first."""
        who = key, run.owner
        if run.owner not in forgotten and who not in self._gone and first != (who in self._made):
            self.history.violated("marks", f"{run.owner} at {key} was told first={first}; the store has it otherwise")

    def failed(self, key: str, run: SimulatedRun, now: int) -> None:
        """A caller got an error instead of an answer: then its mark is taken back, so that the next one is first."""
        live = self._live(key, now)
        if live is not None and live.owner == run.owner and run.undone:
            self.history.violated("marks", f"{run.owner} was told {run.error!r}, but its mark at {key} stays")
