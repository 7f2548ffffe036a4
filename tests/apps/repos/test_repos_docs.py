"""The page on repositories says what is: its settings, figures, endpoints and log lines."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from solely.apps.repos.app import ReposApp
from solely.apps.repos.figures import FIGURES
from solely.apps.repos.settings import GitHubSettings, GitLabSettings, JiraSettings, ReposSettings
from solely.service.service import Service
from solely.service.settings import load
from tests.service.serving import settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/repos.md").read_text()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src/solely/apps/repos").rglob("*.py"))


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_setting_is_documented() -> None:
    text = section("Settings")
    for field in msgspec.structs.fields(ReposSettings):
        assert re.search(rf"^\|[^|]*`{field.name}`", text, re.MULTILINE), field.name
    for part, kind in (("gitlab", GitLabSettings), ("github", GitHubSettings), ("jira", JiraSettings)):
        (row,) = re.findall(rf"^\| `{part}` \|(.*)\|$", text, re.MULTILINE)
        for field in msgspec.structs.fields(kind):
            assert f"`{field.name}`" in row, f"{part}.{field.name}"


def test_the_settings_that_are_shown_can_be_read(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "solely.toml"
    file.write_text(next(each for each in blocks if "[repos.jira.projects.PROJ]" in each))
    read = load(file, environ={}, flags={"url": "memory://"}).settings.section("repos")
    assert isinstance(read, ReposSettings)
    assert read.gitlab is not None
    assert (read.gitlab.projects, read.gitlab.poll_every, read.gitlab.lookback) == ((42, "group/project"), 30.0, 120.0)
    assert read.jira is not None
    assert read.jira.projects["PROJ"].project_id == 42


def test_every_figure_is_documented() -> None:
    for figure in FIGURES:
        assert f"`{figure.name}`" in section("Figures and log lines"), figure.name


def test_every_endpoint_is_documented() -> None:
    app = ReposApp(Service(settings()), ReposSettings())
    for route in app.routes():
        if not route.hidden:
            assert route.path in PAGE, route.path


def test_every_documented_log_line_is_written() -> None:
    lines = re.findall(r"^\| (?:debug|info|warning) \| (.*?) \|", section("Figures and log lines"), re.MULTILINE)
    assert len(lines) >= 8
    for line in re.findall(r"`([^`]+)`", " ".join(lines)):
        assert f'"{line}"' in SOURCE or f'"{line}: ' in SOURCE, line
