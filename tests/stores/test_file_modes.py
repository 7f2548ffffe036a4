"""Files of Solely are for their user alone, whatever the umask; what exists keeps its mode."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import solely
from solely.data import open_database
from tests.client_modes import MODES, result_of
from tests.service.serving import until


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield int(request.param)
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The mode of each file there."""
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in sorted(folder.iterdir())}


@pytest.mark.usefixtures("umask")
async def test_a_store_and_its_log_are_for_their_user_alone(
    tmp_path: Path, mode: str, open_client: Callable[..., Any]
) -> None:
    once = open_client(f"sqlite:///{tmp_path}/solely.db")
    await result_of(once.mark("key", ttl=60))
    assert modes(tmp_path) == {"solely.db": 0o600, "solely.db-shm": 0o600, "solely.db-wal": 0o600}


@pytest.mark.usefixtures("umask")
async def test_the_database_of_applications_and_its_log_are_for_their_user_alone(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/data.db")
    await database.run("CREATE TABLE notes (id TEXT)")
    assert modes(tmp_path) == {"data.db": 0o600, "data.db-shm": 0o600, "data.db-wal": 0o600}
    await database.close()


@pytest.mark.usefixtures("umask")
async def test_a_rollback_journal_is_for_its_user_alone(tmp_path: Path) -> None:
    """It is written while the file is no WAL database yet."""
    seen: dict[str, int] = {}
    program = f"""
import sqlite3, sys
from solely.folder import create_private
create_private({str(tmp_path / "a.db")!r})
connection = sqlite3.connect({str(tmp_path / "a.db")!r}, isolation_level=None)
connection.execute("BEGIN")
connection.execute("CREATE TABLE a (b)")
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        seen = modes(tmp_path)
        writer.communicate()
    assert seen == {"a.db": 0o600, "a.db-journal": 0o600}


async def test_a_file_that_exists_keeps_its_mode(tmp_path: Path, mode: str) -> None:
    for name in ("solely.db", "data.db"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o660)
    once = MODES[mode](f"sqlite:///{tmp_path}/solely.db")
    await result_of(once.mark("key", ttl=60))
    database = open_database(f"sqlite:///{tmp_path}/data.db")
    await database.run("CREATE TABLE notes (id TEXT)")
    assert set(modes(tmp_path).values()) == {0o660}
    assert len(modes(tmp_path)) == 6
    await database.close()
    await result_of(once.close())


@pytest.mark.usefixtures("umask")
async def test_the_file_behind_a_link_is_for_its_user_alone(
    tmp_path: Path, mode: str, open_client: Callable[..., Any]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here.db").symlink_to(tmp_path / "elsewhere" / "there.db")
    await result_of(open_client(f"sqlite:///{tmp_path}/here.db").mark("key", ttl=60))
    assert set(modes(tmp_path / "elsewhere").values()) == {0o600}


@pytest.mark.usefixtures("umask")
async def test_the_default_folder_is_for_its_user_alone(
    tmp_path: Path, mode: str, open_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "local" / "share"))
    monkeypatch.delenv("SOLELY_URL", raising=False)
    await result_of(open_client().mark("key", ttl=60))
    assert modes(tmp_path) == {"local": 0o700}
    assert modes(tmp_path / "local") == {"share": 0o700}
    assert modes(tmp_path / "local" / "share") == {"solely": 0o700}
    assert set(modes(tmp_path / "local" / "share" / "solely").values()) == {0o600}


async def test_a_default_folder_that_exists_keeps_its_mode(
    tmp_path: Path, mode: str, open_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("SOLELY_URL", raising=False)
    (tmp_path / "solely").mkdir()
    (tmp_path / "solely").chmod(0o750)
    await result_of(open_client().mark("key", ttl=60))
    assert modes(tmp_path) == {"solely": 0o750}


def test_what_the_service_and_its_commands_create_is_for_their_user_alone(tmp_path: Path) -> None:
    """In a home of its own, with the umask that hides nothing."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SOLELY_", "XDG_"))}
    environ |= {"HOME": str(tmp_path), "PYTHONPATH": str(Path(solely.__file__).parents[1])}
    program = [sys.executable, "-m", "solely.cli"]
    options: Any = {"env": environ, "stdout": subprocess.PIPE, "text": True, "umask": 0o000, "cwd": tmp_path}
    for words in (("run", "--lock", "a", "--", "true"), ("migrate",), ("token", "ci", "--file", "tokens")):
        url = ("--data-url", "sqlite:///moved.db") if words == ("migrate",) else ()
        assert subprocess.run([*program, *words, *url], check=True, timeout=120, **options).returncode == 0
    with subprocess.Popen([*program, "serve", "--port", "0"], stderr=subprocess.DEVNULL, **options) as service:
        try:
            assert service.stdout is not None
            assert "Solely is at " in service.stdout.readline()
            until((tmp_path / ".local/share/solely/solely-data.db").exists)
            found = {str(each.relative_to(tmp_path)): stat.S_IMODE(each.stat().st_mode) for each in tmp_path.rglob("*")}
        finally:
            service.kill()
    assert {".local/share/solely/solely.db", ".local/share/solely/solely-data.db", "moved.db"} <= found.keys()
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
