"""The layers of the alert receiver: each imports only those below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import solely.apps.alerts

FOLDER = Path(solely.apps.alerts.__file__).parent
# A folder or module may import those of the rows before its own, and itself.
LAYERS = (
    ("model", "figures", "decision", "acts"),
    ("messages", "charts", "distinctions"),
    ("publishers",),
    ("settings",),
    ("history", "worker", "windows"),
    ("reports",),
    ("suppression",),
    ("notifications",),
    ("receiver",),
    ("runtime", "demo"),
    ("api",),
    ("inputs", "pages"),
    ("app",),
    ("cli",),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py")


def part_of_folder(folder: Path, path: Path) -> str:
    """The folder of this module inside of the application's, or the module itself if it is in none."""
    return path.relative_to(folder).parts[0].removesuffix(".py")


def imported_by(folder: Path, path: Path) -> Iterator[str]:
    """The folders and modules that this module imports, also for types and inside of functions."""
    depth = len(path.relative_to(folder).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield from [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]


def test_every_module_has_its_layer() -> None:
    assert {part_of_folder(FOLDER, path) for path in MODULES} == set(LAYER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_module_imports_a_layer_above_it(path: Path) -> None:
    own = part_of_folder(FOLDER, path)
    wrong = [name for name in imported_by(FOLDER, path) if name != own and LAYER[name] >= LAYER[own]]
    assert not wrong, f"{own} imports {', '.join(wrong)}"
