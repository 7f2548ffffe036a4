"""python -m solely.testing.linearizability MODEL FILE…: checks recorded histories again, and prints each verdict.

MODEL is lock, mark, claim, reservation or queue; a FILE, which may be compressed (.gz), has one operation per line, as
`Recorder` and `scripts/chaos --keep` write them. Exits with 1 if one of them is not linearizable, or was not decided in
time.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .checker import Model, check_history
from .history import read_history
from .models import ClaimModel, LockModel, MarkModel, QueueModel, ReservationModel

MODELS: dict[str, Callable[[], Model[Any]]] = {
    "lock": LockModel,
    "mark": MarkModel,
    "claim": ClaimModel,
    "reservation": ReservationModel,
    "queue": QueueModel,
}


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if every history is linearizable, else 1."""
    parser = argparse.ArgumentParser(prog="python -m solely.testing.linearizability", description=__doc__)
    parser.add_argument("model", choices=MODELS, help="what the keys of the histories are")
    parser.add_argument("file", nargs="+", type=Path, help="a history: one operation per line, in JSON")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each key (default: 60)")
    options = parser.parse_args(arguments)
    bad = 0
    for path in options.file:
        try:
            history = read_history(_text(path).splitlines())
        except (OSError, ValueError, EOFError, zlib.error) as error:
            parser.error(f"{path}: {error}")
        verdict = check_history(history, MODELS[options.model](), timeout=options.timeout)
        bad += not verdict.ok
        print(f"{path}: {verdict}")  # noqa: T201 - it is a command
    return 1 if bad else 0


def _text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


if __name__ == "__main__":
    sys.exit(main())
