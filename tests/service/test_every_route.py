"""Every page, every GET route and every list command, on every store and database that the docs allow, with something
in every state: no answer is 5xx, and no command ends with a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import quote, urlencode

import click
import msgspec
import pytest

from solely.cli.program import perform
from solely.cli.program import solely as program
from solely.service.routes import Route
from tests.apps.probes.sites import counting_site
from tests.conftest import DATABASES, STORES, isolated
from tests.service.filled import NASTY, FilledService, filled
from tests.service.serving import TOKENS, bearer, until

PAIRS = [(store, data) for store in STORES if store != "http" for data in DATABASES]
PAIRS += [("cluster", data) for data in DATABASES]
PAIRS += [("sqlite", "beside"), *([("postgres", "same")] if "postgres" in STORES else [])]
ENDLESS = ("/v1/events", "/v1/ops/hints", "/live?")  # streams, of which the beginning is read; and so are live pages
REFUSING = {"/realtime/v1/runs", "/realtime/v1/batches/{id}"}  # what is not offered, by whatever address
# Where ids of things come from: a list, the name of its rows, and of the field.
IDS = (
    ("/api/triggers/runs?limit=300", "runs", "id"), ("/api/repos/jobs", "jobs", "id"),
    ("/api/alerts/silences?ended=true", "silences", "id"), ("/api/probes/maintenance", "maintenance", "id"),
    ("/v1/dead-letters?group=walk", "letters", "id"), ("/api/signals/waiting", "signals", "id"),
)  # fmt: skip
ITEMS = ("taken", "waiting", "delayed")  # in the queue walk
# What fields of queries and parts of paths are given, beside the members of a Literal and what is named nowhere.
NAMED = {
    "fingerprint": ("firing", "resolved", "acknowledged", "active", "broken"),
    "group": ("walk",), "queue": ("walk",), "holder": ("web-7",), "host": ("web-7",), "house": ("north",),
    "game": ("slots",), "target": ("up", "down"),
    "name": ("up", "down", "pending", "paused", "maintained", "added", "app.css"),
    "task": ("queued", "burst"), "tag": ("triggers", "walk"),
    "kind": ("lock", "claim", "reservation", "mark", "review"),
    "key": ("walk", "walk:running", "expired", "lock/walk", "delayed"), "q": ("walk",), "source": ("gitlab/42",),
    "sort": ("key", "-key", "left", "-since"), "matchers": ("severity=critical",), "matcher": ("severity=critical",),
    "filter": ("severity=critical",), "key...": ("walk",), "severity": ("critical",), "since": ("0",),
    "page": ("/locks?format=live", "/alerts?format=live"),
    "state": ("running", "failed", "held", "done", "taken", "delayed"), "event": ("acquired", "lost"),
}  # fmt: skip


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def operator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledService]:
    """The service on a pair of a store and a database, filled. The latter may be that of the store: the `same`, or a
    file `beside` it, as by default; then triggers are buffered there, too."""
    store, data = request.param
    if store == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('walk')}/store.db"
    else:
        url = isolated(request.getfixturevalue("cluster").url) if store == "cluster" else STORES[store](request)
    data_url = {"beside": "", "same": url}[data] if data not in DATABASES else DATABASES[data](request)
    buffer = "store" if data in DATABASES else "sql"
    with counting_site() as site, filled(url, data_url, site.url(""), buffer=buffer) as it:
        yield it


def texts(kind: Any) -> tuple[str, ...]:
    """What a field of this type is given."""
    if get_origin(kind) is Literal:
        return tuple(str(each) for each in get_args(kind))
    if get_origin(kind) in (Annotated, Union, UnionType):
        return tuple(dict.fromkeys(text for each in get_args(kind) for text in texts(each)))
    return {str: ("never", NASTY), bool: ("true",), int: ("1",), float: ("1",)}.get(kind, ())


def values(name: str, kind: Any, ids: tuple[str, ...]) -> tuple[str, ...]:
    """What this field is given: names of things that there are, and of others."""
    return (*(ids if name == "id" else NAMED.get(name, ())), *texts(kind))


def addresses(route: Route, ids: tuple[str, ...]) -> Iterator[str]:
    """The addresses of a route: with what it needs, and then with each value of each field."""
    paths = [route.path]
    for name in re.findall(r"\{(.*?)\}", route.path):
        given = values(name, str, ids)
        paths = [path.replace(f"{{{name}}}", quote(each, safe=""), 1) for path in paths for each in given]
    fields = msgspec.structs.fields(route.query) if route.query else ()
    needed = {each.encode_name: values(each.name, each.type, ids)[0] for each in fields if each.required}
    for path in paths:
        yield f"{path}?{urlencode(needed)}"
    for field in fields:
        for value in values(field.name, field.type, ids):
            yield f"{paths[0]}?{urlencode({**needed, field.encode_name: value})}"


def ids_of(operator: FilledService) -> tuple[str, ...]:
    """The ids of everything that has one, of runs one in each state."""
    found: dict[tuple[str, str], str] = {}
    for path, name, field in IDS:
        for row in operator.ask(path)[name]:
            found.setdefault((path, str(row.get("state", len(found)))), str(row[field]))
    return (*dict.fromkeys(found.values()), *operator.batches, *ITEMS)


def status(operator: FilledService, path: str) -> int:
    """The status of the answer, of which only the beginning is read if it does not end."""
    with operator.service.http.stream("GET", path, headers=bearer(TOKENS["admin"])) as answer:
        if not path.startswith(ENDLESS) and "format=live" not in path:
            answer.read()
        return int(answer.status_code)


def test_there_is_something_in_every_state(operator: FilledService) -> None:
    with suppress(AssertionError):  # the lease of the dead worker's run ends
        until(lambda: not operator.unfilled())
    assert operator.unfilled() == {}, "the walk would not see these: make them in tests/service/filled.py"


def test_no_address_answers_with_an_error_of_the_service(
    operator: FilledService, capfd: pytest.CaptureFixture[str]
) -> None:
    ids, statuses = ids_of(operator), dict[str, int]()
    routes = [route for route in operator.service.app.routes if route.method == "GET"]
    answered = set[str]()
    for route in routes:
        for path in dict.fromkeys(addresses(route, ids)):
            statuses[path] = status(operator, path)
            if statuses[path] < 400:
                answered.add(route.path)
    broken = {path: code for path, code in statuses.items() if code >= 500}
    assert broken == {}
    assert "Traceback" not in "".join(capfd.readouterr()), "of the log"
    unseen = {route.path for route in routes} - answered
    assert unseen == REFUSING, "the walk has no address at which these answer"
    print(f"{len(routes)} routes, {len(ids)} ids, {len(statuses)} addresses")


# -- commands

# The last words of commands that change something, run a program or are about no service. All others are walked.
OTHERS = {
    "ack", "acknowledge", "add", "advance", "bench", "cancel", "check-config", "clear", "completion", "copy", "cron",
    "edit", "end", "end-maintenance", "expire", "forget", "give-back", "hit", "login-test", "maintenance", "migrate",
    "off", "on", "once", "pause", "purge", "push", "release", "remove", "renew", "repeat", "replay", "reset", "resume",
    "rewind", "rollback", "rollback-store", "run", "send", "serve", "take", "token", "top", "trigger", "unacknowledge",
    "work",
}  # fmt: skip
# What commands are given that need an argument, by its name; by the whole command where that depends on it.
ARGUMENTS = {
    "key": ("walk", NASTY, "never"), "queue": ("walk", NASTY), "group": ("walk", NASTY), "name": ("walk", NASTY),
    "subject": NAMED["fingerprint"], "target_": ("up", "down", "added"), "house": ("north",), "game": ("slots",),
    "queues show id": ITEMS, "dlq show id": ("letter", "never"),
}  # fmt: skip


def commands(group: click.Group = program, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that lists or shows something."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        elif name not in OTHERS:
            yield (*words, name)


READING = sorted(set(commands()))
WARNING = (("doctor",), ("check",))  # which exit with 1 if something needs attention
WITHOUT_JSON = (("repos", "log"),)  # which prints what a program printed


def calls(words: tuple[str, ...], more: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The command with each value of each argument that it needs, and with each choice of its options."""
    command: Any = program
    for word in words:
        command = command.get_command(click.Context(command), word)
    given = [words]
    for each in command.params:
        if isinstance(each, click.Argument) and each.required:
            known = {**ARGUMENTS, **more}
            found = known.get(f"{' '.join(words)} {each.name}") or known[str(each.name)]
            given = [(*before, value) for before in given for value in found]
    yield from given
    for each in command.params:
        if isinstance(each, click.Option) and isinstance(each.type, click.Choice):
            yield from ((*given[0], each.opts[-1], choice) for choice in each.type.choices)


