"""solely dlq: list, replay and purge dead letters."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from ..audit import DONE, FAILED, NOTHING
from ..dead_letters.flow import Letter, queue_of
from ..dead_letters.handle import DeadLetters
from ..dead_letters.replay import LetterOutcome
from ..programs import SHELL, Program
from ..programs import run as run_program
from .audit import CommandAudit
from .entries import not_found
from .exits import Exit, leave
from .help import Group
from .items import names, shown
from .options import StoreOptions, at_passed_store, at_store, by_reason, confirm, in_form
from .output import Form, Row, talk
from .progress import ProgressLine, progress

_ERROR = 500  # characters of a handler's stderr that are stored as the error of a letter


@click.group(cls=Group, default="list")
def dlq() -> None:
    """Dead letters: failed work, kept by group until it is replayed or purged."""


def selected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds GROUP, and ID, --error and --all, one of which selects the letters."""
    for option in (
        click.argument("id", default=""),
        click.argument("group"),
        click.option("--error", metavar="TEXT", help="Those whose last error contains TEXT."),
        click.option("--all", "everything", is_flag=True, help="All of the group."),
    ):
        function = option(function)
    return function


def _where(id: str, error: str | None, everything: bool) -> Callable[[Letter], bool]:
    if bool(id) + (error is not None) + everything != 1:
        raise click.UsageError("Which letters? Give an ID, --error TEXT or --all.")
    return lambda letter: letter.id == id if id else _failed_by(error or "", letter)


def _which(id: str, error: str | None) -> str:
    return id or ("all" if error is None else f"those with {error!r:.{_ERROR}}")


def _failed_by(error: str, letter: Letter) -> bool:
    return error in letter.last_error


@dlq.command("list", examples=["solely dlq list", "solely dlq list mails --error timeout"])
@click.argument("group", default="")
@click.option("--error", default="", metavar="TEXT", help="Those whose last error contains TEXT.")
@click.option("--after", default="", metavar="ID", help="Start after this id.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Number of rows.")
@in_form
@at_store
def _list(options: StoreOptions, form: Form, group: str, error: str, after: str, limit: int) -> None:
    """Lists the letters of GROUP, in the order of ids; without one, the groups and how many letters each has."""
    store = options.store()
    with options.client(store=store) as once:
        if not group:
            groups = names(store, queue_of)
            form.rows([{"group": name, "letters": once.dead_letters(name).count()} for name in groups], _GROUPS)
            return
        where = partial(_failed_by, error)
        found = once.dead_letters(group).list(after=after, limit=limit + 1, where=where)
    if len(found) > limit:
        talk(f"there are more: --after {found[limit - 1].id!r}")
    form.rows([_row(letter) for letter in found[:limit]], _LETTER, ("key", "first_at", "first_error", "origin"))


_GROUPS = ("group", "letters")
_LETTER = ("id", "attempts", "last_at", "last_error")


def _row(letter: Letter) -> Row:
    return {
        "id": letter.id,
        "group": letter.group,
        "key": letter.key,
        "attempts": letter.attempts,
        "first_at": letter.first_at,
        "first_error": letter.first_error,
        "last_at": letter.last_at,
        "last_error": letter.last_error,
        "origin": letter.origin,
        "payload": shown(letter.payload),
    }


@dlq.command(examples=["solely dlq show mails 42"])
@click.argument("group")
@click.argument("id")
@in_form
@at_store
def show(options: StoreOptions, form: Form, group: str, id: str) -> None:
    """Shows one letter with its payload; exits with 3 if there is none."""
    with options.client() as once:
        letter = once.dead_letters(group).inspect(id)
    if letter is None:
        not_found(f"dead letter {id!r} in {group!r}")
    form.one(_row(letter))


