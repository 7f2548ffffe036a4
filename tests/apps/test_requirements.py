"""The page of each application ends with a table: each requirement of its document, and the tests that show it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.__main__ import CASES
from solely.apps import APPS

ROOT = Path(__file__).parents[2]
TITLE = "## Requirements and their tests"
GOALS = {goal.key for case in CASES for goal in case.goals}


def rows(app: str) -> list[tuple[str, str]]:
    """The requirements of the last section, each with what shows it."""
    page = (ROOT / "docs" / f"{app}.md").read_text()
    last = page[page.rindex("\n## ") + 1 :]
    assert last.startswith(TITLE), f"docs/{app}.md must end with the section {TITLE!r}"
    table = re.findall(r"^\| (.+?) \| (.+?) \|$", last, re.MULTILINE)
    assert table[:1] == [("requirement", "shown by")]
    return table[1:]


def has_test(name: str) -> bool:
    """True if the file, a path below tests/, has a test of this name."""
    file, _, test = name.partition("::")
    path = ROOT / "tests" / file
    return path.is_file() and re.search(rf"^ *(?:async )?def {test}\(", path.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("app", APPS)
def test_every_requirement_names_tests_that_exist(app: str) -> None:
    found = rows(app)
    assert len(found) >= 10, "a document has more requirements than that"
    for requirement, shown in found:
        names = re.findall(r"`(.+?)`", shown)
        assert names, f"{requirement}: name the tests that show it"
        for name in names:
            assert has_test(name) or name in GOALS, f"{requirement}: there is neither a test nor a benchmark {name}"


@pytest.mark.parametrize("app", APPS)
def test_every_requirement_is_listed_once(app: str) -> None:
    requirements = [requirement for requirement, _ in rows(app)]
    assert len(set(requirements)) == len(requirements)
