"""solely signals: posts and reads signals at a running service, shows what happened to them, and rolls back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from ...kit.commands import (
    DURATION,
    Exit,
    Form,
    Group,
    act_command,
    at_service,
    by_reason,
    confirm,
    in_form,
    leave,
    list_command,
    parsed_json,
    talk,
)
from . import acts

if TYPE_CHECKING:
    from ...kit.commands import ServiceClient

PAGE = 1_000  # dead letters of one request


@click.group(cls=Group)
def command() -> None:
    """Signals: each once, however many producers post it. Commands call the service at --at, with the token in
    SOLELY_TOKEN."""


command.add_command(list_command(acts.GROUPS, "groups"))
command.add_command(list_command(acts.WAITING, "waiting"))
command.add_command(list_command(acts.DEAD_LETTERS, "dead-letters"))
command.add_command(act_command(acts.REPLAY, "replay"))
command.add_command(act_command(acts.OFF, "off"))
command.add_command(act_command(acts.ON, "on"))


def _path(house: str, game: str) -> str:
    return f"/api/signals/{quote(house, safe='')}/{quote(game, safe='')}"


@command.command(examples=['{path} north chess \'[{"username": "alice"}]\'', "{path} north chess < signals.json"])
@click.argument("house")
@click.argument("game")
@click.argument("signals", required=False)
@in_form
@at_service
def send(client: ServiceClient, form: Form, house: str, game: str, signals: str | None) -> None:
    """Posts SIGNALS of a group, a JSON list of objects with a username; without it, reads them from stdin."""
    text = signals if signals is not None else sys.stdin.read()
    batch = parsed_json(text, "SIGNALS")
    form.one(client.post(_path(house, game), {"signals": batch}, dict[str, Any]))


@command.command("next", examples=["{path} north chess --lease 30s"])
@click.argument("house")
@click.argument("game")
@click.option("--lease", type=DURATION, help="Nobody else who leases gets it for so long.")
@in_form
@at_service
def next_signal(client: ServiceClient, form: Form, house: str, game: str, lease: float | None) -> None:
    """Prints the next signal of a group that is not acknowledged; exits with 3 if there is none."""
    path = f"{_path(house, game)}/next"
    form.one(client.get(path, dict[str, Any]) if lease is None else client.post(path, {"lease": lease}, dict[str, Any]))


@command.command(examples=["{path} 65a1f0c2e4b0a1b2c3d4e5f6"])
@click.argument("id")
@at_service
def ack(client: ServiceClient, id: str) -> None:
    """Acknowledges the signal ID, which is not read again. Exits with 3 if it was, or is unknown."""
    if not client.post("/api/signals/acknowledge", {"id": id}, dict[str, Any])["acknowledged"]:
        talk("solely: it was acknowledged before, or is unknown")
        leave(Exit.NOT_FOUND)


EXPORT = click.option(
    "--export", "file", required=True, type=click.Path(dir_okay=False, path_type=Path),
    help="The new file for the dead letters, one JSON object per line.",
)  # fmt: skip


@command.command(examples=['{path} --export letters.jsonl --reason "the old path is back" --yes'])
@EXPORT
@by_reason
@at_service
def rollback(client: ServiceClient, file: Path, reason: str, dry_run: bool, yes: bool) -> None:
    """Returns the service to the old path: switches idempotent signals off, exports their dead letters, removes what
    they keep in the store, and verifies that consumers still read."""
    if dry_run:
        talk(f"would roll back idempotent signals, and write {len(_letters(client))} dead letters to {file}")
        return
    confirm("Roll back idempotent signals", yes)
    client.post(acts.OFF.api, {"reason": reason}, dict[str, Any])
    talk("1. idempotent signals are off")
    letters = _letters(client)
    with _new(file) as lines:
        lines.writelines(json.dumps(letter) + "\n" for letter in letters)
    talk(f"2. {len(letters)} dead letters are in {file}")
    exported = [f"{letter['fence']}/{letter['id']}" for letter in letters]
    done = client.post(acts.ROLLBACK.api, {"reason": reason, "exported": exported}, dict[str, Any])
    if not done["rolled_back"]:
        talk("solely: another signal has failed meanwhile: run the command again, with another file")
        leave(Exit.NOT_FOUND)
    talk(f"3. {done['dead_letters']} dead letters and {done['marks']} marks are removed from the store")
    waiting = client.get(acts.WAITING.path, dict[str, Any], limit=1)["signals"]
    talk(f"4. consumers read: {'the next signal is ' + waiting[0]['id'] if waiting else 'no signal waits'}")


@command.command("rollback-store", examples=["{path} mongodb://localhost/app --export letters.jsonl --yes"])
@click.argument("url")
@EXPORT
@click.option("--signals", "collection", default="SIGN4L", show_default=True, help="The collection of the signals.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def rollback_store(url: str, file: Path, collection: str, yes: bool) -> None:
    """The rollback for processes that use the library with the MongoDB at URL: exports the dead letters, drops the
    collections L0CK and D34DL3TT3R, and reads the next signal. Set use_idempotent_signals to False in all processes
    before; the command refuses while a group is locked."""
    from pymongo import MongoClient

    from ... import Busy, SolelyError
    from .mongo import MongoSignals
    from .rollback import database_of, roll_back

    confirm("Drop L0CK and D34DL3TT3R", yes)
    with MongoClient[dict[str, Any]](url) as client:
        try:
            done = roll_back(url, export=file, get_next=MongoSignals(client[database_of(url)][collection]).get_next)
        except Busy as error:
            talk(f"solely: {error}")
            leave(Exit.BUSY)
        except SolelyError as error:
            raise click.ClickException(str(error)) from error
    talk(f"{done.exported} dead letters are in {file}; removed: {', '.join(done.removed)}; next signal: {done.next}")


def _letters(client: ServiceClient) -> list[dict[str, Any]]:
    """All dead letters."""
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = client.get(acts.DEAD_LETTERS.path, dict[str, Any], after=after, limit=PAGE)
        found += page["dead_letters"]
        after = page["next"]
    return found


def _new(file: Path) -> Any:
    try:
        return file.open("x")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error}; name a new file") from None
