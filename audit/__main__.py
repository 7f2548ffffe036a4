"""python -m audit [LOCK FILE]: exit code 1 if bandit finds something in src/, or if a pinned dependency has a known
vulnerability. Says in one line if the advisories could not be fetched: that is neither a failure nor a pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .report import read_report, unreachable

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
BANDIT = (str(BIN / "bandit"), "--quiet", "--configfile", "audit/bandit.yaml", "--recursive", "src")
# The lock file names every dependency with its hash, so that nothing needs to be resolved or downloaded.
PIP_AUDIT = (str(BIN / "pip-audit"), "--disable-pip", "--require-hashes", "--progress-spinner", "off", "-f", "json")
PATIENCE = 120.0  # seconds for all advisories: an index that is far away answers 150 requests within half of it


def known_vulnerabilities(command: list[str]) -> tuple[int, str]:
    """The exit code and the text for what this pip-audit command reports."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return 0, unreachable(f"no answer within {PATIENCE:.0f} s")
    return read_report(done.stdout, done.stderr)


def main() -> int:
    """Runs both at once."""
    bandit = subprocess.Popen(BANDIT, cwd=ROOT)
    code, text = known_vulnerabilities([*PIP_AUDIT, "--requirement", *(sys.argv[1:] or ["requirements.lock"])])
    sys.stdout.write(f"{text}\n")
    found = bandit.wait()
    if not found:
        sys.stdout.write("bandit: nothing found in src/\n")
    return 1 if found or code else 0


if __name__ == "__main__":
    sys.exit(main())
