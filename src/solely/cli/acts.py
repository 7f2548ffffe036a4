"""The commands of acts and lists that are declared as plain data (`solely.acts`), at a running service.

An act's command says what would be affected (--dry-run), asks for confirmation where the act cannot be undone (--yes),
and exits with 3 if there was nothing to do.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from ..acts import Act, Field, Listing
from .exits import Exit, leave
from .help import Command, Group
from .options import DURATION, check_reason, confirm, in_form
from .output import Form, Row, talk
from .service_options import at_service

if TYPE_CHECKING:
    from ..http import Client

_SAMPLES = {"duration": "2h", "ago": "1h", "number": "10"}  # of fields without an example, by how they are read


def act_group(name: str, module: ModuleType) -> click.Group:
    """The commands of all acts and lists of this module, each named like its variable: `END_ALL` is `end-all`."""
    group = Group(name, help=f"{module.__doc__ or ''}\n\nCalls the service at --at, with the token in SOLELY_TOKEN.")
    found = {name: each for name, each in vars(module).items() if isinstance(each, (Act, Listing))}
    add_commands(group, **{name.lower().replace("_", "-"): each for name, each in found.items()})
    return group


def add_commands(group: click.Group, **declared: Act | Listing) -> None:
    """Adds the commands of these acts and lists to the group, by name."""
    for name, each in declared.items():
        group.add_command(act_command(each, name) if isinstance(each, Act) else list_command(each, name))


def act_command(act: Act, name: str) -> click.Command:
    """The command of the act."""

    def perform(client: Client, form: Form, dry_run: bool, yes: bool = False, **given: Any) -> None:
        body = _given(act.fields, given) | ({"reason": given["reason"]} if act.needs_reason else {})
        would = client.post(f"{act.api}?dry_run=true", body, dict[str, Any])["would"] if dry_run or act.asks else ""
        if dry_run:
            talk(f"would {would}")
            return
        if act.asks:
            confirm(would[:1].upper() + would[1:], yes)
        answer = client.post(act.api, body, dict[str, Any])
        if act.changed and not answer[act.changed]:
            talk(f"solely: {act.nothing}")
            leave(Exit.NOT_FOUND)
        _print(act, form, answer, would)

    options = [*_parameters(act.fields), click.option("--dry-run", is_flag=True, help="Only print what would be done.")]
    if act.needs_reason:
        why = "Why; for the audit log."
        options.append(click.option("--reason", required=True, metavar="TEXT", callback=check_reason, help=why))
    if act.asks:
        options.append(click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."))
    example = [*_example(act.fields), *(['--reason "asked by the owner"'] if act.needs_reason else [])]
    about = f"{act.summary}. Exits with 3 if there is nothing to do."
    return _command(name, about, perform, options, [" ".join(["{path}", *example, *(["--yes"] if act.asks else [])])])


def list_command(listing: Listing, name: str) -> click.Command:
    """The command of the list."""

    def show(client: Client, form: Form, **given: Any) -> None:
        page = client.get(listing.path, dict[str, Any], **_given(listing.fields, given))
        show_rows(form, listing, page)
        if page.get("next") is not None:
            talk(f"there are more: --after {page['next']!r}")

    words = " ".join(["{path}", *_example(listing.fields)])
    return _command(name, f"{listing.summary}.", show, _parameters(listing.fields), [words, f"{words} --json"])


def show_rows(form: Form, listing: Listing, page: Row) -> None:
    """Prints the rows of a page of the list; says so if there are none."""
    rows = page[listing.rows]
    if not rows and listing.none and form.name != "json":
        talk(listing.none)
    else:
        shown = [_shown(listing, row) for row in rows]
        if form.name != "json":
            shown = [{**row, **{name: _percent(row[name]) for name in listing.shares}} for row in shown]
        form.rows(shown, listing.columns, listing.more)


def _shown(listing: Listing, row: Row) -> Row:
    """The row as it is shown: with its times as times, and without blanks where the list says so."""
    inner = {name: _inside(row, path.split(".")) for name, path in listing.inner}
    filled = {name: text.format_map(row) for name, text in listing.blank if not row[name]}
    return {**timed(row, listing.times), **inner, **filled}


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%}"


def _inside(row: Row, path: Iterable[str]) -> Any:
    """The value at the end of this path through nested fields; None if one of them is null."""
    found: Any = row
    for name in path:
        found = None if found is None else found[name]
    return found


def timed(row: Row, times: Iterable[str]) -> Row:
    """The row with these fields, which are seconds since 1970, as times."""
    return {**row, **{name: row[name] and _time(row[name]) for name in times}}


def _time(at: float) -> datetime | float:
    """The time; the seconds themselves if they are in no year from 1 to 9999."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return at


def _print(act: Act, form: Form, answer: Row, would: str) -> None:
    """Prints the answer if people want it, and always as JSON; else only says that it was done."""
    if act.shows or form.name == "json":
        form.one(timed(answer, act.times))
    else:
        talk(f"{act.past} {would.removeprefix(f'{act.verb} ')}" if would else act.past)


def _example(fields: Iterable[Field]) -> list[str]:
    """An example of what must be given."""
    values = [(each, shlex.quote(each.example or _SAMPLES.get(each.reading, each.name.upper()))) for each in fields]
    return [
        f"{each.option} {value}" if each.option else value
        for each, value in values
        if (each.required if each.option else each.default is None)
    ]


def _command(
    name: str,
    about: str,
    function: Callable[..., None],
    parameters: Iterable[Callable[[Any], Any]],
    examples: Sequence[str],
) -> click.Command:
    decorated = in_form(at_service(function))
    for parameter in reversed([*parameters]):
        decorated = parameter(decorated)
    return click.command(name, cls=Command, help=about, examples=examples)(decorated)


def _parameters(fields: Iterable[Field]) -> list[Callable[[Any], Any]]:
    return [_option(each) if each.option else _argument(each) for each in fields]


def _argument(field: Field) -> Callable[[Any], Any]:
    if field.reading == "lines":
        return click.argument(_python_name(field), nargs=-1, required=True, metavar=f"{field.name.upper()}…")
    named = field.name.upper() if field.default is None else f"[{field.name.upper()}]"
    return click.argument(_python_name(field), required=field.default is None, default=field.default, metavar=named)


def _option(field: Field) -> Callable[[Any], Any]:
    words: dict[str, Any] = {"help": field.hint or field.label, "required": field.required}
    if field.reading == "flag":
        words["is_flag"] = True
    elif field.reading in ("duration", "ago"):
        words |= {"type": DURATION, "metavar": "DURATION"}
    elif field.reading == "number":
        words |= {"type": click.INT, "default": field.default, "show_default": True}
    else:
        words["metavar"] = field.example or "TEXT"
    return click.option(field.option, _python_name(field), **words)


def _python_name(field: Field) -> str:
    return f"{field.name}_"  # `for` is a keyword, and `url` an option of every command


def _given(fields: Iterable[Field], given: dict[str, Any]) -> dict[str, Any]:
    """What the caller has given, as the service takes it."""
    found = {each.name: given.get(_python_name(each)) for each in fields}
    for each in fields:
        value = found[each.name]
        if each.reading == "ago" and value is not None:
            found[each.name] = max(0.0, time.time() - value)
        elif each.reading == "flag":
            found[each.name] = "true" if value else ""
        elif each.reading == "lines":
            found[each.name] = list(value or ())
    return {name: value for name, value in found.items() if value not in (None, "", [])}
