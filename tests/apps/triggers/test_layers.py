"""The layers of the task-trigger API: each imports only those below it."""

from pathlib import Path

import pytest

import solely.apps.triggers
from tests.apps.alerts.test_layers import imported_by, part_of_folder

FOLDER = Path(solely.apps.triggers.__file__).parent
# A folder or module may import those of the rows before its own, and itself.
LAYERS = (
    ("model", "figures", "acts", "batches"),
    ("settings", "parents", "batch_table", "lists"),
    ("table", "uploads", "work"),
    ("buffer", "charts"),
    ("gate", "claim"),
    ("drainer",),
    ("changes",),
    ("pipeline",),
    ("replay",),
    ("runtime",),
    ("api",),
    ("demo", "views"),
    ("pages", "operators"),
    ("app",),
    ("cli",),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py")


def test_every_module_has_its_layer() -> None:
    assert {part_of_folder(FOLDER, path) for path in MODULES} == set(LAYER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_module_imports_a_layer_above_it(path: Path) -> None:
    own = part_of_folder(FOLDER, path)
    wrong = [name for name in imported_by(FOLDER, path) if name != own and LAYER[name] >= LAYER[own]]
    assert not wrong, f"{own} imports {', '.join(wrong)}"
