"""Reads the report of pip-audit, which also says "No known vulnerabilities found" if it could look up none."""

from __future__ import annotations

import json
from typing import Any

_NAMED = 5  # dependencies that are named in a line; the rest is counted


def unreachable(why: str) -> str:
    """The line for advisories that could not be fetched."""
    return f"pip-audit: NOT AUDITED: the advisories are unreachable ({why}); run scripts/audit where they are"


def read_report(printed: str, errors: str) -> tuple[int, str]:
    """The exit code, 1 if a dependency has a known vulnerability, and the text to print."""
    try:
        dependencies: list[dict[str, Any]] = json.loads(printed)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return 0, unreachable((errors.strip() or printed.strip() or "no report").splitlines()[-1][:200])
    vulnerable = [each for each in dependencies if each.get("vulns")]
    skipped = [each["name"] for each in dependencies if "skip_reason" in each]
    audited = len(dependencies) - len(skipped)
    if vulnerable:
        return 1, "\n".join(_finding(each) for each in vulnerable)
    if not audited:
        return 0, unreachable(f"0 of {len(dependencies)} dependencies were found there")
    text = f"pip-audit: 0 known vulnerabilities in {audited} of {len(dependencies)} dependencies"
    return 0, text + (f"; NOT AUDITED: {_names(skipped)}" if skipped else "")


def _finding(dependency: dict[str, Any]) -> str:
    known = ", ".join(f"{each['id']} (fixed in {' or '.join(each['fix_versions']) or 'no version yet'})"
                      for each in dependency["vulns"])  # fmt: skip
    return f"pip-audit: {dependency['name']} {dependency['version']} is vulnerable: {known}"


def _names(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
