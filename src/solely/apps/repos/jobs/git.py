"""Git for one job: a clone that is ours, and a working copy of it for the command.

The command never sees the URL or the login: its working copy was cloned from our clone, and what it committed is
fetched back and pushed from ours, with our configuration and without its hooks. The login is in the environment of
git's own processes alone, and is offered to the forge's origin only: it is in no argument, no file and no log. On Linux
only their user and root can read that environment, and both can read that of the service.

Submodules and files of Git LFS are fetched only if that is asked for: a merge request says where they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ....kit import Program, run_program, sanitized
from ..forges.client import GitLogin
from .markers import FENCE_TRAILER, JOB_TRAILER
from .settings import JobSettings

# Variables that decide how the forge is reached, besides those that every program inherits.
_NETWORK = ("http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PLAIN = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",  # neither logins nor rewritten URLs of whoever runs the service
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",  # a checkout fetches nothing
    "LC_ALL": "C",  # its errors are read below
}
_SETTINGS = (("gc.auto", "0"), ("maintenance.auto", "false"))  # nothing goes on in a folder that is being removed
_Pairs = Sequence[tuple[str, str]]  # settings of git, by name
_DIGITS = 20  # of a fence, less than: they are of 64 bits
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$SOLELY_GIT_USER" "$SOLELY_GIT_PASSWORD"; }; f'
)
_REJECTED = re.compile(rb"^!.*\[(?:remote )?rejected\] (.*)$", re.M)  # by the comparison, a hook, or a protection
# Our login, or the repository, is wrong: waiting does not help. All other failures of the network may be over soon.
_HOPELESS = re.compile(
    rb"Authentication failed|returned error: 40[0134]|not found|could not read Username|not allowed"
    rb"|is not a git command|remote-refused"
)
_PROTOCOLS = "http:https"  # a URL must neither run a program nor name a file of this machine
_NOWHERE = "refused"  # a protocol that no git knows
_LFS_FILTER = (
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
    ("filter.lfs.required", "true"),
)
_LOCAL = 300.0  # seconds for a step on this machine: a checkout of some GiB takes one or two minutes


class GitFailed(Exception):
    """A step of git failed."""


class GitUnreachable(GitFailed):
    """The forge did not answer a clone or a push; a push may have succeeded."""


class GitRefused(GitFailed):
    """The forge does not know the repository, or refuses our login: waiting does not help."""


class PushRejected(GitFailed):
    """The forge refused to update the branch, since it has changed or is protected: nothing was pushed."""


class GitClone:
    """A clone of `url` in `folder`, which must be private. Errors never show the login."""

    def __init__(
        self, folder: Path, url: str, login: GitLogin, tls: dict[str, str], settings: JobSettings | None = None
    ) -> None:
        self._own, self.work = folder / "clone.git", folder / "work"
        self._url, self._login, self._tls, self._settings = url, login, tls, settings or JobSettings()

    async def clone(self) -> None:
        """Clones all branches."""
        await self._remote("clone", "--bare", "--quiet", "--", self._url, str(self._own), cwd=self._own.parent)

    async def fetch(self, ref: str) -> None:
        """Fetches one more ref of the repository; a repository that does not have it is no error."""
        try:
            await self._remote("fetch", "--quiet", "origin", ref)
        except GitUnreachable:
            raise
        except GitFailed:
            return

    async def has(self, commit: str) -> bool:
        """True if this commit is in the clone."""
        code, _, _ = await self._run(("cat-file", "-e", f"{commit}^{{commit}}"), self._own)
        return code == 0

    async def tip(self, branch: str) -> str:
        """The last commit of the branch when it was cloned; "" if there is no such branch."""
        return await self._local("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")

    async def commit_of(self, run: str, branch: str, target: str) -> str:
        """The commit that this run has pushed to the branch before; "" if there is none."""
        base = (f"^refs/heads/{target}",) if target != branch and await self.tip(target) else ()
        form = f"--format=%H%x09%(trailers:key={JOB_TRAILER},valueonly,separator=%x09)"
        wanted = ("--fixed-strings", f"--grep={JOB_TRAILER}: {run}")
        found = await self._local("log", form, *wanted, f"refs/heads/{branch}", *base, "--")
        rows = [line.split("\t") for line in found.splitlines()]
        return next((commit for commit, *runs in rows if run in runs), "")

    async def last_fence(self, branch: str, target: str) -> int:
        """The fence of the newest commit of ours on the branch; 0 if there is none."""
        base = (f"^refs/heads/{target}",) if target != branch and await self.tip(target) else ()
        form = f"--format=%(trailers:key={FENCE_TRAILER},valueonly)"
        wanted = ("--max-count=1", f"--grep=^{FENCE_TRAILER}: [0-9]")
        found = (await self._local("log", form, *wanted, f"refs/heads/{branch}", *base, "--")).split()
        return int(found[-1]) if found and found[-1].isdigit() and len(found[-1]) < _DIGITS else 0

    async def check_out(self, commit: str) -> None:
        """Makes the working copy for the command, at this commit and without a remote that could be pushed to; with
        submodules and files of Git LFS if the settings say so."""
        await self._local("clone", "--quiet", "--no-checkout", str(self._own), str(self.work), cwd=self._own.parent)
        await self._in_work("checkout", "--quiet", "--detach", commit)
        if self._settings.submodules:
            await self._fetch_submodules()
        if self._settings.lfs:
            lfs = ("lfs.url", f"{self._url}/info/lfs")  # before what the merge request says in .lfsconfig
            await self._remote("lfs", "pull", cwd=self.work, config=(lfs, *_LFS_FILTER))
        await self._in_work("remote", "set-url", "--push", "origin", "no-push")

    async def _fetch_submodules(self) -> None:
        """Fetches the submodules, also theirs, that are at the forge's origin; GitRefused if one is elsewhere."""
        elsewhere = [(f"url.{_NOWHERE}:.insteadOf", f"{scheme}://") for scheme in ("http", "https")]
        here = (f"url.{self._login.origin}/.insteadOf", f"{self._login.origin}/")  # the longest match is used
        await self._in_work("remote", "set-url", "origin", self._url)  # relative addresses begin there
        update = ("submodule", "--quiet", "update", "--init", "--recursive")
        await self._remote(*update, cwd=self.work, config=(*elsewhere, here) if self._login.origin else ())
        await self._in_work("remote", "set-url", "origin", str(self._own))

    async def commit(self, start: str, message: str, trailers: Sequence[str], author: tuple[str, str]) -> str:
        """Commits all that the command changed since `start`, or amends its last commit with the trailers; returns the
        commit, which is then in our clone; "" if nothing was changed."""
        name, email = author
        added = [f"--trailer={each}" for each in trailers]
        who = ("-c", f"user.name={name}", "-c", f"user.email={email}", "-c", "commit.gpgSign=false")
        commit = (*who, "commit", "--quiet", "--no-verify", *added)
        await self._in_work("add", "--all")
        if await self._in_work("status", "--porcelain"):
            await self._in_work(*commit, "--file=-", stdin=message.encode())
        elif await self._in_work("rev-parse", "HEAD") != start:
            await self._in_work(*commit, "--amend", "--no-edit")
        else:
            return ""
        await self._local("fetch", "--quiet", str(self.work), "HEAD")
        return await self._local("rev-parse", "FETCH_HEAD")

    async def push(self, commit: str, branch: str, start: str) -> None:
        """Pushes the commit, which must contain `start`. The forge compares and sets, so that a process that lost its
        lock overwrites nothing: raises PushRejected unless the branch is what was cloned, or is new as it was then. If
        the answer was lost, or git itself has repeated the push after that and was rejected, the forge is asked whether
        the branch is at this commit."""
        ref, expected = f"refs/heads/{branch}", await self.tip(branch)
        if (await self._run(("merge-base", "--is-ancestor", start, commit), self._own))[0] != 0:
            raise PushRejected(f"the command has rewritten {branch}: its commit does not contain {start[:12]}")
        compare = f"--force-with-lease={ref}:{expected}"
        try:
            await self._remote("push", "--porcelain", compare, "origin", f"{commit}:{ref}")
        except (PushRejected, GitUnreachable):
            if (await self._remote("ls-remote", "origin", ref)).split() != [commit, ref]:
                raise

    # -- running it

    async def _remote(self, *arguments: str, cwd: Path | None = None, config: _Pairs = ()) -> str:
        code, out, errors = await self._run(arguments, cwd or self._own, network=True, config=config)
        if code == 0:
            return out.decode(errors="replace").strip()
        if rejected := _REJECTED.search(out):
            why = sanitized(rejected[1].decode(errors="replace"))
            raise PushRejected(f"the forge rejected the push {why}: the branch has changed, or is protected")
        text = self._failure(arguments, code, errors)
        raise GitRefused(text) if _HOPELESS.search(errors) else GitUnreachable(text)

    async def _local(self, *arguments: str, cwd: Path | None = None, stdin: bytes = b"", config: _Pairs = ()) -> str:
        code, out, errors = await self._run(arguments, cwd or self._own, stdin=stdin, config=config)
        if code != 0:
            raise GitFailed(self._failure(arguments, code, errors))
        return out.decode(errors="replace").strip()

    async def _in_work(self, *arguments: str, stdin: bytes = b"") -> str:
        filters = _LFS_FILTER if self._settings.lfs else ()  # so that pointers stay pointers in commits
        return await self._local(*arguments, cwd=self.work, stdin=stdin, config=filters)

    async def _run(
        self, arguments: Sequence[str], cwd: Path, network: bool = False, stdin: bytes = b"", config: _Pairs = ()
    ) -> tuple[int | None, bytes, bytes]:
        environment = {**_PLAIN, **(self._calling() if network else {}), **self._config(network, config)}
        timeout = self._settings.git_timeout if network else _LOCAL
        ended = await run_program(Program(("git", *arguments), stdin, environment, timeout=timeout, cwd=str(cwd)))
        return None if ended.timed_out else ended.code, ended.stdout, ended.stderr_tail

    def _calling(self) -> dict[str, str]:
        """The variables of a step that calls the forge, the login among them."""
        network = {name: os.environ[name] for name in _NETWORK if name in os.environ}
        protocols = {"GIT_ALLOW_PROTOCOL": _PROTOCOLS if self._login.origin else "file"}
        login = {"SOLELY_GIT_USER": self._login.user, "SOLELY_GIT_PASSWORD": self._login.password}
        return {**network, **self._tls, **protocols, **(login if self._login.password else {})}

    def _config(self, network: bool, more: _Pairs) -> dict[str, str]:
        """Settings of git as variables, which are in no argument and no file."""
        helper = f"credential.{self._login.origin}.helper"
        login = ((helper, ""), (helper, _HELPER)) if network and self._login.password else ()
        pairs = (*_SETTINGS, *login, *more)
        named = {f"GIT_CONFIG_KEY_{number}": name for number, (name, _) in enumerate(pairs)}
        values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(pairs)}
        return {"GIT_CONFIG_COUNT": str(len(pairs)), **named, **values}

    def _failure(self, arguments: Sequence[str], code: int | None, errors: bytes) -> str:
        verb = next(each for each in arguments if not each.startswith("-") and "=" not in each)
        how = "took too long" if code is None else f"exited with {code}"
        text = sanitized(errors.decode(errors="replace"), (self._login.password,), end=True)
        return f"git {verb} {how}: {text}"
