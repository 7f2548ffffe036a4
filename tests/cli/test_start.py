"""What a command imports: it starts as quickly as what it uses. Counted in modules: time depends on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "asyncio",
    "ssl",
    "email",
    "http",
    "tempfile",
    "zoneinfo",
    "importlib.resources",
    "rich",
    "redis",
    "hiredis",
    "psycopg",
    "pymongo",
    "sqlite3",
    "msgspec",
    "starlette",
    "uvicorn",
    "solely.service",
)
LIST_MODULES = """
import json, sys
from solely.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(url: str, *words: str) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SOLELY_URL": url}
    told = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, *words], env=environment, capture_output=True, text=True, timeout=50
    )
    code, modules = json.loads(told.stderr.splitlines()[-1])
    assert code == 0, told.stderr
    return {heavy for heavy in HEAVY if any(name == heavy or name.startswith(heavy + ".") for name in modules)}


def by_import(code: str) -> set[str]:
    """The heavy modules, and those of the library, that this code imports."""
    listing = f"import sys; {code}; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run(
        [sys.executable, "-c", listing], env=environment, capture_output=True, text=True, timeout=50, check=True
    )
    modules = told.stdout.split()
    return {*(heavy for heavy in HEAVY if heavy in modules), *(name for name in modules if name.startswith("solely."))}


def test_import_solely_imports_no_other_module() -> None:
    assert by_import("import solely") == set()


def test_a_name_of_solely_imports_its_module_only() -> None:
    assert by_import("from solely import Busy") == {"solely.errors"}


def test_a_client_for_threads_is_imported_without_asyncio() -> None:
    assert not by_import("from solely import Client") & set(HEAVY)


def test_a_client_is_imported_without_the_nouns_that_it_may_not_use() -> None:
    nouns = ("breakers", "claims", "dead_letters", "queues", "reservations", "schedules", "watermarks")
    told = by_import("from solely import Client")
    assert not told & {f"solely.{noun}.{module}" for noun in nouns for module in ("calls", "flow", "handle")}


def test_the_overview_imports_none_of_the_commands() -> None:
    told = by_import("from solely.cli.program import perform; perform(['--help'])")
    assert not told & {"solely.client", "solely.stores", "solely.cli.options", "solely.cli.nouns", "solely.cli.run"}


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("run", "--help"),
        ("locks", "--help"),
        ("audit", "--help"),
        ("alerts", "--help"),
        ("alerts", "expire", "--help"),
    ],
)
def test_help_imports_nothing_that_it_does_not_use(words: tuple[str, ...]) -> None:
    assert imported("redis://127.0.0.1", *words) == set()


def test_a_command_of_an_application_starts_without_the_service() -> None:
    assert imported("memory://", "alerts", "history", "--help") == set()


def test_run_imports_the_driver_of_its_store_and_no_more(tmp_path: Path) -> None:
    assert imported(f"sqlite:///{tmp_path}/s.db", "run", "--lock", "a", "--", "true") == {"sqlite3"}


def test_a_list_that_nobody_looks_at_needs_no_rich(tmp_path: Path) -> None:
    assert imported(f"sqlite:///{tmp_path}/s.db", "locks", "list") == {"sqlite3"}


def test_the_version_names_the_drivers_without_importing_them() -> None:
    assert imported("memory://", "--version") & {"redis", "psycopg", "pymongo", "asyncio", "ssl"} == set()


def test_without_click_it_says_what_to_install(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['click'] = None; from solely.cli import main; main(['--help'])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run([sys.executable, "-c", hide], env=environment, capture_output=True, text=True, timeout=50)
    assert (told.returncode, told.stdout) == (1, "")
    assert "pip install 'solely[cli]'" in told.stderr
