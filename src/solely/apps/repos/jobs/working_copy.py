"""What is taken of a working copy after the command: its files, and the commit at which it stands. Nothing is followed
that the command could have put there: no symbolic link, no `.git` file, no path to another folder.

The files get a second name in a folder of ours, so that git never runs in a folder that the command can write to, or
in which there is a `.git`. A process that the command left behind may still change what is in the files; it cannot
change which files they are.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_DEPTH = 200  # folders within folders: sources have some ten, and each level needs two descriptors
_MAX_REFS = 64 << 20  # bytes of packed-refs: some hundred thousand refs
_HASH = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_OBJECT = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?")  # a loose one, without the two digits of its folder
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO does not wait for a writer


def take_files(work: Path, target: Path) -> None:
    """Gives every file and symbolic link of the working copy a second name in `target`, which must not exist; without
    any `.git`, and without devices, sockets and pipes. OSError if a folder is too deep or cannot be read."""
    target.mkdir(mode=0o700)
    with _folder(work) as source, _folder(target) as to:
        _link_all(source, to, 0)


def take_objects(git: Path, target: Path, known: frozenset[str]) -> list[Path]:
    """Gives the loose objects of this `.git` a second name in `target`, a folder of objects of ours, and copies the
    packs that are not among the `known` names; returns these packs, which have no index yet. It takes nothing that
    names other folders, such as `info/alternates`."""
    packs = []
    with _folder(git) as git_folder, _folder(Path("objects"), git_folder) as objects:
        for name in os.listdir(objects):
            if re.fullmatch("[0-9a-f]{2}", name):
                (target / name).mkdir(exist_ok=True)
                with _folder(Path(name), objects) as source, _folder(target / name) as to:
                    _link_matching(source, to, _OBJECT)
        with _folder(Path("pack"), objects) as source, _folder(target / "pack") as to:
            wanted = [name for name in os.listdir(source) if name.endswith(".pack") and name not in known]
            for name in wanted:
                _copy(name, source, to)
                packs.append(target / "pack" / name)
    return packs


def pack_names(git: Path) -> frozenset[str]:
    """The names of the packs of this `.git`."""
    return frozenset(each.name for each in (git / "objects" / "pack").glob("*.pack"))


def head_of(git: Path) -> str:
    """The commit at which this `.git` stands; "" if it is no folder, or does not say."""
    try:
        with _folder(git) as folder:
            head = _text(folder, "HEAD").strip()
            name = head.removeprefix("ref: ")
            found = head if name == head else (_loose_ref(folder, name) or _packed_ref(folder, name))
    except OSError:
        return ""
    return found if _HASH.fullmatch(found) else ""


def remove_folder(folder: str) -> None:
    """Removes the folder of a job, however deep the folders are that a command has left in it, and also if they may not
    be written to or read, as those of Go's cache of modules. What belongs to other users stays."""
    with suppress(OSError):
        with _folder(Path(folder)) as top:
            waiting = _without_files(top)
            while waiting:
                name = waiting.pop()
                with suppress(OSError), _folder(Path(name), top) as opened:
                    waiting += [_moved(each, opened, top) for each in _without_files(opened)]
                    os.rmdir(name, dir_fd=top)
        os.rmdir(folder)


def _without_files(folder: int) -> list[str]:
    """Removes all files of the folder; returns the names of its folders, in which we may do everything then."""
    folders = []
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            with suppress(OSError):
                _permit_all(name, folder)
                folders.append(name)
    return folders


def _permit_all(name: str, parent: int) -> None:
    """Permits us everything in this folder; a symbolic link is not followed."""
    opened = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{opened}", 0o700)
    finally:
        os.close(opened)


def _moved(name: str, source: int, target: int) -> str:
    """Moves the folder, so that no path to a folder that is left is long; returns its name there."""
    moved = secrets.token_hex(8)
    os.rename(name, moved, src_dir_fd=source, dst_dir_fd=target)
    return moved


def _loose_ref(folder: int, name: str) -> str:
    *parents, last = name.split("/")
    if not last or any(each in ("", ".", "..") for each in parents):
        return ""
    try:
        with _descended(folder, parents) as parent:
            return _text(parent, last).strip()
    except OSError:
        return ""


def _packed_ref(folder: int, name: str) -> str:
    with suppress(OSError):
        for line in _text(folder, "packed-refs").splitlines():
            commit, _, named = line.partition(" ")
            if named == name:
                return commit
    return ""


def _text(folder: int, name: str) -> str:
    """The content of a regular file in the folder; OSError if it is none."""
    file = os.open(name, _FILE, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{name} is no regular file")
        return opened.read(_MAX_REFS).decode(errors="replace")


@contextmanager
def _descended(folder: int, names: list[str]) -> Iterator[int]:
    """The folder below this one, through folders that are no symbolic links."""
    if not names:
        yield folder
        return
    with _folder(Path(names[0]), folder) as below, _descended(below, names[1:]) as last:
        yield last


@contextmanager
def _folder(path: Path, parent: int | None = None) -> Iterator[int]:
    """A descriptor of the folder; OSError if it is a symbolic link."""
    opened = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield opened
    finally:
        os.close(opened)


def _link_all(source: int, target: int, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise OSError(f"the working copy has more than {MAX_DEPTH} folders within folders")
    for name in os.listdir(source):
        kind = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if name.lower() == ".git":
            continue
        if stat.S_ISDIR(kind):
            os.mkdir(name, 0o700, dir_fd=target)
            with _folder(Path(name), source) as below, _folder(Path(name), target) as to:
                _link_all(below, to, depth + 1)
        elif stat.S_ISREG(kind) or stat.S_ISLNK(kind):
            _link(name, source, target)


def _link_matching(source: int, target: int, wanted: re.Pattern[str]) -> None:
    for name in os.listdir(source):
        if wanted.fullmatch(name):
            _link(name, source, target, files_only=True)


def _link(name: str, source: int, target: int, *, files_only: bool = False) -> None:
    """Links the file under the same name, or copies it if that is not possible: it may be of another user."""
    try:
        os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except PermissionError:
        _copy(name, source, target)
    kind = os.stat(name, dir_fd=target, follow_symlinks=False).st_mode
    if not (stat.S_ISREG(kind) or (stat.S_ISLNK(kind) and not files_only)):  # it was replaced since it was listed
        os.unlink(name, dir_fd=target)


def _copy(name: str, source: int, target: int) -> None:
    if stat.S_ISLNK(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        return
    opened = os.open(name, _FILE, dir_fd=source)
    with os.fdopen(opened, "rb") as reading:
        kind = os.fstat(opened)
        if not stat.S_ISREG(kind.st_mode):
            raise OSError(f"{name} is no regular file")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        made = os.open(name, flags, kind.st_mode & 0o777 | 0o600, dir_fd=target)
        with os.fdopen(made, "wb") as writing:
            shutil.copyfileobj(reading, writing)
            os.utime(made, ns=(kind.st_atime_ns, kind.st_mtime_ns))
