"""What was finished, and for how long that stands: one outcome at a time, which nobody can overwrite or run again."""

from __future__ import annotations

from ...model import Entry, State
from ...ops import Acquire, Finish, Read
from ...stores.transitions import us
from .history import History


class FinishedOutcome:
    """What one owner finished. `ended` is cleared or lost (with all data), or empty: then it stands until its time."""

    __slots__ = ("ended", "fingerprint", "owner", "since", "until", "value")

    def __init__(self, op: Finish, fingerprint: str, now: int) -> None:
        self.owner, self.value, self.fingerprint = op.owner, op.value, fingerprint
        self.since, self.until = now, now + us(op.keep)
        self.ended = ""

    def end(self, how: str, now: int) -> None:
        """It was taken away."""
        self.ended, self.until = how, now


class Outcomes:
    """Checks every answer of the store about what is finished."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.of: dict[str, list[FinishedOutcome]] = {}  # by key, in order

    def standing(self, key: str, now: int) -> FinishedOutcome | None:
        """What is finished under this key now."""
        last = self.of[key][-1] if key in self.of else None
        return last if last is not None and now < last.until else None

    def add(self, op: Finish, fingerprint: str, now: int) -> None:
        """An outcome that stands from now on."""
        self.of.setdefault(op.key, []).append(FinishedOutcome(op, fingerprint, now))

    def lost_everything(self, now: int) -> None:
        """The store came back empty."""
        for key in self.of:
            outcome = self.standing(key, now)
            if outcome is not None:
                outcome.end("lost", now)

    def must_be_over(self, op: Acquire, now: int) -> None:
        """The key was granted: then nothing stands."""
        outcome = self.standing(op.key, now)
        if outcome is not None:
            self.history.violated("no lost outcome", f"{op.key} was granted to {op.owner}: {outcome.owner} finished it")

    def repeated(self, op: Finish, entry: Entry, now: int) -> None:
        """A finish that may change nothing was answered: it shows what stands, which is its own if repeated."""
        outcome = self.standing(op.key, now)
        if (entry.owner == op.owner) != (outcome is not None and outcome.owner == op.owner):
            self.history.violated("fenced publish", f"{op} was answered {entry}: that owner had lost the key")
        self.answered(op, entry, now)

    def answered(self, op: Acquire | Read | Finish, entry: Entry, now: int) -> None:
        """The answer shows what stands, to whoever asks for it."""
        outcome = self.standing(op.key, now)
        if (entry.state is State.DONE) != (outcome is not None):
            self.history.violated("one outcome", f"{op} was answered {entry}; what stands is otherwise")
        elif outcome is not None and (type(op) is not Acquire or op.value):
            self._must_show(outcome, op, entry)

    def _must_show(self, outcome: FinishedOutcome, op: Acquire | Read | Finish, entry: Entry) -> None:
        if (entry.value, entry.fingerprint) != (outcome.value, outcome.fingerprint):
            self.history.violated("one outcome", f"{op} was answered {entry}, not {outcome.value!r}")
