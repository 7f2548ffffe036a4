"""Commands: notes that begin with the word of a command."""

from __future__ import annotations

from typing import NamedTuple

from ..model import MARKER


class CommandRule(NamedTuple):
    """Which notes are commands: those that begin with `word`, by one of `authors`, or by anybody if there are none."""

    word: str
    authors: frozenset[str]

    def refusal(self, text: str, author: str) -> str:
        """Why the note is not a command for us; "" if it is one."""
        if text.split(None, 1)[:1] != [self.word]:
            return f"the note does not begin with {self.word}"
        if MARKER in text:
            return "the note is one of ours"
        if self.authors and author not in self.authors:
            return "the author may not give commands"
        return ""
