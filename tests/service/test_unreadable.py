"""A record that cannot be read is shown as such, in its row: no page and no route breaks for the others."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlencode

import pytest

import solely
from solely.audit import QUEUE as AUDIT
from solely.cli.program import perform as command
from solely.dead_letters.flow import queue_of as letters_of
from solely.model import item_key
from solely.ops import OPS
from solely.queues.flow import queue_of
from solely.service.routes import Route
from tests.corrupt_entries import write_raw
from tests.service.serving import Running, running

VALUES = (
    b"",
    b"\xff\xfe\x00",
    b"{}",
    b"[]",
    b"null",
    b"7",
    b"b",
    b"j",
    b"j{",
    b'j"\\ud800"',  # JSON, and half a character
    b"j" + b"[" * 5_000,
    b"[" * 5_000,
    b"f",
    b"f{}",
    b'f["one"]',
    b"f[1,2]",
    b"t\xff",
    b"i",
    b"i-7",
    b"i" + b"9" * 5_000,
    b"t2020-13-99",
    b"t9999-12-31T23:59:59.999999",
    b"1.2.3",
    b"1.x",
    b'{"sent":"x","last":7,"fence":null}',
    b'{"payload":1,"group":"g","key":"k","attempts":"x","first_error":"","last_error":"","first_at":"","last_at":""}',
    b'{"bytes":"%","first_at":"2020-01-01","last_at":"no time"}',
    b'{"id":1,"at":"x"}',
    b"0000000001 {",
    b"0" * 32 + b"j{",
    b"0" * 32 + b"x",
)
KINDS = (
    "lock", "mark", "claim", "reservation", "sent", "hits", "group", "limit", "watermark", "breaker", "trial",
    "failures", "fence", "rerun", "hint", "letter", "replay",
)  # fmt: skip
QUEUES = (
    queue_of("jobs"), letters_of("jobs"), AUDIT, queue_of("~alerts/notifications"), queue_of("~alerts/retries"),
    queue_of("~alerts/acknowledged"), queue_of("~alerts/open"),
    letters_of("~alerts/notifications"), letters_of("~alerts/firing"),
)  # fmt: skip
INFOS = ("[" * 1_000, '{"since": 1e300, "host": "h", "pid": 1}', '{"since": 1, "host": [], "pid": {}}', "\ud83d")
NAME = "poisoned"
DOCS = (  # what is asked of routes that must be told of what
    {
        "key": f"{NAME}-1", "fence": 1, "group": "jobs", "queue": "jobs", "id": f"{NAME}-1",
        "fingerprint": f"{NAME}-1", "next": "/",
    },
    {
        "key": f"{NAME}-10", "fence": 1, "group": "~alerts/notifications", "queue": "~alerts/retries",
        "id": f"{NAME}-10", "fingerprint": "a",
    },
)  # fmt: skip
STREAMS = {"/v1/events", "/v1/ops/hints"}


def fill(path: Path) -> None:
    """Every kind of record, with every value that cannot be read."""
    for number, value in enumerate(VALUES):
        for kind in KINDS:
            write_raw(path, f"{kind}/{NAME}-{number}", value, INFOS[number % 3])
            write_raw(path, f"{kind}/~alerts/firing/{NAME}-{number}/critical", value)
        for queue in QUEUES:
            write_raw(path, item_key(queue, f"{NAME}-{number}"), value)
            write_raw(path, "letter/" + item_key(queue, f"{NAME}-{number}").partition("/")[2], value)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.db"
    with solely.Client(f"sqlite:///{path}") as once:
        once.mark("good", ttl=600)
        once.watermark("good").advance(7)
        once.dead_letters("jobs").push({"good": 1}, error="oops", id="good")
        once.queue("jobs").push("good", 1)
        with once.claim("good") as claim:
            claim.publish({"good": 1})
    fill(path)
    return path


@pytest.fixture(scope="module")
def poisoned(store: Path) -> Iterator[Running]:
    with running(url=f"sqlite:///{store}") as it:
        yield it


def looks(service: Running) -> list[tuple[Route, str]]:
    """Every address of the GET routes of the service, with what they must be told of; lists in their largest pages."""
    found: list[tuple[Route, str]] = []
    for route in service.app.routes:
        if route.method != "GET" or route.path in STREAMS or "{" in route.path:
            continue
        fields = set(get_type_hints(route.query)) if route.query is not None else set()
        for doc in DOCS:
            asked = {name: value for name, value in doc.items() if name in fields}
            more = {name: value for name, value in (("limit", 1000), ("values", "true")) if name in fields}
            found += [(route, f"{route.path}?{urlencode(asked | more)}")]
            if "format" in fields:
                found += [(route, f"{route.path}?{urlencode(asked | more | {'format': 'json'})}")]
        optional = [name for name in ("group", "key", "fingerprint") if name in fields]
        if optional:
            found += [(route, f"{route.path}?{urlencode({n: v for n, v in asked.items() if n not in optional})}")]
    return found


def test_every_page_and_route_answers_over_records_that_cannot_be_read(poisoned: Running) -> None:
    asked = looks(poisoned)
    assert len(asked) > 40
    broken = [(address, poisoned.get(address).status_code) for _, address in asked]
    assert [each for each in broken if each[1] >= 500] == []


def test_pages_that_are_followed_live_show_them_too(poisoned: Running) -> None:
    for path in (
        "/",
        "/claims",
        "/watermarks",
        "/dead-letters?group=jobs",
        "/queues",
        "/schedules",
        "/queues?queue=jobs",
        "/audit",
        "/alerts",
        "/reservations",
    ):
        address = f"{path}{'&' if '?' in path else '?'}format=live"
        with poisoned.http.stream("GET", address) as stream:
            told = next(line for line in stream.iter_lines() if line.startswith("event: "))
        assert told == "event: region", path


@pytest.mark.parametrize(
    "address",
    [
        "/claims?limit=1000",
        "/watermarks?limit=1000",
        "/dead-letters?group=jobs&limit=1000",
        "/audit?limit=1000",
        "/dedup?key=poisoned-7",
        "/v1/watermarks?limit=1000",
        "/v1/dead-letters?group=jobs&limit=1000",
        "/v1/reservations?limit=1000",
        "/v1/entries/explain?key=poisoned-1",
        "/dead-letters/letter?group=jobs&id=poisoned-1",
        "/queues?queue=jobs&limit=1000",
        "/queues/item?queue=jobs&id=poisoned-1",
        "/v1/queues/items?queue=jobs&limit=1000",
        "/v1/queues/item?queue=jobs&id=poisoned-1",
    ],
)
def test_the_row_says_so(poisoned: Running, address: str) -> None:
    answer = poisoned.get(address)
    assert answer.status_code == 200, answer.text
    assert "unreadable" in answer.text


def test_what_can_be_read_stands_beside_it(poisoned: Running) -> None:
    marks = {each["key"]: each for each in poisoned.get("/v1/watermarks?limit=1000").json()["watermarks"]}
    assert (marks["good"]["value"], marks["good"]["unreadable"]) == (7, "")
    letters = {each["id"]: each for each in poisoned.get("/v1/dead-letters?group=jobs&limit=1000").json()["letters"]}
    assert letters["good"]["last_error"] == "oops"
    assert letters[f"{NAME}-1"]["last_error"].startswith("unreadable: ")


def test_a_moment_after_the_last_year_breaks_no_page() -> None:
    """Nothing is wrong with that watermark; only that as a float it is in the year 10000."""
    with running(url="memory://") as service:
        last = "9999-12-31T23:59:59.999999Z"
        assert service.post("/v1/watermarks/advance", {"key": "last", "value": last}).status_code == 200
        for page in ("/watermarks", "/watermarks/rewind?key=last", "/v1/watermarks"):
            assert service.get(page).status_code == 200, page


def test_an_info_that_is_nested_deep_breaks_no_page() -> None:
    """Anybody who may take a lock can say so of itself."""
    with running(url="memory://") as service:
        for number, info in enumerate(INFOS[:3]):
            op = {"op": "acquire", "key": f"lock/deep-{number}", "owner": "me", "ttl": 60, "info": info}
            assert service.post("/v1/ops", {"ops": [op]}).status_code == 200
            busy = service.post("/v1/locks/acquire", {"key": f"deep-{number}"})
            assert busy.status_code == 409, busy.text
        for page in ("/locks", "/locks?format=json", "/v1/entries/explain?key=deep-0", "/dedup?key=deep-0"):
            assert service.get(page).status_code == 200, page


POSTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/claims/claim", {"key": "KEY"}),
    ("/v1/claims/reset", {"key": "KEY", "expected": {"form": "json", "value": 1}, "reason": "a test"}),
    ("/v1/marks", {"keys": ["KEY"]}),
    ("/v1/marks/seen", {"keys": ["KEY"]}),
    ("/v1/reservations/reserve", {"key": "KEY"}),
    ("/v1/reservations/expire", {"key": "KEY", "reason": "a test"}),
    ("/v1/watermarks/advance", {"key": "KEY", "value": 7}),
    ("/v1/watermarks/advance", {"key": "KEY", "value": "2026-01-01T00:00:00Z"}),
    ("/v1/watermarks/rewind", {"key": "KEY", "to": 7, "reason": "a test"}),
    ("/v1/dead-letters/take", {"group": "jobs", "id": "KEY"}),
    ("/v1/dead-letters/push", {"group": "jobs", "payload": 1, "error": "again", "id": "KEY"}),
    ("/v1/locks/acquire", {"key": "KEY"}),
)


@pytest.mark.parametrize(("path", "body"), POSTS, ids=[path for path, _ in POSTS])
def test_a_call_that_meets_one_is_told_so_and_fails_alone(poisoned: Running, path: str, body: dict[str, Any]) -> None:
    answers = []
    for number in range(len(VALUES)):
        key = f"{NAME}-{number}"
        given = {name: [key] if value == ["KEY"] else key if value == "KEY" else value for name, value in body.items()}
        answers.append(poisoned.post(path, given))
    assert [(answer.status_code, answer.text) for answer in answers if answer.status_code >= 500] == []
    assert poisoned.get("/healthz").status_code == 200


def test_a_reservation_whose_counts_cannot_be_read_is_sent_and_counted_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with running(url=f"sqlite:///{path}") as service:
        granted = service.post("/v1/reservations/reserve", {"key": "a", "quiet": 60}).json()
        write_raw(path, "sent/a", b"\xff")
        (listed,) = service.get("/v1/reservations").json()["reservations"]
        assert (listed["sent"], "are unreadable" in listed["unreadable"]) == (0, True)
        assert service.post("/v1/reservations/record", {"id": granted["id"]}).json() == {"recorded": True}
        (listed,) = service.get("/v1/reservations").json()["reservations"]
        assert (listed["sent"], listed["unreadable"]) == (1, "")


def test_a_letter_that_cannot_be_read_is_not_run_and_can_be_purged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with running(url=f"sqlite:///{path}") as service:
        service.post("/v1/dead-letters/push", {"group": "jobs", "payload": 1, "error": "oops", "id": "good"})
        write_raw(path, item_key(letters_of("jobs"), "bad"), b"\xff")
        ran: list[Any] = []
        service.service.dashboard.replays["jobs"] = ran.append
        told = service.run(service.service.once.dead_letters("jobs").replay_all(ran.append))
        assert (ran, {outcome.value: count for outcome, count in told.items()}) == (
            [1],
            {"unreadable": 1, "replayed": 1},
        )
        assert service.post("/v1/dead-letters/take", {"group": "jobs", "id": "bad"}).json()["outcome"] == "unreadable"
        assert service.post("/v1/dead-letters/take", {"group": "jobs"}).json()["outcome"] == "none"
        purge = {"group": "jobs", "id": "bad", "reason": "a test"}
        assert service.post("/v1/dead-letters/purge", purge).json() == {"purged": 1}


# -- by way of the API: each op on each kind, with bytes of which nothing can be made


def _op(op: Any, kind: str, name: str, value: bytes) -> dict[str, Any]:
    given = {
        "key": f"{kind}/{name}", "queue": f"{kind}:{name}", "id": name, "owner": "0" * 32, "ttl": 60.0, "keep": 60.0,
        "value": base64.b64encode(value).decode(), "payload": base64.b64encode(value).decode(), "limit": 5,
        "per": 60.0, "fence": 1, "reason": "a test",
    }  # fmt: skip
    wanted = [name for name in op._fields if name not in op._field_defaults]
    return {"op": op.__name__.lower(), **{name: given[name] for name in wanted if name in given}}


@pytest.mark.parametrize("kind", [*KINDS, "queue", "dead"])
def test_no_op_on_any_kind_breaks_a_page(kind: str) -> None:
    with running(url="memory://") as service:
        for number, value in enumerate((b"\xff\xfe", b"")):
            for op in OPS:
                name = f"{op.__name__.lower()}-{number}"
                first = _op(next(each for each in OPS if each.__name__ == "Acquire"), kind, name, value)
                if op.__name__ in ("Finish", "Renew", "Release"):
                    service.post("/v1/ops", {"ops": [first]})
                answer = service.post("/v1/ops", {"ops": [_op(op, kind, name, value)]})
                assert answer.status_code < 500, (op, answer.text)
                failed = [each for each in answer.json().get("replies", []) if each["reply"] == "failed"]
                assert failed == [], op
        broken = [(address, service.get(address).status_code) for _, address in looks(service)]
        assert [each for each in broken if each[1] >= 500] == []


# -- the command line


@pytest.mark.parametrize(
    "words",
    [
        ["locks", "list"],
        ["marks", "list"],
        ["claims", "list"],
        ["claims", "show", f"{NAME}-9"],
        ["reservations", "list"],
        ["watermarks", "list"],
        ["watermarks", "show", f"{NAME}-1"],
        ["queues", "list"],
        ["queues", "list", "jobs"],
        ["queues", "show", "jobs", f"{NAME}-1"],
        ["dlq", "list"],
        ["dlq", "list", "jobs"],
        ["dlq", "show", "jobs", f"{NAME}-1"],
        ["explain", f"{NAME}-1"],
        ["top", "--count", "1"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", ["json", "table"])
def test_the_command_line_lists_them(
    store: Path, capsys: pytest.CaptureFixture[str], words: list[str], form: str
) -> None:
    code = command([*words, "--url", f"sqlite:///{store}", *(["--output", form])])
    said = capsys.readouterr()
    assert code == 0, said.err
