"""Files of a package: any text, and named SQL statements, in blocks that begin with `-- name: …`."""

from __future__ import annotations

import re
from pkgutil import get_data

_NAME = re.compile(r"^-- name: (\w+(?: \(\w+\))?)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def read_text(package: str, file: str) -> str:
    """The text of a file of the package. Not by importlib.resources, which takes long to import."""
    data = get_data(package, file)
    assert data is not None, f"{package} was imported by a loader that reads no files"
    return data.decode()


def read_statements(package: str, file: str) -> dict[str, str]:
    """The statements of the file by name. Lines of comments are left out, so that caches have short keys."""
    _, *parts = _NAME.split(read_text(package, file))
    return {name: _COMMENT.sub("", text).strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
