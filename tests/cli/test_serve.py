"""`solely serve`: what it leaves behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.service.serving import Process, until
from tests.service.test_serve import ready


@pytest.mark.parametrize(("named", "workers"), [("nothing", "1"), ("the environment", "2"), ("the file", "1")])
def test_a_demo_leaves_nothing_behind(tmp_path: Path, named: str, workers: str) -> None:
    """Whatever store the user has, the demo neither writes to it nor leaves its own."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    urls = {"URL": f"sqlite:///{home}/mine.db", "DATA_URL": f"sqlite:///{home}/data.db"}
    environ = {"TMPDIR": str(temporary)}
    if named == "the environment":
        environ |= {f"SOLELY_{name}": url for name, url in urls.items()}
    elif named == "the file":
        (tmp_path / "solely.toml").write_text("".join(f"{name.lower()} = '{url}'\n" for name, url in urls.items()))
        environ["SOLELY_CONFIG"] = str(tmp_path / "solely.toml")
    with Process(home, "--demo", "--workers", workers, **environ) as service:
        address = service.address()
        until(lambda: ready(address), 50)
        until(lambda: list(temporary.glob("solely-demo-*/demo.db")) and list(temporary.glob("*/demo-data.db")), 20)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
    assert not [name for name in os.listdir(temporary) if name.startswith("solely")]
    assert [file for file in home.rglob("*") if file.is_file()] == [home / "service.log"]


def test_a_demo_uses_the_store_that_a_flag_names(tmp_path: Path) -> None:
    with Process(tmp_path, "--demo", "--url", f"sqlite:///{tmp_path}/chosen.db", TMPDIR=str(tmp_path)) as service:
        address = service.address()
        until(lambda: ready(address), 50)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
    assert (tmp_path / "chosen.db").exists()
    assert not list(tmp_path.glob("solely-*"))
