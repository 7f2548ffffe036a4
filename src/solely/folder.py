"""The folder in which the user's own files lie, where nothing else is said."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """`solely` in XDG_DATA_HOME, or else in ~/.local/share; it is made if need be."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "solely"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
