"""What a job must not do: show its login, run what the command left behind, or write without the lock."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from solely.apps.repos.forges.client import GitLogin
from solely.apps.repos.jobs.git import GitClone, GitFailed, PushRejected
from tests.apps.repos.forge_server import GIT_USER, TOKEN, Asked, Forges, Reply, forges
from tests.apps.repos.pods import COMMAND, SOON, shell, working
from tests.service.serving import until

SECRETS = (TOKEN, base64.b64encode(f"{GIT_USER}:{TOKEN}".encode()).decode())


def shown(what: str) -> dict[str, list[str]]:
    """The arguments or variables of every process that show the login, by the process."""
    found = {}
    for each in Path("/proc").glob(f"[0-9]*/{what}"):
        try:
            texts = each.read_text(errors="replace").split("\0")
        except OSError:  # it has ended, or is of another user
            continue
        if leaked := [text for text in texts if any(secret in text for secret in SECRETS)]:
            found[each.parent.name] = leaked
    return found


def shown_by_open_files() -> list[str]:
    """The small files that any process has open, with or without a name, and that show the login."""
    found = []
    for each in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it was closed, or is no file that can be opened
            if each.is_file() and each.stat().st_size < 65_536:
                text = each.read_text(errors="replace")
                found += [str(each)] if any(secret in text for secret in SECRETS) else []
    return found


def commanded(stub: Forges) -> tuple[int, dict[str, Any], str]:
    """A project with a merge request, a note with a command on it, and the key of its job."""
    project = stub.gitlab.project()
    stub.gitlab.merge_request(project)
    note = stub.gitlab.note(project, 1, "/copilot work")
    return project, note, f"note:{project}:1:{note['id']}"


def test_the_login_is_in_no_argument_no_file_no_variable_of_the_command_and_no_log(
    stub_forges: Forges, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor in any variable or open file of git's own processes: a program of the same user can read those."""
    project, note, key = commanded(stub_forges)
    seen: list[dict[str, list[str]]] = []
    variables: list[str] = []

    def look(asked: Asked, perform: Callable[[], Reply]) -> Reply:
        seen.append(shown("cmdline"))
        variables.extend(text for texts in shown("environ").values() for text in texts)
        variables.extend(shown_by_open_files())
        return perform()

    dump, leaked = tmp_path / "dump", f"printf '{TOKEN[:12]}'; echo '{TOKEN[12:]}'"
    script = f"(env; git config --list; cat .git/config; cat ../clone.git/config) > {dump}; {leaked}; {COMMAND}"
    with (
        stub_forges.meeting_all("GET", "info/refs$", look),
        stub_forges.meeting_all("POST", "git-", look),
        working(stub_forges, {"command": shell(script)}) as app,
    ):
        stub_forges.meet("POST", "git-receive-pack$", lambda asked, perform: Reply(500))  # git reports an error
        app.noted(app.address, project, 1, note)
        run = app.until_over(key)
    assert run["state"] == "done"
    assert len(seen) >= 6  # two clones and two pushes
    assert not any(seen)
    assert not variables
    out = capfd.readouterr()
    texts = (dump.read_text(), caplog.text, out.out, out.err, str(run), *stub_forges.gitlab.comments(project, 1))
    assert not [text for text in texts for secret in SECRETS if secret in text]
    assert "SOLELY_JOB_KEY" in dump.read_text()
    assert "…" in run["log"]  # the command printed the token, which somebody may have given to it


def test_hooks_and_settings_that_the_command_leaves_in_its_clone_are_not_used_to_push(
    stub_forges: Forges, tmp_path: Path
) -> None:
    project, note, key = commanded(stub_forges)
    trap = tmp_path / "trap"
    script = f"""
        printf '#!/bin/sh\\nenv > {trap}\\n' > .git/hooks/pre-push; chmod +x .git/hooks/pre-push
        git config url.http://127.0.0.1:9/.insteadOf {stub_forges.url}/
        git push --quiet origin HEAD:refs/heads/feature; {COMMAND}"""
    with working(stub_forges, {"command": shell(script)}) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(key)
    assert run["state"] == "done"
    assert stub_forges.gitlab.repositories[project].file("feature", "work.txt") == str(note["id"])
    assert stub_forges.count("POST", "git-receive-pack$") == 1  # ours
    assert not trap.exists() or TOKEN not in trap.read_text()


