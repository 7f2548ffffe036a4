"""Named SQL statements: a `.sql` file of a package, in blocks that begin with `-- name: …`."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+(?: \(\w+\))?)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def read_statements(package: str, file: str) -> dict[str, str]:
    """The statements of the file by name. Lines of comments are left out, so that caches have short keys."""
    _, *parts = _NAME.split((files(package) / file).read_text(encoding="utf-8"))
    return {name: _COMMENT.sub("", text).strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
