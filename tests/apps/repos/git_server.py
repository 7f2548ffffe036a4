"""Real git repositories on disk, and their smart HTTP protocol through `git http-backend`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Neither the settings of the machine nor those of whoever runs the tests: git asks for nothing and signs nothing.
PLAIN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}
MAIN = "main"


class GitAnswer(NamedTuple):
    """What `git http-backend` printed."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class GitRepository:
    """A bare repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path) -> GitRepository:
        """An empty one that accepts pushes, and refuses those that are no fast-forward, as forges do for branches that
        are protected."""
        folder.mkdir(parents=True)
        it = cls(folder)
        it.git("init", "--quiet", "--bare", f"--initial-branch={MAIN}", ".")
        it.git("config", "http.receivepack", "true")
        it.git("config", "receive.denyNonFastForwards", "true")
        return it

    def git(self, *arguments: str, given: bytes = b"") -> str:
        """Its standard output."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, input=given, capture_output=True, check=False,
            env={**os.environ, **PLAIN},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def commit(
        self,
        branch: str,
        files: Mapping[str, str],
        message: str = "A change",
        base: str = "",
        links: Mapping[str, str] | None = None,
    ) -> str:
        """Commits these files, and these commits of submodules, on the branch, which begins at `base` if it is new;
        returns the commit."""
        tip = self.tip(branch) or (self.tip(base) if base else "")
        lines = [f"commit refs/heads/{branch}", "committer Ann <ann@example.org> now"]
        lines += [f"data {len(message.encode())}", message, *([f"from {tip}"] if tip else [])]
        for name, text in files.items():
            lines += [f"M 100644 inline {name}", f"data {len(text.encode())}", text]
        lines += [f"M 160000 {commit} {name}" for name, commit in (links or {}).items()]
        self.git("fast-import", "--quiet", "--date-format=now", given=("\n".join(lines) + "\n").encode())
        return self.tip(branch)

    def tip(self, branch: str) -> str:
        """The last commit of the branch; empty if there is no such branch."""
        return self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split()

    def messages(self, branch: str, base: str = MAIN) -> list[str]:
        """The messages of the commits that the branch has and `base` has not, oldest first."""
        found = self.git("log", "--reverse", "--format=%B%x00", f"{base}..{branch}")
        return [each.strip() for each in found.split("\0") if each.strip()]

    def file(self, branch: str, name: str) -> str:
        return self.git("show", f"{branch}:{name}")


def answer_git(root: Path, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> GitAnswer:
    """The answer to a request of a git client, whose `path` begins with that of the repository below `root`."""
    environment = {
        **os.environ, **PLAIN,
        "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "REQUEST_METHOD": method,
        "QUERY_STRING": query, "REMOTE_USER": "tester", "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "GIT_PROTOCOL": headers.get("git-protocol", ""), "HTTP_GIT_PROTOCOL": headers.get("git-protocol", ""),
    }  # fmt: skip
    done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=environment, check=False)
    head, found, rest = done.stdout.partition(b"\r\n\r\n")
    assert found, done.stderr.decode()  # a refusal is within the answer
    pairs = [line.partition(":") for line in head.decode("latin-1").split("\r\n")]
    given = [(name.strip(), value.strip()) for name, _, value in pairs]
    status = next((int(value.split()[0]) for name, value in given if name.lower() == "status"), 200)
    return GitAnswer(status, [pair for pair in given if pair[0].lower() != "status"], rest)
