"""Where the data lie if nothing is said: in a file, beside what the embedded store has."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote

from ..folder import data_folder
from ..stores import capabilities
from ..urls import split_url

NAME = "data.db"  # in the user's data folder, with a store that is no file
MEMORY = ":memory:"  # what SQLite calls a database that is gone when it is closed


def beside(store_url: str) -> str:
    """The URL of the database that goes with this store: a file beside its own, named after it, so that two stores in
    one folder share nothing; in memory as it is; else a file in the user's data folder, which is made if need be.

    Services on several hosts need one that they share, and must name it.
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