def test_every_command_that_reads_is_walked() -> None:
    assert {("locks", "list"), ("triggers", "gate"), ("alerts", "silence", "list"), ("doctor",)} <= set(READING)
    assert len(READING) > 40
    ids = {"triggers show id": ("none",), "repos log id": ("none",)}
    assert all(list(calls(words, ids)) for words in READING)


def test_no_command_that_reads_ends_with_a_traceback(
    operator: FilledService, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    monkeypatch.setenv("SOLELY_URL", operator.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])
    ids = ids_of(operator)
    runs = {"triggers show id": tuple(id for id in ids if id.startswith("run_"))}
    jobs = {"repos log id": tuple(job["id"] for job in operator.ask("/api/repos/jobs")["jobs"])}
    failed, count = {}, 0
    for words in READING:
        made = list(calls(words, {**runs, **jobs}))
        as_json = [] if words in WITHOUT_JSON else [(*made[0], "-o", "json")]
        # Other arguments and options take other ways through the command; the service's answers are walked above.
        for call in (*made, *as_json) if thorough or operator.is_sql else (made[0], *as_json):
            capfd.readouterr()
            code = perform([*call])
            out, err = capfd.readouterr()
            count += 1
            if code not in (0, 1 if words in WARNING else 3) or "Traceback" in out + err:
                failed[" ".join(call)] = (code, err[-1000:])
    assert failed == {}
    print(f"{len(READING)} commands, {count} calls")
