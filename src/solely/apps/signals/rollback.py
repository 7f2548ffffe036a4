"""The rollback to the old path: the flag is off, dead letters are exported, what the wrapper stored is removed, and
consumption is verified."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ... import Busy, Client, InvalidInput, Letter
from .deciding import SignalGeneratorBase
from .model import LETTERS
from .places import LETTER_COLLECTION, LOCK_COLLECTION, letters_url, locks_url

PREFIXES = ("signal:", "id:signal:")  # of the locks and marks of the wrapper
PAGE = 1_000  # keys in one listing
_WHY = "rollback of the idempotent signal generator"


@dataclass(frozen=True)
class RolledBack:
    """What a rollback did: dead letters in the file, collections or entries that were removed, the next signal."""

    exported: int
    removed: tuple[str, ...]
    next: Any


def roll_back(
    url: str,
    *,
    export: Path,
    get_next: Callable[[], Any],
    generators: Iterable[SignalGeneratorBase] = (),
) -> RolledBack:
    """Returns to the old path and says what was done; raises Busy, with nothing removed, while a group is locked.

    Switches the flag of the generators of this process off; those of others must be off before. Dead letters are
    written to the new file `export`, one JSON object per line, before anything is removed. `get_next` is the
    consumer's own way to read: what it raises is raised.
    """
    for generator in generators:
        generator.use_idempotent_signals = False
    with Client(locks_url(url)) as once, Client(letters_url(url)) as letters:
        held = once.locks(PREFIXES[0], limit=1)
        if held:
            why = "set use_idempotent_signals to False in all processes, and wait until no group is locked"
            raise Busy(f"{held[0].key!r} is locked by {held[0].holder or 'a process'}: {why}", key=held[0].key)
        exported = export_letters(letters, export)
        removed = _drop(url) if _in_own_collections(url) else _remove(once, letters)
    return RolledBack(exported, removed, get_next())


def export_letters(letters: Client, file: Path) -> int:
    """Writes all dead letters of the signals to the new file and returns their number; InvalidInput if it exists."""
    found = letters.dead_letters(LETTERS).list(limit=10**6)
    try:
        with file.open("x") as lines:
            lines.writelines(letter_line(letter) for letter in found)
    except FileExistsError:
        raise InvalidInput(f"{file} exists: name a new file, so that no earlier export is lost") from None
    return len(found)


def letter_line(letter: Letter) -> str:
    """The letter as one line of JSON."""
    return json.dumps(asdict(letter), default=str) + "\n"


def _in_own_collections(url: str) -> bool:
    return locks_url(url) != letters_url(url)


def database_of(url: str) -> str:
    """The name of the database in a mongodb:// URL, as the store reads it."""
    return unquote(urlsplit(url).path.strip("/")) or "solely"


def _drop(url: str) -> tuple[str, ...]:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](url) as client:
        database = client[database_of(url)]
        for name in (LOCK_COLLECTION, LETTER_COLLECTION):
            database.drop_collection(name)
    return LOCK_COLLECTION, LETTER_COLLECTION


def _remove(once: Client, letters: Client) -> tuple[str, ...]:
    """Removes the entries of the wrapper from a store that others may use, too."""
    removed = [f"{letters.dead_letters(LETTERS).purge(all=True, reason=_WHY)} dead letters"]
    for prefix in PREFIXES:
        after = ""
        while page := once.marks(prefix, after=after, limit=PAGE):
            for mark in page:
                once.forget(mark.key)
            removed.append(f"{len(page)} marks")
            after = page[-1].key
    return tuple(removed)
