"""Acts: one declaration is a route, a form and a command, and the audit log says what became of each act."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from html import unescape
from typing import Annotated, Any
from urllib.parse import urlencode

import click
import httpx2
import msgspec
import pytest

from solely.acts import Act, Field
from solely.audit import appending, new_record
from solely.cli.acts import act_command, timed
from solely.errors import InvalidInput, StoreUnavailable
from solely.ops import Acquire, Amend
from solely.owner import fresh_owner
from solely.service import health
from solely.service.acts import Affected, act_routes
from solely.service.audit import AuditRecord
from solely.service.dashboard.audit_log import ROUTES as AUDIT
from solely.service.openapi import document
from solely.service.problems import BUSY, Problem
from solely.service.routes import Answer, Body, Call, Key, Reason
from tests.service.serving import LINES, TOKENS, Running, bearer, running
from tests.service.test_dashboard import csrf_of

DRAIN = Act(
    name="tanks.drain",
    title="Drain a tank",
    verb="drain",
    summary="Drain a tank to a level",
    means="What flows out is lost.",
    nothing="There is no such tank.",
    again="Drains what is left.",
    api="/v1/tanks/drain",
    page="/tanks/drain",
    fields=(
        Field("key"),
        Field("to", "To level", "0 to 99", option="--to", reading="number", default=1),
        Field("color", "Color of the flag", option="--color"),
    ),
    changed="drained",
)
tanks: dict[str, int] = {}


class Drain(Body):
    key: Key
    reason: Reason
    to: Annotated[int, msgspec.Meta(ge=0, le=99)] = 0
    color: str = ""


class Drained(Answer):
    drained: int


async def affected(call: Call[Any, Any], wanted: Drain) -> Affected | None:
    if wanted.key not in tanks:
        return None
    level = tanks[wanted.key]
    return Affected(f"the tank {wanted.key!r}", {"Tank": wanted.key, "Level": str(level)}, {"to": str(level - 1)})


async def drain(call: Call[Drain, None]) -> Drained | None:
    wanted = call.body
    if wanted.color == "red":
        raise Problem(BUSY, "Somebody swims in it.")
    if wanted.color == "black":
        raise StoreUnavailable("no answer from redis://secret-host")
    if wanted.color == "odd":
        raise ZeroDivisionError("secret")
    if wanted.key not in tanks:
        return None
    drained = max(0, tanks[wanted.key] - wanted.to)
    tanks[wanted.key] -= drained
    return Drained(drained=drained)


def not_green(text: str) -> None:
    if text == "green":
        raise InvalidInput("'green' is no color of a flag; give another")


FILL = Act(
    name="tanks.fill",
    summary="Fill a tank",
    again="Fills it again.",
    scope="write",
    back="/tanks?key={key}#level",
    fields=(Field("key"), Field("within", "Within", option="--within", reading="duration")),
    changed="filled",
)


class Fill(Body):
    key: Key
    within: str = ""


async def fill(call: Call[Fill, None]) -> bool:
    return True


ROUTES = [
    *act_routes(FILL, fill),
    *act_routes(DRAIN, drain, affected, checks={"color": not_green}, refusals=(BUSY,)),
    *AUDIT,
]
ADMIN = bearer(TOKENS["admin"])
BECAUSE = "it leaks"


@pytest.fixture(scope="module")
def serving() -> Iterator[Running]:
    with running([*ROUTES, *health.ROUTES], tokens=LINES) as it:
        it.run(it.service.audit.record("nobody", "nothing", "", "so that the log has a record"))
        yield it


@pytest.fixture
def service(serving: Running) -> Running:
    tanks.clear()
    tanks["a"] = 10
    return serving


def last(service: Running) -> AuditRecord:
    return service.run(service.service.audit.records(limit=1))[0]


def post(service: Running, fields: dict[str, str], path: str = "/tanks/drain") -> httpx2.Response:
    """The form, as an admin submits it."""
    page = service.get(path, params={"key": "a"}, headers=ADMIN)
    content = urlencode({"csrf": csrf_of(page.text), **fields})
    kind = {"content-type": "application/x-www-form-urlencoded"}
    return service.http.post(path, content=content, headers={**kind, **ADMIN})


def test_a_form_returns_to_the_address_of_its_act_with_what_was_entered(service: Running) -> None:
    done = post(service, {"key": "a/b&c", "within": "2h"}, "/tanks/fill")
    assert (done.status_code, done.headers["location"]) == (303, "/tanks?key=a%2Fb%26c&note=ended#level")
    assert last(service).action == "tanks.fill"


def test_a_text_that_a_command_reads_as_a_duration_must_be_one_on_the_form(service: Running) -> None:
    refused = post(service, {"key": "a", "within": "soon"}, "/tanks/fill")
    assert refused.status_code == 400
    assert "is not a duration" in refused.text


# -- the API


def test_the_route_performs_it_and_the_audit_log_says_that_it_is_done(service: Running) -> None:
    answer = service.post("/v1/tanks/drain", {"key": "a", "to": 3, "reason": BECAUSE}, headers=ADMIN)
    assert answer.json() == {"drained": 7}
    record = last(service)
    assert (record.who, record.action, record.key, record.reason, record.outcome) == (
        "adminer", "tanks.drain", "a", BECAUSE, "done",
    )  # fmt: skip


def test_a_dry_run_says_what_would_be_affected_and_is_no_act(service: Running) -> None:
    service.post("/v1/tanks/drain", {"key": "a", "to": 9, "reason": "the one before"}, headers=ADMIN)
    before = last(service)
    body = {"key": "a", "reason": BECAUSE}
    answer = service.post("/v1/tanks/drain?dry_run=true", body, headers=ADMIN)
    assert answer.json() == {"would": "drain the tank 'a'", "facts": {"Tank": "a", "Level": "9"}}
    assert service.post("/v1/tanks/drain?dry_run=true", body | {"key": "b"}, headers=ADMIN).status_code == 404
    assert service.post("/v1/tanks/drain?dry_run=true", body, headers=bearer(TOKENS["write"])).status_code == 403
    assert (tanks["a"], last(service)) == (9, before)


@pytest.mark.parametrize(
    ("body", "status", "outcome"),
    [
        ({"key": "a", "to": 10}, 200, "nothing"),
        ({"key": "b"}, 404, "nothing"),
        ({"key": "a", "color": "red"}, 409, "refused: Somebody swims in it."),
        ({"key": "a", "color": "black"}, 503, "failed: The store is unavailable"),
        ({"key": "a", "color": "odd"}, 500, "failed: Internal error"),
    ],
)
def test_the_audit_log_has_the_outcome(service: Running, body: dict[str, Any], status: int, outcome: str) -> None:
    assert service.post("/v1/tanks/drain", body | {"reason": BECAUSE}, headers=ADMIN).status_code == status
    assert last(service).outcome == outcome
    (shown,) = service.get("/v1/audit?limit=1", headers=bearer(TOKENS["read"])).json()["records"]
    assert shown["outcome"] == outcome
    word, _, why = outcome.partition(": ")
    page = service.get("/audit?limit=1", headers=ADMIN).text
    assert f"</span> {word}</span>" in page
    assert why in page


def test_an_act_that_is_under_way_is_started_and_one_that_never_ends_stays_so(service: Running) -> None:
    outcomes = list[str]()

    async def interrupted() -> None:
        audit = service.service.audit
        async with audit.acting("me", "test", "key", BECAUSE):
            outcomes.append((await audit.records(limit=1))[0].outcome)
            raise asyncio.CancelledError  # the process ends

    with pytest.raises(BaseException) as raised:  # noqa: PT011 - of asyncio, or of the future that waits for it
        service.run(interrupted())
    assert "Cancelled" in type(raised.value).__name__
    assert outcomes == ["started"]
    assert last(service).outcome == "started"
    assert "</span> started</span>" in service.get("/audit?limit=1", headers=ADMIN).text


def test_an_outcome_that_cannot_be_written_changes_no_answer(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    store = service.service.audit._store
    perform = store.perform

    async def no_amends(ops: Any) -> Any:
        return [StoreUnavailable("away")] if isinstance(ops[0], Amend) else await perform(ops)

    monkeypatch.setattr(store, "perform", no_amends)
    answer = service.post("/v1/tanks/drain", {"key": "a", "reason": BECAUSE}, headers=ADMIN)
    assert answer.json() == {"drained": 10}
    assert last(service).outcome == "started"


def test_a_record_of_an_older_version_has_no_outcome(service: Running) -> None:
    record = new_record("me", "old", "key", BECAUSE)
    del record["outcome"]
    service.run(service.service.perform(appending(record)))
    assert last(service) == AuditRecord(**record)
    assert last(service).outcome == ""
    assert service.get("/audit?limit=1", headers=ADMIN).status_code == 200


def test_the_documents_have_it(service: Running) -> None:
    operation = document(ROUTES)["paths"]["/v1/tanks/drain"]["post"]
    assert operation["summary"] == DRAIN.summary
    assert [each["name"] for each in operation["parameters"]] == ["dry_run"]
    answers = operation["responses"]["200"]["content"]["application/json"]["schema"]["oneOf"]
    assert [each["$ref"].rpartition("/")[2] for each in answers] == ["Drained", "WouldDo"]


# -- the form


def test_the_form_shows_what_is_affected_now_and_asks_for_the_rest(service: Running) -> None:
    page = unescape(service.get("/tanks/drain?key=a&color=blue", headers=ADMIN).text)
    for part in (
        "<h1>Drain the tank 'a'?</h1>", '<dt>Level<dd class="key">10', "What flows out is lost.",
        'name="key" value="a"', 'value="9"', 'value="blue"', '<textarea id="reason"', ">Drain</button>",
    ):  # fmt: skip
        assert part in page
    assert service.get("/tanks/drain?key=a", headers={**ADMIN, "accept": "application/json"}).json()["facts"] == {
        "Tank": "a",
        "Level": "10",
    }
    assert service.get("/tanks/drain?key=b", headers=ADMIN).status_code == 404
    assert service.get("/tanks/drain", headers=ADMIN).status_code == 400  # which one?
    assert service.get("/tanks/drain?key=a", headers=bearer(TOKENS["write"])).status_code == 403


def test_a_submitted_form_performs_it_and_returns_to_the_page(service: Running) -> None:
    done = post(service, {"key": "a", "to": "4", "color": "", "reason": BECAUSE})
    assert (done.status_code, done.headers["location"]) == (303, "/tanks?note=ended")
    assert tanks["a"] == 4
    assert last(service).outcome == "done"
    again = post(service, {"key": "a", "to": "4", "reason": BECAUSE})
    assert again.headers["location"] == "/tanks?note=moved-on"
    assert last(service).outcome == "nothing"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"to": "100"}, ("Expected `int` <= 99",)),
        ({"to": "full"}, ("Expected `int`",)),
        ({"color": "green"}, ("'green' is no color of a flag; give another",)),
        ({"reason": "x"}, ("length >= 3",)),
        ({"reason": "   ", "to": "-1"}, ("This is required.", "Expected `int` >= 0")),
    ],
)
def test_bad_input_shows_the_form_again_with_all_that_was_entered(
    service: Running, wrong: dict[str, str], says: tuple[str, ...]
) -> None:
    before = last(service)
    entered = {"key": "a", "to": "5", "color": "red & <blue>", "reason": "a <long> story", **wrong}
    refused = post(service, entered)
    page = unescape(refused.text)
    assert refused.status_code == 400
    for name in wrong:
        assert f'aria-describedby="{name}-error"' in page
    for sentence in says:
        assert f'-error">{sentence}' in page or f" {sentence}" in page
    assert page.count('class="error"') == len(wrong)
    assert '<dt>Level<dd class="key">10' in page
    assert 'name="key" value="a"' in page
    for name in ("to", "color"):
        assert f'value="{entered[name]}"' in page
    assert entered["reason"] in page
    assert "<blue>" not in refused.text
    assert (tanks["a"], last(service)) == (10, before), "it is no act"


def test_a_refused_form_is_shown_again_too(service: Running) -> None:
    refused = post(service, {"key": "a", "to": "5", "color": "red", "reason": "a long story"})
    assert refused.status_code == 409
    assert 'role="alert">Somebody swims in it.' in refused.text
    assert "a long story" in refused.text
    assert last(service).outcome == "refused: Somebody swims in it."


def test_while_the_store_is_away_nothing_that_was_entered_is_lost(service: Running) -> None:
    away = post(service, {"key": "a", "color": "black", "reason": "a long story"})
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
    assert "a long story" in away.text
    assert "secret-host" not in away.text


def test_a_form_whose_hidden_fields_are_invalid_does_nothing(service: Running) -> None:
    before = last(service)
    assert post(service, {"key": "", "reason": BECAUSE}).status_code == 400
    assert post(service, {"key": "a", "unknown": "x", "reason": BECAUSE}).status_code == 400
    assert last(service) == before


# -- the command


@pytest.fixture
def run(service: Running, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run("a", …)` answers the exit code, the output and the messages of the act's command."""
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])
    command = act_command(DRAIN, "drain")

    def perform(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            code = command.main(["--at", service.address, *words], standalone_mode=False) or 0
        except SystemExit as end:
            code = int(end.code or 0)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        return code, *capfd.readouterr()

    return perform


def test_the_command_asks_performs_and_says_what_it_did(run: Any) -> None:
    meant = ("--reason", BECAUSE)
    code, out, err = run("a", "--dry-run", *meant)
    assert (code, "would drain the tank 'a'" in err, tanks["a"]) == (0, True, 10)
    code, out, err = run("a", *meant)
    assert (code, "Drain the tank 'a'? There is no terminal to confirm on; add --yes." in err) == (2, True)
    assert run("a", "--yes")[0] == 2  # without a reason
    assert run("a", "--yes", "--reason", "x")[0] == 2
    code, out, err = run("a", "--to", "4", "--yes", *meant)
    assert (code, "drained the tank 'a'" in err, tanks["a"]) == (0, True, 4)
    code, out, err = run("a", "--yes", "-o", "json", *meant)
    assert (code, '"drained": 3' in out) == (0, True)


def test_the_command_exits_with_3_if_there_was_nothing_to_do(run: Any, service: Running) -> None:
    tanks["a"] = 0
    code, _, err = run("a", "--yes", "--reason", BECAUSE)
    assert (code, "solely: There is no such tank." in err) == (3, True)
    assert last(service).outcome == "nothing"


# -- all of a host


def _held_by(it: Running, host: str, *keys: str) -> None:
    """Has another host hold these stored keys."""
    info = f'{{"host":"{host}","pid":7,"since":1700000000}}'
    it.run(it.service.perform(*(Acquire(key, fresh_owner(), 600.0, info) for key in keys)))


def test_all_of_a_host_is_released_and_nothing_of_others(guarded: Running) -> None:
    _held_by(guarded, "web-1", "lock/deploy", "claim/order-7", "reservation/mail", "lock/~alerts/x")
    _held_by(guarded, "web-10", "lock/other")
    admin, body = bearer(TOKENS["admin"]), {"host": "web-1", "reason": "its disk died"}
    would = guarded.post("/v1/hosts/release?dry_run=true", body, headers=admin).json()
    assert would["would"] == "release 4 keys that web-1 holds"
    assert would["facts"]["Locks"] == "2: deploy, ~alerts/x"
    assert guarded.post("/v1/hosts/release", body, headers=bearer(TOKENS["write"])).status_code == 403
    assert guarded.post("/v1/hosts/release", body, headers=admin).json() == {"released": 4, "more": False}
    assert guarded.post("/v1/hosts/release", body, headers=admin).json() == {"released": 0, "more": False}
    left = guarded.get("/locks?format=json&internal=true", headers=admin).json()["rows"]
    assert [row["key"] for row in left if row["host"].startswith("web-1")] == ["other"]
    first, second = guarded.get("/v1/audit", headers=admin).json()["records"][:2]
    assert (first["action"], first["key"], first["outcome"]) == ("hosts.release", "web-1", "nothing")
    assert (second["outcome"], second["reason"]) == ("done: released 4", "its disk died")
    form = guarded.get("/locks/release-host?host=web-10", headers=admin | {"accept": "text/html"})
    assert "Release 1 key that web-10 holds?" in form.text


def test_a_moment_in_no_year_is_listed_as_seconds() -> None:
    row = timed({"since": 253_402_343_999.0, "until": -62_135_647_200.0, "at": 1.5}, ("since", "until", "at"))
    assert (row["since"], row["until"]) == (253_402_343_999.0, -62_135_647_200.0)
    assert row["at"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
