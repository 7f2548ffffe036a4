"""Submodules and files of Git LFS: not fetched unless the settings say so, and then from the forge alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from solely.apps.repos.forges.client import GitLogin
from solely.apps.repos.jobs.git import GitClone, GitRefused
from solely.apps.repos.jobs.settings import JobSettings
from tests.apps.repos.forge_server import GIT_USER, TOKEN, Forges, dropped, forges, refusal
from tests.apps.repos.git_server import GitRepository
from tests.apps.repos.pods import working

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 3\n"
# In place of git-lfs, which a machine that runs these tests need not have. It says which server it would ask.
LFS = """#!/bin/sh
echo "$@ $(git config lfs.url)" >> {log}
case $1 in
clean) cat > /dev/null; printf '{pointer}' ;;
smudge) cat ;;
pull) printf big > big.bin; git add big.bin ;;
esac
"""


def cloned(stub: Forges, folder: Path, settings: JobSettings | None = None) -> GitClone:
    folder.mkdir()
    login = GitLogin(stub.url, GIT_USER, TOKEN)
    return GitClone(folder, f"{stub.url}/group/project.git", login, {}, settings)


def modules(**urls: str) -> str:
    return "".join(f'[submodule "{name}"]\n\tpath = {name}\n\turl = {url}\n' for name, url in urls.items())


@pytest.fixture
def repository(stub_forges: Forges) -> GitRepository:
    return stub_forges.gitlab.repositories[stub_forges.gitlab.project()]


async def test_submodules_are_fetched_if_that_is_set_also_those_of_submodules(
    stub_forges: Forges, repository: GitRepository, tmp_path: Path
) -> None:
    """By relative and by absolute addresses. The login stays where it is."""
    inner, library = stub_forges.repository("group/inner"), stub_forges.repository("group/library")
    links = {"inner": inner.commit("main", {"inner.txt": "inner"})}
    tip = library.commit("main", {".gitmodules": modules(inner=f"{stub_forges.url}/group/inner.git")}, links=links)
    main = repository.commit("main", {".gitmodules": modules(library="../library.git")}, links={"library": tip})

    without = cloned(stub_forges, tmp_path / "without")
    await without.clone()
    await without.check_out(main)
    assert list((without.work / "library").iterdir()) == []
    assert stub_forges.count("GET", "library.git") == 0

    clone = cloned(stub_forges, tmp_path / "with", JobSettings(submodules=True))
    await clone.clone()
    await clone.check_out(main)
    assert (clone.work / "library" / "inner" / "inner.txt").read_text() == "inner"
    texts = [each.read_bytes() for each in clone.work.parent.rglob("*") if each.is_file()]
    assert not [text for text in texts if TOKEN.encode() in text]
    (clone.work / "own.txt").write_text("own")
    commit = await clone.commit(main, "Mine", (), ("A", "a@b.c"))
    await clone.push(commit, "main", main)
    assert repository.file("main", "own.txt") == "own"


async def test_a_submodule_at_another_host_is_refused_and_that_host_is_not_asked(
    stub_forges: Forges, repository: GitRepository, tmp_path: Path
) -> None:
    """Also one that a submodule names: a merge request could have any host called, and any file read."""
    library = stub_forges.repository("group/library")
    with forges(tmp_path / "elsewhere") as other:
        links = {"inner": other.repository("group/inner").tip("main")}
        tip = library.commit("main", {".gitmodules": modules(inner=f"{other.url}/group/inner.git")}, links=links)
        cases = {
            "direct": (f"{other.url}/group/inner.git", links["inner"]),
            "nested": ("../library.git", tip),
            "file": (str(library.folder), tip),
            "helper": (f"http::{other.url}/group/inner.git", links["inner"]),  # as git names its own helpers
        }
        for name, (url, commit) in cases.items():
            main = repository.commit("main", {".gitmodules": modules(library=url)}, links={"library": commit})
            clone = cloned(stub_forges, tmp_path / name, JobSettings(submodules=True))
            await clone.clone()
            with pytest.raises(GitRefused) as failure:
                await clone.check_out(main)
            assert TOKEN not in str(failure.value)
        assert other.asked == []


@pytest.mark.parametrize("way", ["no such commit", "no such repository", "no address", "unreadable"])
def test_a_submodule_that_nobody_has_is_no_outage(stub_forges: Forges, repository: GitRepository, way: str) -> None:
    """Waiting does not change what the merge request names: the job has failed for good, and runs no command."""
    gitlab = stub_forges.gitlab
    (project,) = gitlab.projects
    stub_forges.repository("group/library")
    texts = {
        "no address": "",
        "unreadable": '[submodule "library',
        "no such repository": modules(library="../none.git"),
    }
    files = {".gitmodules": texts.get(way, modules(library="../library.git"))}
    gitlab.merge_request(project)
    repository.commit("feature", files, links={"library": "f" * 40})
    with working(stub_forges, {"submodules": True}) as app:
        app.opened(app.address, project, 1)
        head = gitlab.of(project, 1)["sha"]
        run = app.until_over(f"review:{project}:1:{head}")
    assert (run["state"], run["attempts"]) == ("failed", 1), run["error"]


def test_what_a_merge_request_calls_its_files_is_no_outage(stub_forges: Forges, repository: GitRepository) -> None:
    """Git says that it cannot check out a submodule, and names it."""
    gitlab = stub_forges.gitlab
    (project,) = gitlab.projects
    library = stub_forges.repository("group/library")
    tip = library.commit("main", {"git~1/config": "which no git checks out"})
    gitlab.merge_request(project)
    named = '[submodule "x"]\n\tpath = connection timeout\n\turl = ../library.git\n'
    repository.commit("feature", {".gitmodules": named}, links={'"connection timeout"': tip})
    with working(stub_forges, {"submodules": True, "max_attempts": 1}) as app:
        app.opened(app.address, project, 1)
        run = app.until_over(f"review:{project}:1:{gitlab.of(project, 1)['sha']}")
    assert (run["state"], run["attempts"]) == ("failed", 1), run["error"]


def test_a_submodule_of_a_forge_that_is_away_is_an_outage(stub_forges: Forges, repository: GitRepository) -> None:
    gitlab = stub_forges.gitlab
    (project,) = gitlab.projects
    library = stub_forges.repository("group/library")
    gitlab.merge_request(project)
    files = {".gitmodules": modules(library="../library.git")}
    repository.commit("feature", files, links={"library": library.tip("main")})
    stub_forges.meet("GET", r"library\.git", refusal(503), times=2)
    stub_forges.meet("GET", r"library\.git", dropped, times=2)
    with working(stub_forges, {"submodules": True, "max_attempts": 1}) as app:
        app.opened(app.address, project, 1)
        run = app.until_over(f"review:{project}:1:{gitlab.of(project, 1)['sha']}")
    assert (run["state"], run["attempts"]) == ("done", 1), run["error"]


@pytest.mark.parametrize("lfs", [False, True])
async def test_files_of_git_lfs_are_fetched_from_the_forge_if_that_is_set(
    stub_forges: Forges, repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lfs: bool
) -> None:
    """Whatever server the merge request names; and what was fetched is not committed in place of its pointer."""
    program, log = tmp_path / "bin" / "git-lfs", tmp_path / "log"
    program.parent.mkdir()
    program.write_text(LFS.format(log=log, pointer=POINTER.replace("\n", "\\n")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/local/bin:/usr/bin:/bin")
    named = {".lfsconfig": "[lfs]\n\turl = http://127.0.0.1:9/\n", ".gitattributes": "*.bin filter=lfs -text\n"}
    main = repository.commit("main", {**named, "big.bin": POINTER})
    clone = cloned(stub_forges, tmp_path / "clone", JobSettings(lfs=lfs))
    await clone.clone()
    await clone.check_out(main)
    assert (clone.work / "big.bin").read_text() == ("big" if lfs else POINTER)
    (clone.work / "own.txt").write_text("own")
    await clone.push(await clone.commit(main, "Mine", (), ("A", "a@b.c")), "main", main)
    assert repository.git("show", "--name-only", "--format=", "main").split() == ["own.txt"]
    asked = log.read_text().splitlines() if lfs else []
    assert [line for line in asked if line.startswith("pull ")] == (
        [f"pull {stub_forges.url}/group/project.git/info/lfs"] if lfs else []
    )
    assert lfs or not log.exists()
