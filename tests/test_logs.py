"""The log of the library: a line says all that it knows, also where the application formats only the message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import solely

ROOT = Path(solely.__file__).parent


def _calls() -> Iterator[tuple[str, str, list[str]]]:
    """Each call of a logger with `extra=` of known names: where, its text, and the names of its facts."""
    for path in sorted(ROOT.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            values: dict[str, list[ast.expr]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    values.setdefault(node.targets[0].id, []).append(node.value)
            for node in ast.walk(function):
                given = [word.value for word in getattr(node, "keywords", ()) if word.arg == "extra"]
                if given and isinstance(node, ast.Call):
                    assigned = [each for arg in node.args for each in values.get(ast.unparse(arg), [])]
                    text = " ".join(map(ast.unparse, [*node.args, *assigned]))
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text, _names(given[0], values)


def _names(facts: ast.expr, values: dict[str, list[ast.expr]]) -> list[str]:
    """The literal names of these facts, or of what was assigned to this variable."""
    literals = [facts] if isinstance(facts, ast.Dict) else values.get(ast.unparse(facts), [])
    keys = [key for each in literals if isinstance(each, ast.Dict) for key in each.keys]
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


def test_the_message_has_every_fact_that_the_record_has() -> None:
    calls = list(_calls())
    assert len(calls) > 30, "the library logs more than that: this test no longer finds the calls"
    missing = [f"{where}: {name}" for where, text, names in calls for name in names if f"%({name})" not in text]
    assert not missing, "\n".join(missing)
