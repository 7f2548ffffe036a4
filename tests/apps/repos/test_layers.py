"""The layers of the application: each imports only those below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import solely.apps.repos

FOLDER = Path(solely.apps.repos.__file__).parent
# A folder or module may import those of the rows before its own, and itself.
LAYERS = (
    ("model", "figures", "acts"),
    ("concurrency", "jobs/settings", "charts"),
    ("redis_state", "settings"),
    ("forges",),
    ("intake", "jira"),
    ("polling",),
    ("jobs",),
    ("runtime",),
    ("webhooks", "api"),
    ("pages", "demo"),
    ("app",),
    ("cli",),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py")


def part_of(path: Path) -> str:
    """The folder of this module, or the module itself if it is in none or has a layer of its own."""
    inside = str(path.relative_to(FOLDER)).removesuffix(".py")
    return inside if inside in LAYER else inside.partition("/")[0]


def imported(path: Path) -> Iterator[str]:
    """The folders and modules that this module imports, also for types and inside of functions."""
    depth = len(path.relative_to(FOLDER).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module.replace(".", "/")] if node.module else [alias.name for alias in node.names]
            yield from (name if name in LAYER else name.partition("/")[0] for name in names)


def test_every_module_has_its_layer() -> None:
    assert {part_of(path) for path in MODULES} <= set(LAYER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_module_imports_a_layer_above_it(path: Path) -> None:
    own = part_of(path)
    wrong = [name for name in imported(path) if name != own and LAYER[name] >= LAYER[own]]
    assert not wrong, f"{own} imports {', '.join(wrong)}"
