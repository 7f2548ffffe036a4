"""What a token of another environment sees at all addresses of the service: nothing of the runs of this one, stored or
buffered, neither their keys nor their ids, payloads, tags and metadata."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.apps.operator import BECAUSE
from tests.apps.triggers.test_work_http import LINE, STAGING, Desk
from tests.service import test_every_route
from tests.service.serving import LINES, TOKENS, bearer, running, until
from tests.service.test_every_route import addresses

MARK = "zqmark"  # is in everything that only its own environment may see
LOOKING = "looking-token-of-these-tests"
LOOKER = f"looker:read:{hashlib.sha256(LOOKING.encode()).hexdigest()}"
BUFFER, LETTERS, GATE = "~triggers/buffer/default", "~triggers/buffer", "~triggers/gate/default"
CLAIM = f"~triggers/mollifier:idempotency:default:{MARK}1:{MARK}-1"
ENDLESS = ("/v1/events?", "/v1/ops/hints", "/live?", "format=live")
EACH = 3  # runs in each place


class Secrets:
    """Runs of the environment `default`, and all texts that name them or are in them."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.runs = [self._run(f"{MARK}{number}", number) for number in range(EACH)]
        assert desk.run(self.runs[-1])["run"]["buffered"]
        app: Any = desk.service.service.apps["triggers"]
        desk.service.run(app.buffer.letters.push(MARK.encode(), error=MARK, id=MARK))
        desk.post("/api/triggers/reset", {"task": f"{MARK}0", "user_key": f"{MARK}-0", "reason": BECAUSE})
        desk.service.run(desk.service.service.history.flush())
        self.slots = [id[-26:] for id in self.runs]
        self.texts = (MARK, *self.runs, *self.slots)

    def _run(self, task: str, number: int) -> str:
        given = {"tags": [f"{MARK}-tag"], "metadata": {"m": f"{MARK}-metadata"}, "idempotencyKey": f"{MARK}-{number}"}
        return self.desk.trigger(task, f"{MARK}-payload", **given)

    def addresses(self) -> list[str]:
        """Every GET route with the names of all of this."""
        item = f"item/{quote(f'queue:{BUFFER}', safe='')}/{self.slots[-1]}"
        keys = (CLAIM, f"claim/{CLAIM}", item, MARK)
        names = {"key": keys, "key...": keys, "id": keys, "item": keys, "queue": (BUFFER,), "group": (LETTERS,)}
        names |= {"q": (MARK, "~triggers", self.slots[-1]), "prefix": ("~triggers", "item/", "claim/~", BUFFER)}
        names |= {
            "kind": ("lock", "claim", "item", "limit", "limited"),
            "values": ("true",),
            "format": ("json",),
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_every_route, "NAMED", {**test_every_route.NAMED, **names})
            routes = [route for route in self.desk.service.app.routes if route.method == "GET"]
            found = [path for route in routes for path in addresses(route, keys)]
        return [path for path in dict.fromkeys(found) if not any(each in path for each in ENDLESS)]

    def seen_by(self, token: str, below: str = "/") -> dict[str, list[str]]:
        """What an answer has of it that the question had not, by address."""
        seen = {}
        for path in (each for each in self.addresses() if each.startswith(below)):
            text = self._text(path, token)
            asked = path.replace("%2F", "/").replace("%25", "%")
            found = [each for each in self.texts if each in text and not any(own in asked for own in (each, MARK))]
            if found:
                seen[path] = found
        return seen

    def _text(self, path: str, token: str) -> str:
        answer = self.desk.service.get(path, headers=bearer(token))
        assert answer.status_code < 500, path
        return answer.text