@dlq.command(
    examples=["solely dlq replay mails 42 --handler ./send-mail", "solely dlq replay mails --all --handler ./send-mail"]
)
@selected
@click.option("--handler", required=True, metavar="CMD", help="Run by the shell for each letter, its payload on stdin.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@in_form
@at_passed_store
def replay(
    options: StoreOptions,
    form: Form,
    group: str,
    id: str,
    error: str | None,
    everything: bool,
    handler: str,
    dry_run: bool,
) -> None:
    """Passes letters to a command, one after the other: exit code 0 removes the letter, any other leaves it.

    The payload is on its standard input, as JSON unless it is bytes; its output goes to stderr. Exits with 1 if any
    failed again or is unreadable, 3 if there is no such letter, 5 if another caller was replaying one of them.
    """
    where = _where(id, error, everything)
    store = options.store()
    with options.client(store=store) as once:
        letters = once.dead_letters(group)
        if dry_run:
            _print_selected(letters, where, "replay")
            return
        what, run = f"replay of {_which(id, error)}", partial(_run_handler, handler, options.environment())
        with CommandAudit(options.url, store).acting("dead-letters.replay", group, what) as act:
            if id:
                outcomes = Counter((letters.replay(id, run).outcome,))
            else:
                with progress() as line:
                    show = partial(_show_replayed, line)
                    outcomes = letters.replay_all(run, where=where, progress=show)
            act.outcome = _audited(outcomes)
    if not outcomes or (id and outcomes[LetterOutcome.GONE]):
        not_found(f"such dead letter in {group!r}")
    form.one({str(outcome): outcomes[outcome] for outcome in LetterOutcome})
    if outcomes[LetterOutcome.FAILED] or outcomes[LetterOutcome.UNREADABLE]:
        leave(Exit.ERROR)
    if outcomes[LetterOutcome.BUSY]:
        leave(Exit.BUSY)


def _audited(outcomes: Counter[LetterOutcome]) -> str:
    """The outcome of a replay, for the audit log."""
    if failed := outcomes[LetterOutcome.FAILED]:
        return f"{FAILED}{failed} of {outcomes.total()} failed again"
    return DONE if outcomes[LetterOutcome.REPLAYED] or outcomes[LetterOutcome.SKIPPED] else NOTHING


def _show_replayed(line: ProgressLine, done: int, total: int) -> None:
    line.show(f"{done} of {total} letters replayed")


def _run_handler(handler: str, environment: dict[str, str], payload: Any) -> None:
    given = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    program = Program(
        (SHELL, "-c", handler),  # the caller's own command line; the payload comes on stdin only
        given,
        environment,
        timeout=None,
        inherit=(),
        stdout=2,
        guarded=True,  # after the ttl of the letter another process may replay it
    )
    ended = asyncio.run(run_program(program))
    errors = ended.stderr_tail.decode(errors="replace").strip()
    if errors:
        talk(errors)
    if not ended.ok:
        raise RuntimeError(f"the handler {ended}" + (f": {errors[-_ERROR:]}" if errors else ""))


@dlq.command(examples=['solely dlq purge mails --error "no such user" --reason "they have left" --yes'])
@selected
@by_reason
@in_form
@at_store
def purge(
    options: StoreOptions,
    form: Form,
    group: str,
    id: str,
    error: str | None,
    everything: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Deletes letters; prints how many. Exits with 3 if there is none."""
    where = _where(id, error, everything)
    store = options.store()
    with options.client(store=store) as once:
        letters = once.dead_letters(group)
        count = letters.count(where)
        if not count:
            not_found(f"such dead letter in {group!r}")
        if dry_run:
            _print_selected(letters, where, "purge")
            return
        confirm(f"Purge {count} of the dead letters of {group!r}", yes)
        key = f"{group}/{id}" if id else group
        with CommandAudit(options.url, store).acting("dead-letters.purge", key, reason) as act:
            purged = letters.purge(where=where, reason=reason)
            act.outcome = DONE if purged else NOTHING
        form.value("purged", purged)


def _print_selected(letters: DeadLetters, where: Callable[[Letter], bool], verb: str) -> None:
    after = ""
    while page := letters.list(after=after, where=where):
        for letter in page:
            talk(f"would {verb} {letter.id}: {letter.last_error}")
        after = page[-1].id
