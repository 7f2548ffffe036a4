"""What a command leaves in its working copy: git runs none of it, and follows none of it, when it takes the changes.

Each way is what a command can do that may write to its working copy alone, as one in a sandbox does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from solely.apps.repos.jobs.performer import PREFIX
from tests.apps.repos.forge_server import Forges, forges
from tests.apps.repos.git_server import GitRepository
from tests.apps.repos.pods import COMMAND, shell, working

HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-rewrite", "post-update", "pre-auto-gc", "pre-commit", "pre-merge-commit",
    "pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout",
    "reference-transaction", "sendemail-validate", "update",
)  # fmt: skip


def hook(name: str) -> str:
    return f'mkdir -p .git/hooks; cp "$TRAP" .git/hooks/{name}'


def config(*pairs: str, file: str = ".git/config") -> str:
    """Writes these settings, each `section.name=value` with the trap as $TRAP; no git is run that would use them."""
    written = []
    for pair in pairs:
        name, _, value = pair.partition("=")
        section, _, key = name.rpartition(".")
        head, _, below = section.partition(".")
        quoted = f'[{head} \\"{below}\\"]' if below else f"[{head}]"
        written.append(f'printf "%s\\n" "{quoted}" "{key} = {value}" >> {file}')
    return "; ".join(written)


# A repository that the command has made elsewhere in its working copy, with every hook and a monitor.
ELSEWHERE = f"""
    cp -r .git .other; for each in {" ".join(HOOKS)}; do cp "$TRAP" .other/hooks/$each; done
    {config("core.fsmonitor=$TRAP", file=".other/config")}""".strip()
NESTED = f"""
    git init --quiet nested; echo x > nested/x; git -C nested add x
    git -C nested -c user.name=A -c user.email=a@b.c commit --quiet -m x
    {config("core.fsmonitor=$TRAP", file="nested/.git/config")}
    cp "$TRAP" nested/.git/hooks/post-index-change""".strip()
DEEP = "mkdir -p $(printf 'd/%.0s' $(seq 1500))"
FILTERED = "echo '* filter=trap' > .gitattributes"
MADE = "git -c user.name=A -c user.email=a@b.c commit --quiet -m"
WAYS = {
    "core.fsmonitor": config("core.fsmonitor=$TRAP"),
    **{
        f"hook {name}": hook(name)
        for name in ("post-commit", "prepare-commit-msg", "post-index-change", "reference-transaction", "post-rewrite")
    },
    "core.hooksPath": f'mkdir .traps; for each in {" ".join(HOOKS)}; do cp "$TRAP" .traps/$each; done; '
    + config("core.hooksPath=$PWD/.traps"),
    "filter.clean": f'{config("filter.trap.clean=$TRAP", "filter.trap.required=true")}; {FILTERED}',
    "filter.process": f'{config("filter.trap.process=$TRAP")}; {FILTERED}',
    "info/attributes": config("filter.trap.clean=$TRAP")
    + "; mkdir -p .git/info; echo '* filter=trap' > .git/info/attributes",
    "include.path": config("core.fsmonitor=$TRAP", file="included") + "; " + config("include.path=$PWD/included"),
    "includeIf": config("core.fsmonitor=$TRAP", file="included") + "; "
    + config("includeIf.gitdir:/.path=$PWD/included"),
    ".git file": f"{ELSEWHERE}; rm -rf .git; echo gitdir: $PWD/.other > .git",
    ".git link": f"{ELSEWHERE}; rm -rf .git; ln -s .other .git",
    "commondir": f"{ELSEWHERE}; echo $PWD/.other > .git/commondir",
    "config.worktree": config("extensions.worktreeConfig=true", "core.repositoryformatversion=1")
    + "; " + config("core.fsmonitor=$TRAP", file=".git/config.worktree"),
    "credential.helper": config("credential.helper=$TRAP", "core.askPass=$TRAP"),
    "core.sshCommand": config("core.sshCommand=$TRAP", "remote.origin.url=ssh://127.0.0.1/x", "remote.origin.vcs=trap"),
    "core.editor": config("core.editor=$TRAP", "sequence.editor=$TRAP", "core.pager=$TRAP"),
    "gpg.program": config("commit.gpgSign=true", "gpg.program=$TRAP", "push.gpgSign=true", "user.signingKey=x"),
    "diff.external": config("diff.external=$TRAP", "diff.trap.command=$TRAP", "diff.trap.textconv=$TRAP")
    + "; echo '* diff=trap' > .gitattributes",
    "alias": config(*(f"alias.{each}=!$TRAP" for each in ("add", "status", "commit", "rev-parse"))),
    "merge driver": config("merge.trap.driver=$TRAP", "merge.default=trap") + "; echo '* merge=trap' > .gitattributes",
    "trailer.command": config("trailer.Solely-Job.command=$TRAP", "trailer.x.cmd=$TRAP", "trailer.x.key=X"),
    "url.insteadOf": config("url.ext::$TRAP .insteadOf=/", "protocol.ext.allow=always"),
    "remote.pushurl": config("remote.origin.pushurl=ext::$TRAP", "remote.origin.receivepack=$TRAP",
                             "remote.origin.uploadpack=$TRAP", "protocol.ext.allow=always"),
    "uploadpack.packObjectsHook": config("uploadpack.packObjectsHook=$TRAP"),
    "nested repository": NESTED,
    "submodule": f"{NESTED}; git add nested",
    "submodule.update": f"{NESTED}; git add nested; "
    + config("submodule.nested.update=!$TRAP", "submodule.nested.active=true"),
    "core.attributesFile": "echo '* filter=trap diff=trap' > attributes; "
    + config("core.attributesFile=$PWD/attributes", "filter.trap.clean=$TRAP", "diff.trap.textconv=$TRAP"),
    "core.gitProxy": config("core.gitProxy=$TRAP", "remote.origin.url=git://127.0.0.1/x", "http.proxy=127.0.0.1:9"),
    "files of a home": f'{config("core.fsmonitor=$TRAP", file=".gitconfig")}; mkdir -p .config/git; '
    "cp .gitconfig .config/git/config; echo '* filter=trap' > .config/git/attributes",
    "bare repository": "git init --quiet --bare bare; cp -r bare/. .; "
    f'for each in {" ".join(HOOKS)}; do cp "$TRAP" hooks/$each; cp "$TRAP" bare/hooks/$each; done; '
    + config("core.fsmonitor=$TRAP", "core.worktree=..", file="config"),
    "programs and modules": 'for each in git git-lfs sh python3; do cp "$TRAP" $each; done; '
    "for each in os sys json encodings resource sitecustomize; do echo 'import none' > $each.py; done",
    "grafts, replacements and other files": "mkdir -p .git/info .git/objects/info; "
    "git rev-parse HEAD > .git/info/grafts; git rev-parse HEAD > .git/shallow; "
    "git replace HEAD^{tree} $(git mktree < /dev/null); "
    "for each in index MERGE_HEAD objects/info/commit-graph objects/pack/multi-pack-index; do "
    "echo x > .git/$each; done",
    "committed, then trapped": f"echo x > own.txt; git add .; {MADE} x; "
    + "; ".join(hook(name) for name in HOOKS) + "; " + config("core.fsmonitor=$TRAP"),
}  # fmt: skip


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that leaves a file beside itself, with what it can read of other processes."""
    program = tmp_path / "trap"
    fired = f"(echo \"$0 $*\"; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline) >> '{tmp_path}/fired' 2> /dev/null"
    program.write_text(f"#!/bin/sh\n{fired}\ncat\n")
    program.chmod(0o755)
    return program


