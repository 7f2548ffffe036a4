"""The user's own files: the default folder, who may read what Solely creates (the user alone), and what it reads."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from .errors import InvalidInput


def data_folder() -> Path:
    """`solely` in XDG_DATA_HOME, or else in ~/.local/share; created for this user alone if it does not exist,
    with the folders above it, as the XDG specification says. InvalidInput if it cannot be, as on a read-only root."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "solely"
    try:
        for each in (*reversed(folder.parents), folder):  # mkdir(parents=True) would make those above as the umask says
            if not each.exists():
                each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        why = f"the default folder of files, {folder}, cannot be created: {error}"
        raise InvalidInput(f"{why}; name a store in SOLELY_URL, the service's database in SOLELY_DATA_URL") from None
    return folder


def create_private(path: str) -> None:
    """Creates an empty file for this user alone, unless there is one, which keeps its mode; an error is left to whoever
    opens the file. SQLite gives a journal the mode of its database.

    The file is not opened for this: to close it would drop the locks that SQLite has on it in this process.
    """
    with suppress(OSError):
        os.mknod(os.path.realpath(path), stat.S_IFREG | 0o600)


MOST_BYTES = 4 * 1024 * 1024  # of a file that a person writes: thousands of jobs, targets or tokens
DEEPEST = 100  # tables and lists within one another: no setting has more than a few
# A key of more parts, `a.a.a`: tomllib needs memory for the square of their number.
_MANY_PARTS = re.compile(rf"""(?<![\w"'.-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""")


def read_text(file: str | Path) -> str:
    """The text of a file that a person has written; OSError or ValueError, with the reason, if it cannot be."""
    with open(file, "rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES // 1024**2} MiB")
    return content.decode()


def read_toml(file: str | Path) -> dict[str, Any]:
    """The contents of a TOML file; OSError or ValueError, with the reason, if it is none."""
    import tomllib  # here, as the library does not need it

    text = read_text(file)
    try:
        content = None if _MANY_PARTS.search(text) else tomllib.loads(text)
    except RecursionError:
        content = None
    if content is None or _is_deep(content):
        raise ValueError(f"its values are nested more than {DEEPEST} deep")
    return content


def _is_deep(content: dict[str, Any]) -> bool:
    """True if it is nested deeper than DEEPEST, found without recursion."""
    level: list[Any] = [content]
    for _ in range(DEEPEST):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inner for each in values]
        if not level:
            return False
    return True
