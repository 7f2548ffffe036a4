"""Where the data lie if nothing is said: in a file, beside what the embedded store has."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

NAME = "data.db"
MEMORY = ":memory:"  # what SQLite calls a database that is gone when it is closed


def beside(store_url: str) -> str:
    """The URL of the database that goes with this store: beside its file, in memory as it is, else in the user's data
    folder, which is made if need be. Services on several hosts need one that they share, and must name it."""
    parts = urlsplit(store_url)
    if parts.scheme == "memory":
        return f"sqlite:///{MEMORY}"
    if parts.scheme == "sqlite":
        return _url(Path(os.path.abspath(unquote(parts.path[1:]))).parent)
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "solely"
    folder.mkdir(parents=True, exist_ok=True)
    return _url(folder)


def _url(folder: Path) -> str:
    return f"sqlite:///{quote(str(folder / NAME))}"