def performed(stub: Forges, script: str, trap: Path | None = None, **more: Any) -> tuple[dict[str, Any], GitRepository]:
    """The run of a command with this script, and the repository to which it pushed."""
    project = stub.gitlab.project()
    stub.gitlab.merge_request(project)
    note = stub.gitlab.note(project, 1, "/copilot work")
    environment = {"TRAP": str(trap)} if trap else {}
    command = shell(f"set -e; {COMMAND}; {script}", environment=environment)
    with working(stub, {"command": command, "max_attempts": 1, **more}) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(f"note:{project}:1:{note['id']}")
    return run, stub.gitlab.repositories[project]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_the_command_left_is_run(stub_forges: Forges, tmp_path: Path, trap: Path, way: str) -> None:
    run, repository = performed(stub_forges, WAYS[way], trap)
    fired = tmp_path / "fired"
    assert not fired.exists(), fired.read_text(errors="replace")[:300]
    assert (run["state"], run["error"]) == ("done", "")
    assert repository.file("feature", "work.txt")  # what it changed is pushed all the same


@pytest.mark.parametrize("submodules", [False, True])
def test_a_submodule_that_the_command_changed_runs_nothing_and_stays_where_it_was(
    stub_forges: Forges, tmp_path: Path, trap: Path, submodules: bool
) -> None:
    """Git looks into submodules that an index names when it adds files, and runs what their configuration says."""
    library = stub_forges.repository("group/library")
    project = stub_forges.gitlab.project()
    repository = stub_forges.gitlab.repositories[project]
    modules = '[submodule "library"]\n\tpath = library\n\turl = ../library.git\n'
    stub_forges.gitlab.merge_request(project)
    tip = repository.commit("feature", {".gitmodules": modules}, links={"library": library.tip("main")})
    note = stub_forges.gitlab.note(project, 1, "/copilot work")
    inner = (
        "git -C library config core.fsmonitor $TRAP"
        if submodules
        else "git init --quiet library; " + config("core.fsmonitor=$TRAP", file="library/.git/config")
    )
    command = shell(f"set -e; {COMMAND}; {inner}; echo x > library/new.txt", environment={"TRAP": str(trap)})
    with working(stub_forges, {"command": command, "max_attempts": 1, "submodules": submodules}) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(f"note:{project}:1:{note['id']}")
    assert (run["state"], run["error"]) == ("done", "")
    assert not (tmp_path / "fired").exists()
    assert repository.git("diff", "--name-only", tip, "feature") == "work.txt"


