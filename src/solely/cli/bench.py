"""solely bench: how fast it is here, where the benchmarks are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from .exits import Exit, leave
from .output import talk

ROOT = Path(__file__).parents[3]  # of a checkout


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[--json] [--only PREFIX] [--quick] [--strict]", type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Measures locks, marks and the rest against their peers. Needs a checkout, as the benchmarks start servers."""
    if not (ROOT / "bench" / "__main__.py").is_file():
        talk("solely: the benchmarks are not installed with the package; clone the repository and run scripts/bench")
        leave(Exit.ERROR)
    leave(subprocess.run([sys.executable, "-m", "bench", *words], cwd=ROOT, check=False).returncode)
