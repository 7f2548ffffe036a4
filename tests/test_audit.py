"""`scripts/audit`: a known vulnerability fails it, and advisories that were not read never count as a pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audit.__main__ import BANDIT, known_vulnerabilities

ROOT = Path(__file__).parents[1]
CLEAN = {"name": "anyio", "version": "4.16.0", "vulns": []}
SKIPPED = {"name": "click", "skip_reason": "Dependency not found on PyPI and could not be audited: click (8.5.1)"}
VULNERABLE = {"name": "h11", "version": "0.1", "vulns": [{"id": "CVE-2025-43859", "fix_versions": ["0.16.0"]}]}


def audited(*dependencies: dict[str, Any]) -> tuple[int, str]:
    report = json.dumps({"dependencies": dependencies, "fixes": []})
    return known_vulnerabilities([sys.executable, "-c", f"print({report!r})"])


@pytest.mark.parametrize("others", [(), (CLEAN,), (SKIPPED,)])
def test_a_known_vulnerability_fails_the_check(others: tuple[dict[str, Any], ...]) -> None:
    code, text = audited(VULNERABLE, *others)
    assert code == 1
    assert text == "pip-audit: h11 0.1 is vulnerable: CVE-2025-43859 (fixed in 0.16.0)"


def test_a_clean_report_passes() -> None:
    assert audited(CLEAN) == (0, "pip-audit: 0 known vulnerabilities in 1 of 1 dependencies")


def test_what_was_not_audited_is_named() -> None:
    assert audited(CLEAN, SKIPPED) == (
        0, "pip-audit: 0 known vulnerabilities in 1 of 2 dependencies; NOT AUDITED: click"
    )  # fmt: skip


@pytest.mark.parametrize("program", ["print('{}')", "import sys; sys.exit('ConnectionError: no route')", "pass"])
def test_unreachable_advisories_are_one_line_and_no_pass(program: str) -> None:
    code, text = known_vulnerabilities([sys.executable, "-c", program])
    assert code == 0
    assert text.startswith("pip-audit: NOT AUDITED: the advisories are unreachable (")
    assert "\n" not in text
    assert "0 of 1 dependencies were found there" in audited(SKIPPED)[1]


def test_bandit_finds_a_planted_weakness(tmp_path: Path) -> None:
    (tmp_path / "weak.py").write_text("import subprocess\nsubprocess.run(input(), shell=True)\n")
    found = subprocess.run([*BANDIT[:-1], str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert "B602" in found.stdout


def test_every_exclusion_has_its_reason() -> None:
    excluded = re.findall(r"^  - (.*)$", (ROOT / "audit" / "bandit.yaml").read_text(), re.MULTILINE)
    assert excluded
    assert [line for line in excluded if not re.fullmatch(r"B\d{3}  # .{20,}", line)] == []