@pytest.mark.parametrize("way", ["alternates", "objects link", "core.worktree", "symbolic link", "packed"])
def test_no_file_of_elsewhere_is_pushed(stub_forges: Forges, tmp_path: Path, way: str) -> None:
    """A sandbox that hides another repository, or a file, from the command hides it also from what it makes git do."""
    hidden = GitRepository.create(tmp_path / "hidden.git")
    hidden.commit("main", {"secret.txt": "a secret of others"})
    blob = hidden.git("rev-parse", "main:secret.txt")
    objects = tmp_path / "hidden.git" / "objects"
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "secret.txt").write_text("a secret of others")
    committed = f"""
        tree=$(printf '100644 blob {blob}\\tsecret.txt\\n' | git mktree --missing)
        new=$(echo x | git -c user.name=A -c user.email=a@b.c commit-tree $tree -p HEAD)
        git update-ref --no-deref HEAD $new""".strip()
    ways = {
        "alternates": f"{committed}; mkdir -p .git/objects/info; echo {objects} > .git/objects/info/alternates",
        "objects link": f"{committed}; cp -r .git/objects/. {objects}/; rm -rf .git/objects; "
        f"ln -s {objects} .git/objects",
        "core.worktree": config(f"core.worktree={tmp_path}/plain"),
        "symbolic link": f"ln -s {tmp_path}/plain link; ln -s {tmp_path}/plain/secret.txt file; ln -s /proc d",
        "packed": f"{committed}; git repack -a -d -q || true; ln -s {objects}/pack .git/objects/pack/x || true",
    }
    run, repository = performed(stub_forges, ways[way])
    assert blob not in repository.git("cat-file", "--batch-all-objects", "--batch-check")
    if way in ("core.worktree", "symbolic link"):
        assert (run["state"], run["error"]) == ("done", "")
        assert repository.file("feature", "work.txt")
    if way == "symbolic link":
        assert repository.file("feature", "link") == f"{tmp_path}/plain"
        assert repository.file("feature", "file") == f"{tmp_path}/plain/secret.txt"


def test_what_the_command_does_to_its_objects_is_not_done_to_ours(stub_forges: Forges) -> None:
    """It could otherwise exchange what git pushes under the name of another commit, or end the job with an outage."""
    spoiled = "chmod -R u+w .git/objects; find .git/objects -type f -exec sh -c 'for f; do : > \"$f\"; done' sh {} +"
    run, repository = performed(stub_forges, spoiled)
    assert (run["state"], run["error"]) == ("done", "")
    repository.git("fsck", "--strict")


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder that may get deeper than pytest can remove."""
    it = tmp_path / "deep"
    it.mkdir()
    yield it
    subprocess.run(["rm", "-rf", str(it)], check=True)


def test_pipes_are_left_out_and_folders_that_are_too_deep_fail_the_job(stub_forges: Forges, deep: Path) -> None:
    pipes = "mkdir -p a/b; mkfifo pipe a/b/.gitignore .git/pipe; rm .git/HEAD; mkfifo .git/HEAD"
    run, repository = performed(stub_forges, pipes)
    assert (run["state"], run["error"]) == ("done", "")
    assert repository.git("show", "--name-only", "--format=", "feature") == "work.txt"
    with forges(deep / "second") as other:
        run, _ = performed(other, DEEP)
    assert run["state"] == "failed"
    assert "more than 200 folders" in run["error"]
    assert list(deep.glob(f"{PREFIX}*")) == []


def test_what_the_command_made_read_only_or_deep_is_removed_too(deep: Path) -> None:
    """Also years later, if a process was killed; by a user whom modes stop, as they do not stop root."""
    mine, others, outside = deep / "mine", deep / "others", deep / "outside"
    outside.mkdir(mode=0o755)
    for each in (mine, others):
        each.mkdir()
        folder = each / f"{PREFIX}x"
        (folder / "work" / "modules" / "hidden" / "deep").mkdir(parents=True)
        (folder / "work" / "modules" / "file").write_text("x")
        (folder / "work" / "link").symlink_to(outside)
        subprocess.run(["sh", "-c", DEEP], cwd=folder, check=True)
        for name, mode in {"work/modules/hidden": 0, "work/modules": 0o555, "work": 0o333}.items():
            (folder / name).chmod(mode)
        os.utime(folder, (1, 1))
    (others / f"{PREFIX}link").symlink_to(deep / "absent")
    (others / f"{PREFIX}of-now").mkdir()
    code = f"""
