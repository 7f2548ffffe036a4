"""Silences: who meets all matchers is kept back, from its start to its end, in every worker."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from solely.apps.alerts.model import Alert
from solely.apps.alerts.suppression import silences as module
from solely.apps.alerts.suppression.matchers import checked, labels_of, matches
from solely.data import Database
from solely.errors import DataError, InvalidInput
from solely.kit import Matcher
from tests.apps.alerts.working import parts_on

HOUR = 3_600.0


def alert(**more: Any) -> Alert:
    return Alert(**{"name": "CPU high", "severity": "critical", "source": "host-1", "fingerprint": "cpu", **more})


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("severity=critical", True),
        ('severity = "critical"', True),
        ("severity=warning", False),
        ("severity!=warning", True),
        ("name=~CPU.*", True),
        ("name=~CPU", False),  # a pattern must match all of it
        ("name=~(?i)cpu (high|low)", True),
        ("source!~host-[0-9]+", False),
        ("fingerprint=cpu", True),
        ("env=prod", True),
        ("labels.env=prod", True),
        ("labels.name=inner", True),
        ("name=inner", False),
        ("team=", True),  # a label that is not there is empty
        ("team!=dba", True),
        ("team=~.+", False),
        ("note=a=b", True),
        ('note="a=b"', True),
        ("lines=~a.b", True),  # a point is any character
        ("alertname=CPU high", True),  # of an alert without this label, its name
        ("labels.alertname!=CPU high", False),
        ("labels.source=host-1", True),  # of an alert without this label, its source
    ],
)
def test_a_matcher_meets(text: str, met: bool) -> None:
    labels = {"env": "prod", "name": "inner", "note": "a=b", "lines": "a\nb"}
    matcher = Matcher.parse(text)
    assert matches([matcher], alert(labels=labels)) is met
    assert Matcher.parse(str(matcher)) == matcher


def test_a_label_wins_over_the_field_that_stands_in_for_it() -> None:
    labelled = alert(labels={"alertname": "Load", "source": "sensor", "severity": "page", "a": "b"})
    for text in ("alertname=Load", "labels.source=sensor", "name=CPU high", "source=host-1"):
        assert matches([Matcher.parse(text)], labelled), text
    assert labels_of(labelled) == {"alertname": "Load", "source": "sensor", "severity": "critical", "a": "b"}
    assert labels_of(alert()) == {"alertname": "CPU high", "source": "host-1", "severity": "critical"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("severity", "not a matcher"),
        ("=critical", "not a matcher"),
        ("name=~[", "is invalid"),
        ('name="CPU', "not a valid JSON string"),
        ("name=" + "x" * 600, "at most 600"),
        ("name=~" + "x" * 300, "the most is 256"),
        (r"name=~(a*)\1", "is invalid"),
        ("name=~(?=a+)a", "is invalid"),
        ("name=~(x{0,99}){10}(x{0,99}){10}", "is too large"),
        ("name=~.*", "every alert"),
        ("team=", "every alert"),
        ("team!=dba", "every alert"),
    ],
)
def test_an_invalid_matcher_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        checked([text])


def test_a_pattern_is_compared_with_the_beginning_of_a_long_value() -> None:
    long = checked(["note=~x{255}."])
    assert matches(long, alert(labels={"note": "x" * 8_000}))
    assert not matches(long, alert(labels={"note": "x" * 255}))


def test_the_slowest_pattern_that_is_let_through_is_fast() -> None:
    worst = checked(["source=~.*a.*ab"])
    began = time.perf_counter()
    assert not matches(worst, alert(source="a" * 5_000))
    assert time.perf_counter() - began < 0.5  # it takes some milliseconds


async def test_a_silence_holds_for_those_who_meet_all_of_it(data: Database) -> None:
    silences, elsewhere = parts_on(data).silences, parts_on(data).silences
    assert silences.match(alert()) is None
    made = await silences.add(["severity=critical", "env=prod"], ends=time.time() + HOUR, by="ann", reason="upgrade")
    assert silences.match(alert(labels={"env": "prod"})) == made
    assert silences.match(alert(labels={"env": "test"})) is None
    assert silences.match(alert(severity="warning", labels={"env": "prod"})) is None
    assert elsewhere.match(alert(labels={"env": "prod"})) is None
    await elsewhere.refresh()
    assert elsewhere.match(alert(labels={"env": "prod"})) == made
    assert (made.matchers, made.made_by, made.reason) == (('severity="critical"', 'env="prod"'), "ann", "upgrade")


async def test_of_several_the_one_that_ends_last_is_named(data: Database) -> None:
    silences = parts_on(data).silences
    for hours in (2, 3, 1):
        await silences.add(["severity=critical"], ends=time.time() + hours * HOUR, by="ann", reason=f"{hours} hours")
    found = silences.match(alert())
    assert found is not None
    assert found.reason == "3 hours"
    assert [each.reason for each in await silences.list()] == ["1 hours", "2 hours", "3 hours"]


async def test_it_holds_from_its_start_to_its_end(data: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    silences, now = parts_on(data).silences, time.time()
    await silences.add(["name=~CPU.*"], starts=now + 100, ends=now + 200, by="ann", reason="later")
    clock = [now]
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: clock[0]))
    held = []
    for moment in (0, 99, 101, 199, 201):
        clock[0] = now + moment
        held.append(silences.match(alert()) is not None)
    assert held == [False, False, True, True, False]
    await silences.refresh()
    assert await silences.list() == []
    assert [each.reason for each in await silences.list(ended=True)] == ["later"]


async def test_it_can_be_ended_once_and_says_by_whom(data: Database) -> None:
    silences = parts_on(data).silences
    made = await silences.add(["severity=critical"], ends=time.time() + HOUR, by="ann", reason="upgrade")
    assert await silences.expire(made.id, by="bob", reason="done early")
    assert silences.match(alert()) is None
    assert not await silences.expire(made.id, by="eve", reason="again")
    assert not await silences.expire("nothing", by="eve", reason="again")
    (ended,) = await silences.list(ended=True)
    assert (ended.ended_by, ended.ended_why) == ("bob", "done early")


async def test_what_ended_long_ago_is_forgotten_with_the_next_one(
    data: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    silences, now = parts_on(data).silences, time.time()
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now - 40 * 86_400))
    await silences.add(["severity=critical"], ends=now - 39 * 86_400, by="ann", reason="long ago")
    monkeypatch.undo()
    assert len(await silences.list(ended=True)) == 1
    await silences.add(["severity=critical"], ends=now + HOUR, by="ann", reason="now")
    assert await silences.list(ended=True) == []


@pytest.mark.parametrize(
    ("starts", "ends"), [(None, -1.0), (50.0, 50.0), (60.0, 50.0), (None, 400 * 86_400.0), (None, float("nan"))]
)
async def test_times_that_cannot_be_are_refused(data: Database, starts: float | None, ends: float) -> None:
    silences, now = parts_on(data).silences, time.time()
    with pytest.raises(InvalidInput, match="must end after"):
        await silences.add(
            ["severity=critical"], starts=starts and now + starts, ends=now + ends, by="ann", reason="no"
        )
    assert await silences.list() == []


async def test_there_are_only_so_many(data: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    silences = parts_on(data).silences
    for _ in range(2):
        await silences.add(["severity=critical"], ends=time.time() + HOUR, by="ann", reason="one more")
    with pytest.raises(InvalidInput, match="2 silences already"):
        await silences.add(["severity=critical"], ends=time.time() + HOUR, by="ann", reason="too many")


async def test_if_the_database_is_away_the_last_copy_holds(data: Database) -> None:
    silences = parts_on(data).silences
    made = await silences.add(["severity=critical"], ends=time.time() + HOUR, by="ann", reason="upgrade")
    await data.run("ALTER TABLE alerts_silences RENAME TO away")
    with pytest.raises(DataError):
        await silences.refresh()
    assert silences.match(alert()) == made


async def test_texts_that_a_database_cannot_keep_are_kept_as_near_as_can_be(data: Database) -> None:
    silences = parts_on(data).silences
    made = await silences.add(["name=a\0b"], ends=time.time() + HOUR, by="an\0n", reason="be\0cause")
    assert silences.match(alert(name="a\0b")) == made
    assert (made.made_by, made.reason) == ("an\ufffdn", "be\ufffdcause")
    assert not await silences.expire("no\0thing", by="ann", reason="no")
    assert await silences.expire(made.id, by="b\0b", reason="do\0ne")


async def test_a_silence_can_be_edited_and_keeps_its_id(data: Database) -> None:
    silences, elsewhere, now = parts_on(data).silences, parts_on(data).silences, time.time()
    made = await silences.add(["severity=critical"], starts=now + HOUR, ends=now + 2 * HOUR, by="ann", reason="later")
    assert silences.match(alert()) is None
    edited = await silences.edit(made.id, ["severity=critical", "env=prod"], ends=now + HOUR, by="bob", reason="now")
    assert edited is not None
    assert (edited.id, edited.made, edited.made_by, edited.reason) == (made.id, made.made, "bob", "now")
    assert silences.match(alert(labels={"env": "prod"})) == edited
    assert silences.match(alert()) is None
    await elsewhere.refresh()
    assert elsewhere.match(alert(labels={"env": "prod"})) == edited
    assert await silences.list() == [edited]


async def test_a_silence_that_has_begun_keeps_its_start(data: Database) -> None:
    silences, now = parts_on(data).silences, time.time()
    made = await silences.add(["severity=critical"], starts=now - HOUR, ends=now + HOUR, by="ann", reason="upgrade")
    edited = await silences.edit(
        made.id, ["severity=critical"], starts=now + HOUR, ends=now + 2 * HOUR, by="ann", reason="it takes longer"
    )
    assert edited is not None
    assert (edited.starts, edited.ends) == (made.starts, now + 2 * HOUR)
    assert silences.match(alert()) == edited


async def test_what_has_ended_cannot_be_edited_nor_can_an_edit_be_invalid(data: Database) -> None:
    silences, now = parts_on(data).silences, time.time()
    made = await silences.add(["severity=critical"], ends=now + HOUR, by="ann", reason="upgrade")
    for matchers, ends in ((["team="], now + HOUR), (["severity=critical"], now - 1), ([], now + HOUR)):
        with pytest.raises(InvalidInput):
            await silences.edit(made.id, matchers, ends=ends, by="eve", reason="no")
    assert await silences.read(made.id) == made
    await silences.expire(made.id, by="ann", reason="done")
    assert await silences.edit(made.id, ["severity=critical"], ends=now + HOUR, by="eve", reason="again") is None
    assert await silences.edit("no\0thing", ["severity=critical"], ends=now + HOUR, by="eve", reason="no") is None
    ended = await silences.read(made.id)
    assert ended is not None
    assert (ended.made_by, ended.ended_why) == ("ann", "done")
