"""Git for one job: a clone that is ours, and a working copy of it for the command.

The command never sees the URL or the login: its working copy was cloned from our clone. What it can write, git reads as
files to commit and as objects to check, and never as configuration, attributes of a repository, hooks or another
repository: after the command, git runs in our clone, on files that `working_copy` has taken from the command's. Only
the `.gitattributes` of the tree count, and they can name no program that our configuration does not have.

The login is in no argument, no variable and no file: git's own processes that call the forge inherit one end of a
socket, on which a credential helper asks for it, and it is offered to the forge's origin only. Other programs of the
same user, which could read any file that is open there, cannot open a socket.

Submodules and files of Git LFS are fetched only if that is asked for: a merge request says where they are.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ....kit import Program, run_program, sanitized
from ..forges.client import GitLogin
from .markers import FENCE_TRAILER, JOB_TRAILER
from .settings import JobSettings
from .working_copy import head_of, pack_names, take_files, take_objects

# Variables that decide how the forge is reached, besides those that every program inherits.
_NETWORK = ("http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PLAIN = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",  # neither logins nor rewritten URLs of whoever runs the service
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",  # a checkout fetches nothing
    "LC_ALL": "C",  # its errors are read below
}
_SETTINGS = (
    *(("gc.auto", "0"), ("maintenance.auto", "false")),  # nothing goes on in a folder that is being removed
    *(("core.hooksPath", "/dev/null"), ("core.fsmonitor", "false"), ("commit.gpgSign", "false")),  # runs no program
    *(("core.attributesFile", "/dev/null"), ("core.excludesFile", "/dev/null")),
    *(("core.protectHFS", "true"), ("core.protectNTFS", "true")),  # no `.git` of another machine, however it is written
)
# The files have second names since they were checked out, which changes nothing else but the time of their inodes.
_TAKEN = (("core.trustctime", "false"), ("core.checkStat", "minimal"))
_CHECKED = (("fetch.fsckObjects", "true"),)
_Pairs = Sequence[tuple[str, str]]  # settings of git, by name
_NONE: Mapping[str, str] = {}
_DIGITS = 20  # of a fence, less than: they are of 64 bits
# Prints the login to git, as git-credential(1) has it.
_HELPER = """
import os, sys
if sys.argv[2] == "get":
    line = int(sys.argv[1])
    os.write(line, b"?")
    os.write(1, os.read(line, 65536))
