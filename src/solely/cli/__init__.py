"""The command line: `solely run --lock KEY -- cmd…`, and commands to inspect and operate a store.

A command's module is imported when the command is used; rich, the service and a store's driver only when needed.
Data goes to stdout, messages to stderr; `exits.py` has the exit codes, docs/cli.md the rest.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> None:
    """Runs the command and exits with its code."""
    gc.disable()  # until the command is imported: modules are no garbage, and looking for it takes time
    try:
        from .program import perform
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        from ..errors import missing_extra

        sys.exit(str(missing_extra("the command line", error.name, "cli")))
    except KeyboardInterrupt:  # while modules are imported
        sys.exit(130)  # 128 + SIGINT, as in shells
    sys.exit(perform(words))
