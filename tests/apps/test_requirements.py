"""The page of each application ends with a table: each requirement of its document, and the tests that show it."""

from __future__ import annotations

import pytest

from bench.__main__ import CASES
from solely.apps import APPS
from tests import evidence

TITLE = "## Requirements and their tests"
GOALS = {goal.key for case in CASES for goal in case.goals}


def rows(app: str) -> list[evidence.Row]:
    """The requirements of the last section, each with what shows it."""
    page = (evidence.ROOT / "docs" / f"{app}.md").read_text()
    last = page[page.rindex("\n## ") + 1 :]
    assert last.startswith(TITLE), f"docs/{app}.md must end with the section {TITLE!r}"
    assert "| requirement | shown by |\n" in last
    return evidence.rows(last)


@pytest.mark.parametrize("app", APPS)
def test_every_requirement_names_tests_that_exist(app: str) -> None:
    found = rows(app)
    assert len(found) >= 10, "a document has more requirements than that"
    for requirement, names in found:
        assert names, f"{requirement}: name the tests that show it"
        for name in names:
            known = evidence.has_test(name) or name in GOALS
            assert known, f"{requirement}: there is neither a test nor a benchmark {name}"


@pytest.mark.parametrize("app", APPS)
def test_every_requirement_is_listed_once(app: str) -> None:
    requirements = [requirement for requirement, _ in rows(app)]
    assert len(set(requirements)) == len(requirements)
