"""`python -m solely.copying SOURCE_URL TARGET_URL [--prefix PREFIX]… [--dry-run]`: progress on stderr, then a report.

Exits with 0 if every entry was copied, kept or left behind; 1 if entries failed or a store was unreachable (run it
again to continue); 2 if the call is invalid.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from ..errors import InvalidInput, MissingExtra, StoreError
from . import Progress, copy

REDRAW = 0.1  # seconds between updates: faster than anybody can read
BAR = 20  # characters


class Bar:
    """A progress line on a terminal. It moves to and fro, since the total is unknown; silent in a file."""

    def __init__(self) -> None:
        self.last = Progress()
        self._drawn = 0.0

    def __call__(self, progress: Progress) -> None:
        self.last = progress
        if sys.stderr.isatty() and time.monotonic() - self._drawn >= REDRAW:
            self._drawn = time.monotonic()
            place = abs(int(progress.elapsed / REDRAW) % (2 * BAR) - BAR)
            sys.stderr.write(f"\r\x1b[K[{' ' * place}={' ' * (BAR - place)}] {progress}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._drawn:
            sys.stderr.write("\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Copies, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m solely.copying", description="Copies a store into another.")
    parser.add_argument("source", metavar="SOURCE_URL")
    parser.add_argument("target", metavar="TARGET_URL")
    parser.add_argument("--prefix", action="append", help="only keys that begin with it, e.g. mark/ (repeatable)")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, report what would be done")
    given = parser.parse_args(arguments)
    bar = Bar()
    try:
        report = copy(given.source, given.target, progress=bar, prefixes=given.prefix or ("",), dry_run=given.dry_run)
    except (InvalidInput, MissingExtra) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except StoreError as error:
        bar.end()
        sys.stderr.write(f"stopped after {bar.last}\n{error}\nrun it again to continue\n")
        return 1
    bar.end()
    sys.stdout.write(f"{report}\n")
    return 0 if report.complete else 1


if __name__ == "__main__":
    sys.exit(main())
