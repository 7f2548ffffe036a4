"""The default folder for the user's own files."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """`solely` in XDG_DATA_HOME, or else in ~/.local/share; created if it does not exist."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "solely"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
