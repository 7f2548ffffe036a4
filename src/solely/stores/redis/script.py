"""The script that performs a batch: `perform.lua` with its parts in their places, and its SHA-1."""

from __future__ import annotations

import re
from hashlib import sha1
from importlib.resources import files


def _read(name: str) -> str:
    source = files(__package__).joinpath(name).read_text("utf-8")
    return re.sub(r"^ *--@ (\S+)$", lambda part: _read(part[1]), source, flags=re.MULTILINE)


PERFORM = _read("perform.lua").encode()
SHA = sha1(PERFORM, usedforsecurity=False).hexdigest().encode()
