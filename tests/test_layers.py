"""The direction of imports: the drawing in docs/design.md is the table that this test reads.

Each line of the drawing names folders or modules of `solely`. A module imports only from lines below its own and from
its own folder; imports inside functions and for types count as well.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import solely
from solely.kit import MODULES as KIT_MODULES

ROOT = Path(solely.__file__).parent
DESIGN = ROOT.parent.parent / "docs" / "design.md"


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module(path): path for path in ROOT.rglob("*.py")}


def _drawing() -> list[list[str]]:
    """The names on each line of the drawing, the highest line first."""
    drawing = re.search(r"<!-- layers -->\n```\n(.*?)```", DESIGN.read_text(), re.DOTALL)
    assert drawing, "docs/design.md has no drawing behind <!-- layers -->"
    return [line.partition("|")[0].split() for line in drawing[1].splitlines() if "|" in line]


LAYERS = _drawing()
LEVEL = {name: -row for row, names in enumerate(LAYERS) for name in names}


def _unit(module: str) -> str:
    """What the drawing calls the folder or module to which this module belongs."""
    _, *parts = module.split(".")
    if not parts:
        return "solely"
    if parts[0] == "apps" and len(parts) > 1:  # each application; `apps` itself is the table of their names
        return f"apps.{parts[1]}"
    return parts[0]


def _imports(module: str) -> Iterator[str]:
    """The modules of solely that this one imports, wherever the import stands."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "solely")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            if source.partition(".")[0] == "solely":
                for alias in node.names:
                    yield f"{source}.{alias.name}" if f"{source}.{alias.name}" in MODULES else source


def test_the_drawing_names_every_folder_and_module_once() -> None:
    drawn = [name for names in LAYERS for name in names]
    assert sorted(drawn) == sorted({_unit(module) for module in MODULES})


@pytest.mark.parametrize("unit", sorted(LEVEL))
def test_nothing_imports_upwards(unit: str) -> None:
    upwards = [
        f"{module} imports {imported}"
        for module in sorted(MODULES)
        if _unit(module) == unit
        for imported in sorted(set(_imports(module)))
        if _unit(imported) != unit and LEVEL[_unit(imported)] >= LEVEL[unit]
    ]
    assert not upwards, "\n".join(upwards)


def test_no_two_modules_import_each_other_not_even_for_types() -> None:
    graph = {module: {name for name in _imports(module) if name != module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


# -- what an application imports

KIT = ("solely", "solely.kit", "solely.kit.commands")


def _beside_the_kit(module: str) -> list[str]:
    """What this module of an application imports beside the kit and its own package."""
    app = ".".join(module.split(".")[:3])
    return sorted({name for name in _imports(module) if name not in KIT and not f"{name}.".startswith(f"{app}.")})


def test_an_application_imports_the_library_the_kit_and_itself() -> None:
    wrong = {module: _beside_the_kit(module) for module in MODULES if module.startswith("solely.apps.")}
    assert not {module: names for module, names in wrong.items() if names}


@pytest.mark.parametrize("module", [*KIT_MODULES, "commands"])
def test_every_name_of_the_kit_is_listed_once_and_there(module: str) -> None:
    exported = import_module(f"solely.kit.{module}")
    assert len(set(exported.__all__)) == len(exported.__all__)
    for name in exported.__all__:
        assert hasattr(exported, name)


def test_the_kit_lists_what_it_has_by_purpose() -> None:
    kit = import_module("solely.kit")
    listed = set(re.findall(r"\w+", kit.__doc__ or ""))
    exported = [name for module in KIT_MODULES for name in import_module(f"solely.kit.{module}").__all__]
    assert not set(exported) - listed
    assert len(set(exported)) == len(exported)
    assert kit.Journal is import_module("solely.data").Journal
    with pytest.raises(AttributeError, match=r"solely\.kit has no 'Nothing'"):
        _ = kit.Nothing