@pytest.fixture(scope="module")
def known() -> Iterator[Secrets]:
    tripped = {"trip_threshold": 1, "trip_window": 3000.0, "trip_hold": 3000.0}
    settings = {**tripped, "environments": {"stager": "staging", "looker": "staging"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("solely.apps.triggers.drainer.DEFERRED", 3000.0)  # what is buffered stays there
        with running(tokens=(*LINES, LINE, LOOKER), triggers=settings) as it:
            yield Secrets(Desk(it))


def test_no_address_shows_anything_of_another_environment(known: Secrets) -> None:
    assert known.seen_by(LOOKING) == {}
    assert known.seen_by(STAGING, "/v1/") == {}, "a token that may write sees no more"


def test_those_of_the_environment_see_it(known: Secrets) -> None:
    seen = {path.partition("?")[0] for path in known.seen_by(TOKENS["admin"], "/v1/")}
    assert {"/v1/entries", "/v1/claims", "/v1/history", "/v1/queues/items", "/v1/audit", "/v1/dead-letters"} <= seen
    own = {path.partition("?")[0] for path in known.seen_by(TOKENS["read"], "/v1/")}
    assert own == seen - {"/v1/audit", "/v1/dead-letters"}, "it shares these with other environments"


def test_what_needs_attention_is_said_to_the_environment_that_it_is_of(known: Secrets) -> None:
    known.desk.trigger("fails", 1, maxAttempts=1, resumeParentOnCompletion=True)  # past the gate
    run = known.desk.take("fails")
    assert run is not None
    assert known.desk.settle(run, "fail", error="no").status_code == 200
    get, said = known.desk.service.get, "1 run failed in default in the last 24 hours"
    until(lambda: said in get("/v1/attention", headers=bearer(TOKENS["read"])).text)
    for path in ("/v1/attention", "/?format=json", "/health?format=json", "/", "/health"):
        assert said in get(path, headers=bearer(TOKENS["read"])).text, path
        assert said not in get(path, headers=bearer(LOOKING)).text, path


def test_no_op_reads_anything_of_another_environment(known: Secrets) -> None:
    quoted = quote(f"queue:{BUFFER}", safe="")
    ops = (
        {"op": "read", "key": f"item/{quoted}/{known.slots[-1]}"},
        {"op": "read", "key": f"claim/{CLAIM}"},
        {"op": "count", "queue": f"queue:{BUFFER}"},
    )
    for op in ops:
        body = {"ops": [op]}
        allowed = known.desk.service.post("/v1/ops", body, headers=bearer(TOKENS["read"]))
        assert allowed.status_code == 200, allowed.text
        refused = known.desk.service.post("/v1/ops", body, headers=bearer(LOOKING))
        assert (refused.status_code, "not visible to this token" in refused.text) == (403, True)


def test_a_list_leaves_out_what_is_hidden_and_goes_on_behind_it(known: Secrets) -> None:
    names = [f"claim-{secrets.token_hex(4)}-{number}" for number in range(4)] + ["~~~" + secrets.token_hex(4)]
    for name in names[:4]:
        assert known.desk.post("/v1/claims/claim", {"key": name, "ttl": 600}, "write").status_code == 200
    found, after = [], ""
    while True:
        query = {"prefix": "claim/", "after": after, "limit": 2}
        page = known.desk.service.get("/v1/entries", params=query, headers=bearer(LOOKING)).json()
        found += [entry["key"] for entry in page["entries"]]
        after = page["next"] or ""
        if not after:
            break
    assert {f"claim/{name}" for name in names[:4]} <= {*found}
    assert not any("triggers" in key for key in found)


def test_a_stream_has_no_event_of_another_environment(known: Secrets) -> None:
    name, text = f"lock-{secrets.token_hex(4)}", ""
    assert known.desk.post("/v1/locks/acquire", {"keys": [name], "ttl": 60}, "write").status_code == 200
    with known.desk.service.http.stream("GET", "/v1/events?after=0", headers=bearer(LOOKING)) as answer:
        for part in answer.iter_text():
            text += part
            if name in text:
                break
    assert [each for each in known.texts if each in text] == []
