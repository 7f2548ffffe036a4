"""The stub forges, for one test or for a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.repos.forge_server import Forges, forges


@pytest.fixture
def stub_forges(tmp_path: Path) -> Iterator[Forges]:
    """A GitLab, a GitHub and a Jira of this test."""
    with forges(tmp_path / "repositories") as it:
        yield it
