"""The default database of applications: a file beside that of the embedded store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote

from ..folder import data_folder
from ..stores import capabilities
from ..urls import split_url

NAME = "data.db"  # in the user's data folder, for a store that is not a file
MEMORY = ":memory:"  # SQLite's name of a database in memory


def beside(store_url: str) -> str:
    """The URL of the default database for this store: for a SQLite store, a file beside its own and named after it, so
    that two stores in one folder share nothing; for a memory store, in memory; else a file in the user's data folder,
    which is created if necessary.

    Services on several hosts need a database that they share, and must configure it.
    """
    store = capabilities(store_url)
    if not store.shared:
        return f"sqlite:///{MEMORY}"
    if store.embedded_file:
        file = Path(os.path.abspath(unquote(split_url(store_url).path[1:])))
        return _url(file.parent / f"{file.stem}-data{file.suffix or '.db'}")
    return _url(data_folder() / NAME)


def _url(file: Path) -> str:
    return f"sqlite:///{quote(str(file))}"
