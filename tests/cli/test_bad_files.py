"""Files that are no settings, jobs or tokens: a command says so in one line, and reads no more of them than it must."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from solely.cli.exits import Exit
from solely.cli.program import perform
from solely.folder import DEEPEST, MOST_BYTES

DEEP = 100_000


def _sparse(path: Path) -> None:
    """Larger than any file of settings, though it takes no room."""
    with path.open("wb") as file:
        file.truncate(64 * MOST_BYTES)


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


FILES: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "a program": lambda path: path.write_bytes(Path(os.__file__).read_bytes().replace(b"import", b"\xff\xfe")),
    "a page": _text("<!doctype html><html></html>"),
    "half a value": _text("jobs = ["),
    "a huge file": _sparse,
    "a device without an end": lambda path: path.symlink_to("/dev/zero"),
    "nested lists": _text(f"schedule = {'[' * DEEP}{']' * DEEP}"),
    "nested tables": _text(f"schedule = {'{a = ' * DEEP}1{'}' * DEEP}"),
    "a key of many parts": _text(f"alerts.policies.{'a.' * DEEP}a = 1"),
    "a section of many parts": _text(f"[jobs.{'a.' * DEEP}a]\ncommand = 'true'"),
    "just too deep": _text(f"alerts.policies.{'a.' * DEEPEST}a = 1"),
    "deep, but not too deep": _text(f"alerts.policies.{'a.' * (DEEPEST - 5)}a = 1"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "nothing there": lambda path: None,
}


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("SOLELY_URL", "SOLELY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "the-file"
    FILES[request.param](path)
    return path


def refused(words: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = perform(words)
    out, err = capsys.readouterr()
    assert code in (Exit.USAGE, Exit.ERROR), (code, out, err)
    assert out == ""
    lines = [line for line in err.strip().split("\n") if not line.startswith(("Usage: ", "Try '"))]
    assert len([line for line in lines if line]) == 1, err
    assert str(file) in err
    assert len(err) < 1_000


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_no_file_of_settings_makes_a_command_crash(
    command: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused([command, "--config", str(file)], file, capsys)


def test_no_file_that_the_environment_names_makes_a_command_crash(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOLELY_CONFIG", str(file))
    refused(["check-config"], file, capsys)


def test_no_file_of_jobs_makes_a_command_crash(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["cron", "--url", "sqlite:///:memory:", str(file), "--check"], file, capsys)


def test_no_file_of_tokens_makes_a_command_crash(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = file.parent / "solely.toml"
    settings.write_text(f"tokens_file = {str(file)!r}")
    if file.is_file() and file.stat().st_size < MOST_BYTES and b"\xff" not in file.read_bytes():
        code = perform(["check-config", "--config", str(settings)])  # lines that are no tokens, whatever is in them
        assert code == Exit.USAGE
        assert "token" in capsys.readouterr().err
    else:
        refused(["check-config", "--config", str(settings)], file, capsys)
