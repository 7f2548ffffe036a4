"""The public names of `solely`: imported at their first use, and the same for people, programs and type checkers."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import solely


def _for_type_checkers() -> dict[str, str]:
    """Name → module, of the imports under `if TYPE_CHECKING`."""
    tree = ast.parse(Path(solely.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def test_programs_and_type_checkers_see_the_same_names() -> None:
    at_run_time = {name: module for module, names in solely._EXPORTS.items() for name in names}
    assert at_run_time == _for_type_checkers()
    assert sorted(at_run_time) == sorted(solely.__all__)


@pytest.mark.parametrize("name", solely.__all__)
def test_every_name_is_what_its_module_defines(name: str) -> None:
    module = _for_type_checkers()[name]
    assert getattr(solely, name) is getattr(import_module(f"solely.{module}"), name)
    assert name in dir(solely)


def test_an_unknown_name_is_an_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'solely' has no attribute 'Nonsense'"):
        solely.Nonsense  # type: ignore[attr-defined]  # noqa: B018
