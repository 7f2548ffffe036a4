"""The kit for an application's `cli.py`: options that commands share, output formats, and exit codes.

A command imports what needs the service inside its function, so that `--help` starts quickly.
"""

from __future__ import annotations

from ..cli.entries import not_found
from ..cli.exits import Exit, leave
from ..cli.options import DURATION, by_reason, confirm, in_form, paged
from ..cli.output import Form, Row, cell, printable, talk
from ..cli.why import show_verdict, why_command

__all__ = [
    "DURATION",
    "Exit",
    "Form",
    "Row",
    "by_reason",
    "cell",
    "confirm",
    "in_form",
    "leave",
    "not_found",
    "paged",
    "printable",
    "show_verdict",
    "talk",
    "why_command",
]
