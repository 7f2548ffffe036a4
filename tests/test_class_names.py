"""One class name has one meaning in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import solely

ROOT = Path(solely.__file__).parent

# Names that several classes have, and why that confuses nobody.
TOLERATED = {
    "Client": "the library's, and that of a running service's API: both are what a caller opens",
    "IdempotencyMiddleware": "the same middleware, for ASGI and for WSGI",
    "Limited": "an error that a caller gets, and the event of the same moment",
    "TimedOut": "an error that a caller gets, and the event of the same moment",
    "_Run": "private to the two drivers: what a flow reads, on threads and in asyncio",
}


def _defined() -> dict[str, list[str]]:
    """The modules that define a class of each name, on any level."""
    found = defaultdict[str, list[str]](list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_classes_have_the_same_name() -> None:
    several = {name: places for name, places in _defined().items() if len(places) > 1}
    assert several.keys() == TOLERATED.keys(), {name: several.get(name) for name in several.keys() ^ TOLERATED.keys()}
    assert all(len(places) == 2 for places in several.values())
