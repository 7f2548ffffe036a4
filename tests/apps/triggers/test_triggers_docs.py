"""The page on triggers says what is: its settings, figures, endpoints and log lines."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from solely.apps.triggers.app import TriggersApp
from solely.apps.triggers.figures import FIGURES
from solely.apps.triggers.settings import TriggersSettings
from solely.service.service import Service
from solely.service.settings import load
from tests.service.serving import settings

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs/triggers.md").read_text()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src/solely/apps/triggers").rglob("*.py"))


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_setting_is_documented() -> None:
    text = section("Settings")
    for field in msgspec.structs.fields(TriggersSettings):
        assert re.search(rf"^\|[^|]*`{field.name}`", text, re.MULTILINE), field.name


def test_the_settings_that_are_shown_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "solely.toml"
    (shown,) = re.findall(r"^```toml\n(.*?)^```", section("Settings"), re.MULTILINE | re.DOTALL)
    file.write_text(shown)
    read = load(file, environ={}, flags={"url": "memory://"}).settings.section("triggers")
    assert (read.environments["shop"], read.buffer) == ("production", "sql")


def test_every_figure_is_documented() -> None:
    text = section("Figures and log lines").replace("`…_", "`solely_mollifier_idempotency_claim_")
    for figure in FIGURES:
        assert f"`{figure.name}" in text, figure.name


def test_every_log_line_that_is_documented_exists() -> None:
    lines = re.findall(r"^\| (`.+?) \| ", section("Figures and log lines").split("| log line |")[1], re.MULTILINE)
    names = [name for line in lines for name in re.findall(r"`(.+?)`", line)]
    assert len(names) == 8
    for name in names:
        assert f'"{name}"' in SOURCE, name


def test_every_endpoint_that_is_documented_exists() -> None:
    app = TriggersApp(Service(settings()), TriggersSettings())
    routes = {f"{route.method} {route.shown_path}" for route in app.routes()}
    shown = re.findall(r"`((?:GET|POST|PUT) /\S+)`", section("The API"))
    assert len(shown) >= 10
    assert set(shown) <= routes
