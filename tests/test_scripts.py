"""The scripts of a checkout: each makes what it needs before it runs, so that a fresh machine can begin with any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"
MAKES_IT = ("setup", "lock")  # what makes the environment, and what pins it


@pytest.mark.parametrize("name", sorted(set(os.listdir(SCRIPTS)) - set(MAKES_IT)))
def test_a_script_sets_up_before_it_runs(name: str) -> None:
    script = SCRIPTS / name
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    uses = [number for number, line in enumerate(lines) if ".venv/" in line]
    assert uses, "it runs in the environment of the checkout"
    assert lines.index("scripts/setup") < uses[0]


def test_what_the_peers_need_is_pinned() -> None:
    """scripts/bench and scripts/conformance compare with peers: setup installs them with the rest."""
    root = SCRIPTS.parent
    peers = (root / "pyproject.toml").read_text().partition("\nbench = [")[2].partition("\n]")[0]
    names = [line.split('"')[1] for line in peers.splitlines() if '"' in line]
    pinned = {line.partition("==")[0] for line in (root / "requirements.lock").read_text().splitlines() if "==" in line}
    assert names
    assert set(names) <= pinned
