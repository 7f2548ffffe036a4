"""The rooms of the alert receiver: each stands on those before it, and none looks up."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import solely.apps.alerts

FOLDER = Path(solely.apps.alerts.__file__).parent
# Each may import those of the rows before its own, and itself.
LAYERS = (
    ("model", "figures"),
    ("publishers",),
    ("settings",),
    ("records",),
    ("worker",),
    ("deciding",),
    ("telling",),
    ("receiver",),
    ("operating", "demo"),
    ("inputs", "pages"),
    ("app", "cli"),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py")


def room_of(path: Path) -> str:
    """The room of this module, or the module itself if it is in none."""
    return path.relative_to(FOLDER).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """The rooms that this module imports when it runs."""
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    depth = len(path.relative_to(FOLDER).parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == depth and node not in for_types:
            yield from [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]


def test_every_room_has_its_place() -> None:
    assert {room_of(path) for path in MODULES} == set(LAYER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_room_imports_one_above_it(path: Path) -> None:
    own = room_of(path)
    wrong = [name for name in imported(path) if name != own and LAYER[name] >= LAYER[own]]
    assert not wrong, f"{own} imports {', '.join(wrong)}"
