"""schemathesis over the whole API, as its own document describes it, on each database: no failure, with `--all` for two
minutes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import DATABASES, STORES
from tests.service.serving import LINES, TOKENS, running

LONGEST = 120  # seconds, with `--all`
SECONDS = 25  # seconds otherwise, so that a run of all tests stays short
STARTING = 100  # seconds beyond that, for schemathesis to begin and end on a machine that is busy
CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.timeout(LONGEST + STARTING + 20)
@pytest.mark.parametrize("data", DATABASES)
def test_schemathesis_finds_nothing(data: str, request: pytest.FixtureRequest, tmp_path: Path, thorough: bool) -> None:
    seconds = LONGEST if thorough else SECONDS
    url = STORES[data](request) if data == "postgres" else "memory://?max_size=200000"
    with running(tokens=LINES, max_wait=0.2, url=url, data_url=DATABASES[data](request)) as service:
        found = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG),
                "run", f"{service.address}/openapi.json", "--header", f"Authorization: Bearer {TOKENS['admin']}",
                "--max-time", str(seconds),
            ],
            cwd=tmp_path, capture_output=True, text=True, timeout=seconds + STARTING, check=False,
        )  # fmt: skip
        told = "\n".join(line[:400] for line in (found.stdout + found.stderr).splitlines())
        assert found.returncode == 0, told[-20_000:]
        document = service.get("/openapi.json").json()
        asked = sum(map(len, document["paths"].values())) - 1  # not for that document itself
        assert f"{asked - 3} selected / {asked} total" in told  # all but those that schemathesis.toml names
        assert service.get("/readyz").status_code == 200
