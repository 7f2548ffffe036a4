"""The kit for an application's commands (`cli.py`): declarations of acts and lists, from which its routes, forms and
commands are made, options that commands share, output formats, and exit codes.

Nothing here imports the service, so that a command starts quickly. An application declares its acts and lists in a
module that imports this one only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..acts import Act, Field, Listing, after, limit
from ..cli.acts import act_command, add_commands, list_command, show_rows, timed
from ..cli.entries import not_found
from ..cli.exits import Exit, leave
from ..cli.help import Command, Group
from ..cli.options import DURATION, by_reason, confirm, in_form, paged, parsed_json
from ..cli.output import Form, Row, cell, talk
from ..cli.service_options import at_service
from ..cli.why import show_verdict, why_command

if TYPE_CHECKING:
    from ..http import Client as ServiceClient

__all__ = [
    "DURATION",
    "Act",
    "Command",
    "Exit",
    "Field",
    "Form",
    "Group",
    "Listing",
    "Row",
    "ServiceClient",
    "act_command",
    "add_commands",
    "after",
    "at_service",
    "by_reason",
    "cell",
    "confirm",
    "in_form",
    "leave",
    "limit",
    "list_command",
    "not_found",
    "paged",
    "parsed_json",
    "show_rows",
    "show_verdict",
    "talk",
    "timed",
    "why_command",
]


def __getattr__(name: str) -> Any:
    """The client of a running service, imported at its first use: most commands only annotate with it."""
    if name != "ServiceClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..http import Client

    return Client