""".strip()
_REJECTED = re.compile(rb"^!.*\[(remote )?rejected\] (.*)$", re.M)  # by the comparison, a hook, or a protection
# By a rule of the forge; but a forge whose hooks cannot ask it declines everything.
_DECLINED = re.compile(rb"declined|protected|deny|denied|prohibited|not allowed|permi(?:ssion|tted)|refusing", re.I)
_UNDECIDED = re.compile(rb"API (?:unreachable|is not accessible|error)|failed to contact|internal server error", re.I)
# Our login, or the repository, is wrong: waiting does not help. A submodule may name a commit that nobody has.
_HOPELESS = re.compile(
    rb"Authentication failed|returned error: 4(?!08|29)\d\d|not found|could not read Username|not allowed"
    rb"|is not a git command|remote-refused|find remote ref|does not appear to be a git repository"
    rb"|not our ref|unadvertised object|No url found|bad config|does not exist on the server"
)
# The network, the forge, or this machine: it may be over soon. Anything else fails again if it is tried again.
_AWAY = re.compile(
    rb"unable to access|RPC failed|hung up|early EOF|unexpected disconnect|returned error: (?:408|429|5\d\d)"
    rb"|could not resolve|connection|connect to|timed? ?out|unexpected EOF|server error|No space left",
    re.I,
)
_QUOTED = re.compile(rb"'[^']*'")  # names of repositories, branches and files: they may contain any of these words
_PROTOCOLS = "http:https"  # a URL must neither run a program nor name a file of this machine
_NOWHERE = "refused::"  # a protocol that no git knows
_LFS_FILTER = (
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
    ("filter.lfs.required", "true"),
)
_LOCAL = 300.0  # seconds for a step on this machine: a checkout of some GiB takes one or two minutes


class GitFailed(Exception):
    """A step of git failed."""


class GitUnreachable(GitFailed):
    """The forge did not answer a clone or a push, or not in time; a push may have succeeded."""


class GitRefused(GitFailed):
    """The forge does not know the repository, or refuses our login: waiting does not help."""


class PushRejected(GitFailed):
    """The forge refused to update the branch, since it has changed: nothing was pushed."""


class PushDeclined(PushRejected):
    """The forge refused to update the branch by a rule, such as its protection: another try would be refused too."""


class GitClone:
    """A clone of `url` in `folder`, which must be private. Errors never show the login."""

    def __init__(
        self, folder: Path, url: str, login: GitLogin, tls: dict[str, str], settings: JobSettings | None = None
    ) -> None:
        self._own, self.work = folder / "clone.git", folder / "work"
        self._index, self._files, self._taken = folder / "index", folder / "files", folder / "taken.git"
        self._packs: frozenset[str] = frozenset()  # of the working copy before the command
        self._url, self._login, self._tls, self._settings = url, login, tls, settings or JobSettings()

    async def clone(self) -> None:
        """Clones all branches."""
        await self._remote("clone", "--bare", "--quiet", "--", self._url, str(self._own), cwd=self._own.parent)

    async def fetch(self, ref: str) -> None:
        """Fetches one more ref of the repository; a repository that does not have it is no error."""
        try:
            await self._remote("fetch", "--quiet", "origin", ref)
        except GitRefused:
            return

    async def has(self, commit: str) -> bool:
        """True if this commit is in the clone."""
        code, _, _ = await self._run(("cat-file", "-e", f"{commit}^{{commit}}"), self._own)
        return code == 0

    async def tip(self, branch: str) -> str:
        """The last commit of the branch when it was cloned; "" if there is no such branch."""
        ref = f"refs/heads/{branch}"  # which is also a pattern, for all branches below it
        found = await self._local("for-each-ref", "--format=%(objectname) %(refname)", ref)
        return next((line[: -len(ref)].strip() for line in found.splitlines() if line.endswith(f" {ref}")), "")

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
        """Makes the working copy for the command, at this commit and without a remote; with submodules and files of Git
        LFS if the settings say so. It shares no file with our clone."""
        copied = ("--no-checkout", "--no-hardlinks", str(self._own), str(self.work))
        await self._local("clone", "--quiet", *copied, cwd=self._own.parent)
        await self._in_work("checkout", "--quiet", "--detach", commit)
        if self._settings.submodules:
            await self._fetch_submodules()
        if self._settings.lfs:
            lfs = ("lfs.url", f"{self._url}/info/lfs")  # before what the merge request says in .lfsconfig
            await self._remote("lfs", "pull", cwd=self.work, config=(lfs, *_LFS_FILTER))
        await self._in_work("remote", "set-url", "origin", ".")  # its own branches: the command need not find our clone
        await self._in_work("remote", "set-url", "--push", "origin", "no-push")
        await asyncio.to_thread(shutil.copyfile, self.work / ".git" / "index", self._index)
        self._packs = pack_names(self.work / ".git")

    async def _fetch_submodules(self) -> None:
        """Fetches the submodules, also theirs, that are at the forge's origin; GitRefused if one is elsewhere."""
        elsewhere = (f"url.{_NOWHERE}.insteadOf", "http")  # begins all that `_PROTOCOLS` permit, also `http::http://…`
        here = (f"url.{self._login.origin}/.insteadOf", f"{self._login.origin}/")  # the longest match is used
        await self._in_work("remote", "set-url", "origin", self._url)  # relative addresses begin there
        update = ("submodule", "--quiet", "update", "--init", "--recursive")
        await self._remote(*update, cwd=self.work, config=(elsewhere, here) if self._login.origin else ())

    async def commit(self, start: str, message: str, trailers: Sequence[str], author: tuple[str, str]) -> str:
        """Commits all that the command changed since `start`, or amends its last commit with the trailers; returns the
        commit, which is then in our clone; "" if nothing was changed. Call it once."""
        try:
            head = await asyncio.to_thread(head_of, self.work / ".git") or start
            if not await self.has(head):
                await self._take_commits(head)
            await asyncio.to_thread(take_files, self.work, self._files)
        except OSError as error:
            raise GitFailed(f"the working copy cannot be read: {error.strerror or error}") from None
        await self._local("update-ref", "--no-deref", "HEAD", head)
        await self._on_files("read-tree", "-m", head)
        await self._on_files("add", "--all")
        name, email = author
        added = [f"--trailer={each}" for each in trailers]
        commit = ("-c", f"user.name={name}", "-c", f"user.email={email}", "commit", "--quiet", "--no-verify", *added)
        if await self._on_files("write-tree") != await self._local("rev-parse", f"{head}^{{tree}}"):
            await self._on_files(*commit, "--file=-", stdin=message.encode())
        elif head != start:
            await self._on_files(*commit, "--amend", "--no-edit")
        else:
            return ""
        return await self._local("rev-parse", "HEAD")

    async def _take_commits(self, head: str) -> None:
        """Fetches what the command committed, through a repository of ours that has its objects and nothing else of its
        own. Each object is checked, and gets the name that its content has."""
        await self._local("init", "--quiet", "--bare", "--template=", str(self._taken), cwd=self._own.parent)
        objects = self._taken / "objects"
        (objects / "info" / "alternates").write_text(f"{self._own / 'objects'}\n")
        for pack in await asyncio.to_thread(take_objects, self.work / ".git", objects, self._packs):
            await self._local("index-pack", str(pack), cwd=self._taken)
        await self._local("update-ref", "refs/heads/taken", head, cwd=self._taken)
        await self._local("fetch", "--quiet", "--no-tags", str(self._taken), "refs/heads/taken", config=_CHECKED)

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
        except GitRefused:
            raise
        except GitFailed:
            if (await self._remote("ls-remote", "origin", ref)).split() != [commit, ref]:
                raise

    # -- running it

    async def _remote(self, *arguments: str, cwd: Path | None = None, config: _Pairs = ()) -> str:
        code, out, errors = await self._run(arguments, cwd or self._own, network=True, config=config)
        if code == 0:
            return out.decode(errors="replace").strip()
        if rejected := _REJECTED.search(out):
            why = sanitized(rejected[2].decode(errors="replace"))
            if rejected[1] and _DECLINED.search(rejected[2]):
                if _UNDECIDED.search(errors):
                    raise PushRejected(f"the forge could not check the push {why}")
                raise PushDeclined(f"the forge declined the push {why}: its rules for the branch do not allow it")
            raise PushRejected(f"the forge rejected the push {why}: the branch has changed")
        text = self._failure(arguments, code, errors)
        said = _QUOTED.sub(b"", errors)
        if _HOPELESS.search(said):
            raise GitRefused(text)
        raise GitUnreachable(text) if code is None or _AWAY.search(said) else GitFailed(text)

    async def _local(
        self,
        *arguments: str,
        cwd: Path | None = None,
        stdin: bytes = b"",
        config: _Pairs = (),
        variables: Mapping[str, str] = _NONE,
    ) -> str:
        code, out, errors = await self._run(arguments, cwd or self._own, False, stdin, config, variables)
        if code != 0:
            raise GitFailed(self._failure(arguments, code, errors))
        return out.decode(errors="replace").strip()

    async def _in_work(self, *arguments: str) -> str:
        """Runs git in the working copy: only before the command."""
        filters = _LFS_FILTER if self._settings.lfs else ()  # so that pointers stay pointers
        return await self._local(*arguments, cwd=self.work, config=filters)

    async def _on_files(self, *arguments: str, stdin: bytes = b"") -> str:
        """Runs git in our clone on the files that were taken, with an index of ours."""
        filters = _LFS_FILTER if self._settings.lfs else ()
        where = {"GIT_DIR": self._own, "GIT_WORK_TREE": self._files, "GIT_INDEX_FILE": self._index}
        variables = {name: str(path) for name, path in where.items()}
        return await self._local(*arguments, stdin=stdin, config=(*_TAKEN, *filters), variables=variables)

    async def _run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        network: bool = False,
        stdin: bytes = b"",
        config: _Pairs = (),
        variables: Mapping[str, str] = _NONE,
    ) -> tuple[int | None, bytes, bytes]:
        home = {"HOME": str(self._own.parent)}  # which has no settings, neither of git nor of what it runs
        timeout = self._settings.git_timeout if network else _LOCAL
        with self._offered_login(network) as login:
            called = self._calling() if network else {}
            environment = {**_PLAIN, **home, **called, **variables, **self._config(login, config)}
            program = Program(
                ("git", *arguments), stdin, environment, timeout=timeout, cwd=str(cwd), files=[login] if login else ()
            )
            ended = await run_program(program)
        return None if ended.timed_out else ended.code, ended.stdout, ended.stderr_tail

    @contextmanager
    def _offered_login(self, network: bool) -> Iterator[int]:
        """The descriptor of a socket on which each message is answered with the login; 0 if none is needed."""
        if not network or not self._login.password:
            yield 0
            return
        text = f"username={self._login.user}\npassword={self._login.password}\n".encode()
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            ours.setblocking(False)

            def answer() -> None:
                with suppress(OSError):  # nobody reads what was asked for
                    ours.recv(1)
                    ours.send(text)

            loop.add_reader(ours, answer)
            try:
                yield theirs.fileno()
            finally:
                loop.remove_reader(ours)

    def _calling(self) -> dict[str, str]:
        """The variables of a step that calls the forge."""
        network = {name: os.environ[name] for name in _NETWORK if name in os.environ}
        protocols = {"GIT_ALLOW_PROTOCOL": _PROTOCOLS if self._login.origin else "file"}
        return {**network, **self._tls, **protocols}

    def _config(self, login: int, more: _Pairs) -> dict[str, str]:
        """Settings of git as variables, which come before those of any repository."""
        helper = f"credential.{self._login.origin}.helper"
        prints = f"!{shlex.join((sys.executable, '-I', '-S', '-c', _HELPER, str(login)))}"
        pairs = (*_SETTINGS, *(((helper, ""), (helper, prints)) if login else ()), *more)
        named = {f"GIT_CONFIG_KEY_{number}": name for number, (name, _) in enumerate(pairs)}
        values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(pairs)}
        return {"GIT_CONFIG_COUNT": str(len(pairs)), **named, **values}

    def _failure(self, arguments: Sequence[str], code: int | None, errors: bytes) -> str:
        verb = next(each for each in arguments if not each.startswith("-") and "=" not in each)
        how = "took too long" if code is None else f"exited with {code}"
        text = sanitized(errors.decode(errors="replace"), (self._login.password,), end=True)
        return f"git {verb} {how}: {text}"
