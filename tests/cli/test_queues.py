"""`solely queues …` and `solely limits …`: what an operator sees and does."""

from __future__ import annotations

import json

import pytest

from solely import Client, State
from tests.cli.conftest import Run
from tests.conftest import STORES

BECAUSE = ("--yes", "--reason", "a test")


@pytest.fixture(params=[name for name in ("sqlite", "valkey", "postgres", "mongo") if name in STORES])
def url(request: pytest.FixtureRequest) -> str:
    """A fresh store of each kind that processes share."""
    return STORES[request.param](request)


def test_an_item_goes_from_push_to_ack(url: str, solely: Run) -> None:
    assert solely(url, "queues", "push", "jobs", "a", '{"n": 1}').code == 0
    again = solely(url, "queues", "push", "jobs", "a", "2")
    assert (again.code, "has an item 'a' already" in again.err) == (5, True)
    assert solely(url, "queues", "count", "jobs").out == "1\n"
    taken = json.loads(solely(url, "queues", "take", "jobs", "-o", "json").out)
    assert (taken["id"], taken["payload"], taken["attempts"]) == ("a", {"n": 1}, 1)
    assert 0 < taken["left"] <= 30
    assert solely(url, "queues", "take", "jobs").code == 3
    assert 30 < float(solely(url, "queues", "renew", "jobs", taken["token"], "--ttl", "60s").out) <= 60
    assert solely(url, "queues", "give-back", "jobs", taken["token"], "--uncounted").code == 0
    assert solely(url, "queues", "give-back", "jobs", taken["token"]).code == 5
    taken = json.loads(solely(url, "queues", "take", "jobs", "a", "-o", "json").out)
    assert taken["attempts"] == 1
    assert solely(url, "queues", "ack", "jobs", taken["token"]).code == 0
    assert solely(url, "queues", "count", "jobs").out == "0\n"


def test_a_token_settles_nothing_once_another_process_has_resumed_it(url: str, solely: Run) -> None:
    assert solely(url, "queues", "push", "jobs", "a", "1").code == 0
    token = json.loads(solely(url, "queues", "take", "jobs", "--ttl", "5m", "-o", "json").out)["token"]
    with Client(url) as once:
        item = once.queue("jobs").resume(token)
        assert solely(url, "queues", "ack", "jobs", token).code == 5
        assert solely(url, "queues", "give-back", "jobs", token).code == 5
        renewed = solely(url, "queues", "renew", "jobs", token)
        assert (renewed.code, "resumed by its token" in renewed.err) == (6, True)
        assert item.ack() is True
    assert solely(url, "queues", "ack", "jobs", token).code == 5


def test_payloads_are_json_unless_they_are_bytes(url: str, solely: Run) -> None:
    refused = solely(url, "queues", "push", "jobs", "a", "no json")
    assert (refused.code, "Add --bytes" in refused.err) == (2, True)
    assert solely(url, "queues", "push", "jobs", "a", "no json", "--bytes", "--delay", "10m").code == 0
    with Client(url) as once:
        known = once.queue("jobs").read("a")
    assert known is not None
    assert (known.payload, known.state) == (b"no json", State.CLOSED)


def test_queues_and_their_items_are_listed(url: str, solely: Run) -> None:
    with Client(url) as once:
        for queue in ("jobs", "jobs/other", "mails"):
            for id in ("a", "b", "c"):
                once.queue(queue).push(id, {"id": id}, delay=600 if id == "b" else 0)
        assert once.queue("jobs").take(ttl=60)
    rows = json.loads(solely(url, "queues", "list", "-o", "json").out)
    assert {row["queue"]: (row["items"], row["waiting"], row["delayed"], row["taken"]) for row in rows} == {
        "jobs": (3, 1, 1, 1), "jobs/other": (3, 2, 1, 0), "mails": (3, 2, 1, 0),
    }  # fmt: skip
    rows = json.loads(solely(url, "queues", "list", "--prefix", "jobs", "-o", "json").out)
    assert {row["queue"] for row in rows} == {"jobs", "jobs/other"}
    head, *lines = solely(url, "queues", "list", "jobs").out.splitlines()
    assert head.split() == ["ID", "STATE", "LEFT", "ATTEMPTS", "PAYLOAD"]
    assert [line.split()[:2] for line in lines] == [["a", "taken"], ["b", "delayed"], ["c", "waiting"]]
    paged = solely(url, "queues", "list", "jobs", "--limit", "2")
    assert "--after 'b'" in paged.err
    assert solely(url, "queues", "list", "jobs", "--after", "b").out.splitlines()[1].startswith("c")
    assert json.loads(solely(url, "queues", "show", "jobs", "b", "-o", "json").out)["payload"] == {"id": "b"}
    assert solely(url, "queues", "show", "jobs", "z").code == 3


def test_an_item_is_removed_only_if_it_is_meant_and_nobody_has_it(url: str, solely: Run) -> None:
    with Client(url) as once:
        queue = once.queue("jobs")
        queue.push("a", 1)
        assert solely(url, "queues", "remove", "jobs", "a", "--yes").code == 2  # no reason
        dry = solely(url, "queues", "remove", "jobs", "a", "--dry-run", "--reason", "a test")
        assert (dry.code, "would remove item 'a' of 'jobs' (waiting, 0 attempts)" in dry.err) == (0, True)
        item = queue.take(ttl=60)
        assert item is not None
        assert solely(url, "queues", "remove", "jobs", "a", *BECAUSE).code == 5
        item.give_back()
        assert solely(url, "queues", "remove", "jobs", "a", *BECAUSE).code == 0
        assert solely(url, "queues", "remove", "jobs", "a", *BECAUSE).code == 3


def test_limits_count_calls_and_those_that_refuse_are_listed(url: str, solely: Run) -> None:
    words = ("limits", "hit", "api:7", "--limit", "1", "--per", "10m")
    assert solely(url, *words).out == "1\n"
    assert json.loads(solely(url, "limits", "list", "-o", "json").out) == []
    refused = solely(url, *words)
    assert (refused.code, "the next is allowed in" in refused.err) == (5, True)
    (row,) = json.loads(solely(url, "limits", "list", "api:", "-o", "json").out)
    assert (row["key"], row["limit"], row["per"], row["hits"]) == ("api:7", 1, 600.0, 1)
    assert 0 < row["left"] <= 600