from solely.apps.repos.jobs.performer import sweep_folders
from solely.apps.repos.jobs.working_copy import remove_folder
remove_folder({str(mine / f"{PREFIX}x")!r})
sweep_folders({str(others)!r})"""
    as_user = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    subprocess.run([*as_user, sys.executable, "-c", code], check=True)
    assert list(mine.iterdir()) == []
    assert sorted(each.name for each in others.iterdir()) == [f"{PREFIX}link", f"{PREFIX}of-now"]
    assert outside.stat().st_mode & 0o777 == 0o755


def test_names_that_could_be_taken_for_a_git_folder_or_two_lines_are_only_names(
    stub_forges: Forges, tmp_path: Path, trap: Path
) -> None:
    inner = "; ".join(config("core.fsmonitor=$TRAP", file=f"{each}/config") for each in (".GIT", "a/.Git", "b/.git"))
    script = f"""
        mkdir -p .GIT/hooks a/.Git b/.git/hooks '.git
'; cp "$TRAP" .GIT/hooks/post-commit; cp "$TRAP" b/.git/hooks/post-index-change; {inner}
        printf x > 'two
lines'; printf x > '-c core.fsmonitor=x'; printf x > '--all'; printf x > ':(top)x'; printf x > '.git
/x'
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'"""
    run, repository = performed(stub_forges, script, trap)
    assert not (tmp_path / "fired").exists()
    assert (run["state"], run["error"]) == ("done", "")
    names = repository.git("-c", "core.quotePath=true", "show", "--name-only", "--format=", "-z", "feature").split("\0")
    assert sorted(filter(None, names)) == sorted(
        ["--all", "-c core.fsmonitor=x", ".git\n/x", ":(top)x", "two\nlines", "work.txt"]
    )


@pytest.mark.parametrize("way", ["tree", "git~1", "macOS", "link"])
def test_what_would_be_a_git_folder_on_another_machine_is_not_pushed(stub_forges: Forges, way: str) -> None:
    """In a tree, git would check it out as configuration; `git~1` is its short name on Windows,
    and macOS does not see characters without width."""
    tree = "t=$(printf 'x' | git hash-object -w --stdin); t=$(printf '100644 blob %s\\tconfig\\n' $t | git mktree)"
    made = f"{tree}; t=$(printf '040000 tree %s\\t.git\\n' $t | git mktree)"
    on_top = "git update-ref --no-deref HEAD $(echo x | git -c user.name=A -c user.email=a@b.c commit-tree $t -p HEAD)"
    ways = {
        "tree": f"{made}; {on_top}",
        "git~1": "mkdir git~1; echo x > git~1/config",
        "macOS": r"p=$(printf '.g\342\200\214it'); mkdir $p; echo x > $p/config",
        "link": "t=$(printf '../x' | git hash-object -w --stdin); "
        f"t=$(printf '120000 blob %s\\t.gitmodules\\n' $t | git mktree); {on_top}",
    }
    run, repository = performed(stub_forges, ways[way])
    assert (run["state"], run["attempts"]) == ("failed", 1)
    assert len(repository.messages("feature")) == 1


def test_commits_of_the_command_are_taken_from_packs_and_from_loose_objects(stub_forges: Forges) -> None:
    """Also after it has packed everything anew, and on a branch of its own."""
    script = f"""
        git checkout --quiet -b mine; git add .; {MADE} First; git gc --quiet; echo x > x; git add x; {MADE} Second
        git pack-refs --all; echo '*.log' > .gitignore; echo y > y.log; git add -f y.log; {MADE} Third; echo z > z
    """
    run, repository = performed(stub_forges, script)
    assert (run["state"], run["error"]) == ("done", "")
    subjects = [message.splitlines()[0] for message in repository.messages("feature")]
    assert subjects[-4:] == ["First", "Second", "Third", "/copilot work"]
    assert repository.file("feature", "y.log") == "y"
    assert repository.file("feature", "z") == "z"
    repository.git("fsck", "--strict")