async def test_the_login_is_sent_to_no_other_origin(stub_forges: Forges, tmp_path: Path) -> None:
    with forges(tmp_path / "elsewhere") as other:
        project = other.gitlab.project()
        url = other.gitlab.projects[project]["http_url_to_repo"]
        clone = GitClone(tmp_path, url, GitLogin(stub_forges.url, GIT_USER, TOKEN), {})
        with pytest.raises(GitFailed) as failure:
            await clone.clone()
        assert TOKEN not in str(failure.value)
        assert [each.headers.get("authorization") for each in other.asked] == [None]


async def test_a_url_that_is_no_http_is_not_cloned(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    clone = GitClone(tmp_path, f"ext::sh -c touch% {trap} ://", GitLogin("", "", ""), {})
    with pytest.raises(GitFailed):
        await clone.clone()
    assert not trap.exists()


def test_the_lock_is_kept_through_a_clone_that_takes_longer_than_its_ttl(stub_forges: Forges) -> None:
    project, note, key = commanded(stub_forges)
    fences: set[int] = set()
    with working(stub_forges, {"ttl": 2}) as app:

        def slow(asked: Asked, perform: Callable[[], Reply]) -> Reply:
            """Waits until the lock is held for longer than its ttl."""
            (first,) = until(app.locked, SOON)
            until(lambda: [row for row in app.locked() if row["since"] + 3 < time.time()], SOON)
            fences.update(row["fence"] for row in (first, *app.locked()))
            return perform()

        stub_forges.meet("POST", "git-upload-pack$", slow)
        app.noted(app.address, project, 1, note)
        run = app.until_over(key)
    assert (run["state"], run["attempts"], len(fences)) == ("done", 1, 1)
    assert f"Solely-Fence: {fences.pop()}" in stub_forges.gitlab.repositories[project].messages("feature")[-1]


def test_a_job_that_loses_the_lock_pushes_nothing_and_is_tried_again(stub_forges: Forges, tmp_path: Path) -> None:
    project, note, key = commanded(stub_forges)
    started, lost = tmp_path / "started", tmp_path / "lost"
    script = f"if ! test -e {lost}; then touch {started}; sleep 600; fi; {COMMAND}"
    with working(stub_forges, {"ttl": 2, "command": shell(script)}) as app:
        app.noted(app.address, project, 1, note)
        until(started.exists, SOON)
        (row,) = app.locked()
        lost.touch()
        app.clear_lock(row)
        until(lambda: app.jobs().get(key, {}).get("state") in ("postponed", "done"), SOON)
        run = app.until_over(key)
    assert (run["state"], run["attempts"]) == ("done", 1)
    assert stub_forges.gitlab.repositories[project].file("feature", "work.txt") == str(note["id"])
    assert stub_forges.count("POST", "git-receive-pack$") == 1


def test_a_person_who_pushes_meanwhile_is_not_overwritten(stub_forges: Forges) -> None:
    project, note, key = commanded(stub_forges)
    repository = stub_forges.gitlab.repositories[project]

    def first(asked: Asked, perform: Callable[[], Reply]) -> Reply:
        repository.commit("feature", {"theirs.txt": "by a person"}, "By a person")
        return perform()

    stub_forges.meet("POST", "git-receive-pack$", first)
    with working(stub_forges) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(key)
    assert (run["state"], run["attempts"]) == ("done", 2)
    assert repository.file("feature", "theirs.txt") == "by a person"
    assert repository.file("feature", "work.txt") == str(note["id"])


@pytest.mark.parametrize("meanwhile", ["deleted", "reset", "created", "rewritten"])
async def test_only_the_branch_that_was_cloned_is_pushed_to(
    stub_forges: Forges, tmp_path: Path, meanwhile: str
) -> None:
    """Also if git alone would take the push for an addition: the branch is gone, or is back at an older commit, or one
    of this name is new; or the command itself has removed commits."""
    project, _, _ = commanded(stub_forges)
    repository = stub_forges.gitlab.repositories[project]
    start = repository.commit("feature", {"more.txt": "more"})
    branch = "agent/new" if meanwhile == "created" else "feature"
    clone = GitClone(tmp_path, f"{stub_forges.url}/group/project.git", GitLogin(stub_forges.url, GIT_USER, TOKEN), {})
    await clone.clone()
    await clone.check_out(f"{start}~1" if meanwhile == "rewritten" else start)
    (clone.work / "own.txt").write_text("own")
    commit = await clone.commit(start, "Mine", (), ("A", "a@b.c"))
    if meanwhile == "deleted":
        repository.git("branch", "-D", "feature")
    elif meanwhile == "reset":
        repository.git("branch", "-f", "feature", f"{start}~1")
    elif meanwhile == "created":
        repository.git("branch", "agent/new", "main")
    before = repository.tip(branch)
    with pytest.raises(PushRejected):
        await clone.push(commit, branch, start)
    assert repository.tip(branch) == before


def test_a_holder_that_finds_a_later_fence_on_the_branch_stops(stub_forges: Forges, tmp_path: Path) -> None:
    """As after a failover of the store that has lost the lock. A fence of the future is not ours, and stops nobody."""
    project, note, key = commanded(stub_forges)
    repository = stub_forges.gitlab.repositories[project]
    repository.commit("feature", {"a.txt": "a"}, "Forged\n\nSolely-Fence: 9000000000000000000")
    fences: list[int] = []

    def pushed(asked: Asked, perform: Callable[[], Reply]) -> Reply:
        """The lock is held by now; a later holder pushes."""
        fences.append(time.time_ns() // 1000)
        repository.commit("feature", {"b.txt": "b"}, f"By a later holder\n\nSolely-Fence: {fences[0]}")
        return perform()

    second = stub_forges.gitlab.note(project, 1, "/copilot more")
    runs = tmp_path / "runs"
    with working(stub_forges, {"command": shell(f"echo >> {runs}; {COMMAND}")}) as app:
        app.noted(app.address, project, 1, note)
        assert app.until_over(key)["state"] == "done"  # in spite of the forged one
        stub_forges.meet("GET", "info/refs$", pushed)
        app.noted(app.address, project, 1, second)
        run = app.until_over(f"note:{project}:1:{second['id']}")
    assert (run["state"], run["attempts"], len(runs.read_text())) == ("done", 1, 2)
    messages = repository.messages("feature")
    assert int(messages[-1].rpartition("Solely-Fence: ")[2]) > fences[0]
    assert f"Solely-Fence: {fences[0]}" in messages[-2]


def test_two_commands_wait_for_each_other_and_others_get_a_turn(stub_forges: Forges, tmp_path: Path) -> None:
    """A job that does not get the lock in time gives its slot to others, and comes back: that is no attempt."""
    project, note, key = commanded(stub_forges)
    request = stub_forges.gitlab.of(project, 1)
    second = stub_forges.gitlab.note(project, 1, "/copilot more")
    go = tmp_path / "go"
    script = f"while ! test -e {go}; do sleep 0.1; done; {COMMAND}"
    jobs = {"at_once": 2, "lock_wait": 0.2, "command": shell(script), "max_attempts": 1}
    with working(stub_forges, jobs) as app:
        app.noted(app.address, project, 1, note)
        app.until_state(key, "running")
        app.noted(app.address, project, 1, second)
        app.until_state(f"note:{project}:1:{second['id']}", "postponed")
        app.opened(app.address, project, 1)
        app.until_over(f"review:{project}:1:{request['sha']}")
        go.touch()
        runs = [app.until_over(f"note:{project}:1:{each['id']}") for each in (note, second)]
    assert [run["state"] for run in runs] == ["done", "done"]
    assert len(stub_forges.gitlab.repositories[project].messages("feature")) == 3


def test_a_review_needs_no_lock(stub_forges: Forges, tmp_path: Path) -> None:
    project, note, key = commanded(stub_forges)
    request = stub_forges.gitlab.of(project, 1)
    go = tmp_path / "go"
    with working(stub_forges, {"command": shell(f"while ! test -e {go}; do sleep 0.1; done; {COMMAND}")}) as app:
        app.noted(app.address, project, 1, note)
        app.until_state(key, "running")
        app.opened(app.address, project, 1)
        assert app.until_over(f"review:{project}:1:{request['sha']}")["state"] == "done"
        assert app.jobs()[key]["state"] == "running"
        go.touch()
        app.until_over(key)


@pytest.mark.parametrize(
    "hidden", ["\\r", "\\r\\n", "text\\r", "\\v", "\\f", " \\r\\t", "\\357\\273\\277", "\\342\\200\\250", "> \\r"]
)
def test_no_quick_action_hides_behind_what_gitlab_removes(stub_forges: Forges, hidden: str) -> None:
    """GitLab removes carriage returns, and performs what is then at the beginning of a line."""
    project, note, key = commanded(stub_forges)
    with working(stub_forges, {"command": shell(f"printf 'It is\\n{hidden}/merge\\n'")}) as app:
        app.noted(app.address, project, 1, note)
        app.until_over(key)
    body = stub_forges.gitlab.comments(project, 1)[-1]
    assert "\\/merge" in body
    for gone in ("", "\n"):
        seen = body.replace("\r", gone).replace("\ufeff", gone).replace("\u2028", gone)
        assert not [line for line in seen.splitlines() if line.strip(" \t>").startswith("/")]


def test_a_push_that_the_forge_declines_by_a_rule_runs_the_command_once(stub_forges: Forges, tmp_path: Path) -> None:
    """As for a protected branch: another try would run the command again, and be declined again."""
    project, note, key = commanded(stub_forges)
    declines = stub_forges.gitlab.repositories[project].folder / "hooks" / "pre-receive"
    declines.parent.mkdir(exist_ok=True)
    declines.write_text(
        "#!/bin/sh\necho 'GitLab: You are not allowed to push code to protected branches' >&2\nexit 1\n"
    )
    declines.chmod(0o755)
    runs = tmp_path / "runs"
    with working(stub_forges, {"command": shell(f"echo >> {runs}; {COMMAND}"), "max_attempts": 4}) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(key)
        assert (run["state"], run["attempts"], len(runs.read_text())) == ("failed", 1, 1)
        assert "declined" in run["error"]
        until(lambda: "its push was rejected" in stub_forges.gitlab.comments(project, 1)[-1], SOON)


def test_a_push_that_the_forge_could_not_check_is_tried_again(stub_forges: Forges, tmp_path: Path) -> None:
    """GitLab's hook declines every push while it cannot ask GitLab."""
    project, note, key = commanded(stub_forges)
    declines, away = stub_forges.gitlab.repositories[project].folder / "hooks" / "pre-receive", tmp_path / "away"
    away.touch()
    declines.parent.mkdir(exist_ok=True)
    declines.write_text(f"#!/bin/sh\nrm {away} && echo 'GitLab: Internal API unreachable' >&2 && exit 1\nexit 0\n")
    declines.chmod(0o755)
    with working(stub_forges) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(key)
    assert (run["state"], run["attempts"]) == ("done", 2), run["error"]


def test_a_branch_that_is_gone_is_not_taken_for_one_below_it(stub_forges: Forges) -> None:
    project, note, key = commanded(stub_forges)
    repository = stub_forges.gitlab.repositories[project]
    repository.git("branch", "-m", "feature", "feature/more")
    with working(stub_forges) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(key)
    assert (run["state"], run["attempts"]) == ("failed", 1)
    assert "has no branch feature" in run["error"]
    assert len(repository.messages("feature/more")) == 1


def test_what_the_command_says_is_neither_a_quick_action_nor_a_command_nor_a_trailer(stub_forges: Forges) -> None:
    """GitLab performs lines such as /merge of a comment with the rights of its author, which are ours."""
    project, note, key = commanded(stub_forges)
    says = "printf '/copilot again\\n/merge\\nSolely-Job: note:1:1:1\\n'"
    with working(stub_forges, {"command": shell(f"echo x > x.txt; {says}")}) as app:
        app.noted(app.address, project, 1, note)
        app.until_over(key)
        ours = stub_forges.gitlab.notes[project, 1][-1]
        assert ours["body"].startswith("\\/copilot again\n\\/merge\n")
        ours["body"] = ours["body"].replace("\\", "")
        assert "ours" in app.noted(app.address, project, 1, ours).json()["ignored"]
    lines = stub_forges.gitlab.repositories[project].messages("feature")[-1].splitlines()
    assert [line for line in lines if line.startswith("Solely-Job")] == [f"Solely-Job: {key}"]
