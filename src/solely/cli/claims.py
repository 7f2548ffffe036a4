"""solely claims: what runs once, and how it ended."""

from __future__ import annotations

import base64

import click

from .. import values
from ..errors import NotKept, Unreadable, WorkFailed
from ..model import Entry, State
from .entries import Facts, Noun, add_clear, add_list, add_show, facts_of


def _facts(entry: Entry) -> Facts:
    return facts_of(entry) | {"size": len(entry.value or b""), **_outcome(entry)}


def _outcome(entry: Entry) -> Facts:
    """How it ended, as `outcome`, and the value if there is one."""
    if entry.state is not State.DONE:
        return {"outcome": "", "value": None}
    try:
        value = values.decode(entry.value, entry.name)
    except WorkFailed as failed:
        return {"outcome": f"failed: {failed.kind}: {failed.text}", "value": None}
    except NotKept:
        return {"outcome": "not kept", "value": None}
    except Unreadable as why:
        return {"outcome": f"unreadable: {why}", "value": None}
    if isinstance(value, bytes):
        value = {"bytes": base64.b64encode(value).decode()}
    return {"outcome": "published", "value": value}


NOUN = Noun(
    "claim",
    ("key", "state", "left", "attempts", "outcome", "holder"),
    ("fence", "waiters", "since", "size", "value"),
    _facts,
)


@click.group()
def command() -> None:
    """Claims: what runs once, who runs it, and how it ended."""


add_list(command, NOUN)
add_show(command, NOUN)
add_clear(command, NOUN, "Forgets the claim: what runs is superseded, what was finished runs again.")
