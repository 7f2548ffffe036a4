"""The documentation site: links are rewritten and checked, and the pages of the reference follow from the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docsite import staging
from docsite.generated import pages
from docsite.links import broken
from solely import errors, events
from solely.cli.program import COMMANDS
from solely.errors import InvalidInput
from solely.service.settings import Settings
from solely.stores import SCHEMES
from solely.stores.memory import open_blocking as open_memory
from solely.stores.mongo import settings as mongo
from solely.stores.postgres import settings as postgres
from solely.stores.redis import settings as redis
from solely.stores.sqlite import path_of
from tests.service.serving import running

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return pages()


# -- generated pages


def test_the_reference_has_every_command_setting_event_and_error(generated: dict[str, str]) -> None:
    for command in COMMANDS:
        assert f" solely {command}\n" in generated["reference/commands.md"]
    for setting in set(Settings.__struct_fields__) - {"sections"}:
        assert f"| `{setting}` |" in generated["reference/settings.md"]
    for name in re.findall(r"[├└]── (\w+)", str(errors.__doc__)):
        assert f"| `{name}` |" in generated["reference/errors.md"]
    for name in re.findall(r"^class (\w+)\(Event\)", Path(events.__file__).read_text(), re.MULTILINE):
        assert f"| `{name}` |" in generated["reference/events.md"]


def test_the_reference_has_every_metric_and_route_of_a_service(generated: dict[str, str]) -> None:
    with running() as service:
        metrics = set(re.findall(r"^# HELP (\S+)", service.get("/metrics").text, re.MULTILINE))
        document = service.get("/openapi.json").json()
    named = set(re.findall(r"^\| `(\w+)`", generated["reference/metrics.md"], re.MULTILINE))
    assert {name for name in metrics if name.startswith("solely_")} <= named
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"| `{method.upper()} {path}` |" in generated["reference/routes.md"]


def test_the_settings_of_the_service_page_exist() -> None:
    page = (ROOT / "docs/service.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(Settings.__struct_fields__) - {"sections"}


# -- the options of store URLs

URLS = (ROOT / "docs/reference/store-urls.md").read_text()


def options(store: str) -> set[str]:
    """The options in the table of this store."""
    part = URLS.partition(f"\n## {store}\n")[2].partition("\n## ")[0]
    return {name for row in re.findall(r"^\| (`[^|]+`) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def test_every_scheme_is_on_the_page() -> None:
    assert set(re.findall(r"`([a-z+]+)://", URLS.partition("\n## ")[0])) == set(SCHEMES)


def test_the_page_has_the_options_of_every_store() -> None:
    assert options("redis") == {*redis.OPTIONS, *redis._OURS}
    assert options("postgresql") == set(postgres._OURS)
    assert options("mongodb") == {"namespace"}
    assert options("memory") == {"namespace", "max_size"}
    assert options("sqlite") == {"shared"}
    assert options("http") == set()


def test_the_options_of_the_page_are_accepted() -> None:
    redis.parse("redis://localhost?namespace=a&eviction=warn&db=1&ssl_cert_reqs=none")
    found = postgres.parse("postgresql://localhost/app?namespace=a&solely_table=b&migrate=never&pgbouncer=true")
    assert (found.schema, found.table, found.migrates, found.pgbouncer) == ("a", "b", False, True)
    assert mongo.parse("mongodb://localhost/app?namespace=a").collection == "a"
    open_memory("memory://?namespace=a&max_size=10", clock=None, timeout=1.0).close()
    assert path_of("sqlite:///a.db?shared=true").endswith("/a.db")
    with pytest.raises(InvalidInput, match="does not know the option 'prefix'"):
        redis.parse("redis://localhost?prefix=a")


# -- navigation and links


def test_the_navigation_names_each_page_once() -> None:
    """Pages that it does not name are shown under "More"; a page that does not exist yet is left out."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert [next(iter(part)) for part in nav] == ["Solely", "Tutorial", "How-to", "Reference", "Explanation"]
    named = list(staging._targets(nav))
    assert len(named) == len(set(named))
    for folder in ("tutorial", "how-to", "reference", "explanation"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f"{folder}/{page.name}" in named


def test_links_to_files_outside_of_the_docs_lead_to_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PAGES", tmp_path)
    page, source = tmp_path / "how-to" / "deploy.md", ROOT / "docs" / "how-to" / "deploy.md"
    page.parent.mkdir()
    links = "[a](../service.md#settings) [b](../../deploy/compose.yaml) [c](../../deploy) [d](../../CHANGELOG.md) "
    page.write_text(links + "[e](https://example.org)\n```\n[f](../../CHANGELOG.md)\n```\n")
    staging._adjust(page, source)
    assert page.read_text() == (
        "[a](../service.md#settings) [b](../files/deploy/compose.yaml.txt) c [d](../changelog.md) "
        "[e](https://example.org)\n```\n[f](../../CHANGELOG.md)\n```\n"
    )
    assert (tmp_path / "files/deploy/compose.yaml.txt").read_bytes() == (ROOT / "deploy/compose.yaml").read_bytes()


def test_broken_links_and_foreign_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text("<h2 id=here>here</h2>")
    (tmp_path / "a.html").write_text(
        "<a href='b.html#here'>fine</a><a href='https://example.org/'>fine</a><a href='#me' id=me>fine</a>"
        "<a href='b.html#there'>1</a><a href='c.html'>2</a><a href='../up.html'>3</a>"
        "<script src='https://cdn.example.org/x.js'></script>"
    )
    assert list(broken(tmp_path)) == [
        "a.html: b.html#there names an anchor that does not exist",
        "a.html: c.html leads to no file",
        "a.html: ../up.html leads out of the site",
        "a.html loads https://cdn.example.org/x.js from another host",
    ]
