"""A command as it runs in our image: as the image's user, on a read-only root that has nothing but the program, with an
empty /tmp. A namespace of mounts stands in for a container engine; only root can make one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
(USER,) = re.findall(r"^USER (\d+)$", (ROOT / "deploy" / "Containerfile").read_text(), re.MULTILINE)
PROGRAM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ssl", sys.base_prefix, sys.prefix, str(ROOT / "src"))
POSSIBLE = os.geteuid() == 0 and not subprocess.run(
    ["unshare", "--mount", "true"], capture_output=True, check=False
).returncode  # fmt: skip


def start(root: Path, words: tuple[str, ...], environ: Mapping[str, str], **files: Path) -> subprocess.Popen[str]:
    """Starts `solely WORDS` there; the root is this empty folder. Files and folders are mounted at their names, with
    `__` for `/`, and keep their owner and mode, as file secrets of Compose do."""
    mounts = [(Path(name), Path(name), "") for name in dict.fromkeys(PROGRAM) if Path(name).exists()]
    mounts += [
        (file, Path("/" + name.replace("__", "/")), "file" if file.is_file() else "") for name, file in files.items()
    ]
    lines = [
        "set -e",
        f"mount -t tmpfs -o mode=755 none {shlex.quote(str(root))}",
        f"mkdir {shlex.quote(f'{root}/tmp')}",  # before the program, which may be below it
        f"mount -t tmpfs -o mode=1777,size=64m none {shlex.quote(f'{root}/tmp')}",
    ]
    for source, target, kind in mounts:
        there, parent = (shlex.quote(f"{root}{path}") for path in (target, target.parent))
        make = f"mkdir -p {parent} && touch {there}" if kind else f"mkdir -p {there}"
        lines.append(f"{make}; mount --bind {shlex.quote(str(source.resolve()))} {there}")
        lines.append(f"mount -o remount,bind,ro {there}")
    lines += [
        f"cd {shlex.quote(str(root))} && mkdir -p dev proc var/lib/solely && touch dev/null dev/urandom",
        "mount --bind /dev/null dev/null; mount --bind /dev/urandom dev/urandom",
        "mount --bind /proc proc; ln -s /proc/self/fd dev/fd",
        "mount -o remount,ro .",
        f'exec chroot . setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --bounding-set=-all "$@"',
    ]
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines), "sh"]
    own = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/var/lib/solely",
        "PYTHONPATH": str(ROOT / "src"),
        **environ,
    }
    options: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*command, sys.executable, "-m", "solely.cli", *words], env=own, **options)
